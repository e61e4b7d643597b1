"""What is owed as the JSON that an engine keeps in its log, and back."""

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from backupd.fleet.columns import from_json, to_json
from backupd.vocabulary.fleet import OwedBackup

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def to_document(owed: OwedBackup) -> dict[str, Any]:
    """In JSON's types."""
    document: dict[str, Any] = json.loads(to_json(_adapter(), owed))
    return document


def from_document(document: object) -> OwedBackup:
    """What it was.

    Raises:
        FleetDatabaseError: it was something else.
    """
    owed: OwedBackup = from_json(_adapter(), json.dumps(document))
    return owed


@cache
def _adapter() -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(OwedBackup)
