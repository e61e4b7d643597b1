"""An owner record: who wrote last into a machine's folder, so that two hosts with one identity notice each other.

Knows: the record and its JSON. A record comes from a storage that may have made it up: what is not as we write it is
refused.
"""

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime

from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.escaping import is_one_line
from backupd.vocabulary.instants import is_reckonable

_INCARNATION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """Who wrote last into a machine's folder."""

    machine: str
    number: int  # from 1 on; each is one more than the record before it
    incarnation: str  # 32 random hexadecimal digits that only this writer knows
    host: str  # what the writer's host calls itself: for people
    at: datetime  # by the writer's clock: for people


def to_text(record: OwnerRecord) -> str:
    """The document that is stored, ending with a line feed."""
    return json.dumps({**asdict(record), "at": record.at.isoformat()}, indent=2) + "\n"


def from_text(text: str | bytes, *, machine: str, number: int, where: str) -> OwnerRecord:
    """What was written as this record of this machine; `where` names it in sentences.

    Raises:
        VerificationError: it is not an owner record, or another one.
    """
    hint = "if this folder is this machine's, take it over with `backupd identity adopt`"
    try:
        body = json.loads(text)
        record = OwnerRecord(**{**body, "at": datetime.fromisoformat(body["at"])})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise VerificationError(f"{where} is not an owner record", hint=hint) from error
    if not _is_well_formed(record):
        raise VerificationError(f"{where} is not an owner record", hint=hint)
    if (record.machine, record.number) != (machine, number):
        raise VerificationError(f"{where} is owner record {record.number} of machine {record.machine}", hint=hint)
    return record


def _is_well_formed(record: OwnerRecord) -> bool:
    texts = (record.machine, record.incarnation, record.host)
    return (
        all(isinstance(text, str) and is_one_line(text) for text in texts)
        and type(record.number) is int
        and _INCARNATION.fullmatch(record.incarnation) is not None
        and is_reckonable(record.at)
    )
