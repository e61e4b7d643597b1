"""The results of drills beside the backups that were drilled: what a rebuilt catalogue knows of them.

Knows: the document (`"schema": 1`) and its name. Refuses to know how a drill goes. What is read comes from the storage:
a document that cannot be understood, or is of another run, is passed over; keys that are not known mean nothing.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from backupd.errors import TargetError
from backupd.model import Check, Drill, Position
from backupd.owning import Ownership
from backupd.targets import Source, Target
from backupd.targets.names import is_proof, proof_name

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20


def leave_proof(sources: Sequence[Source], drill: Drill, ownership: Ownership, *, host: str) -> tuple[str, ...]:
    """The drill's result lies beside each of these copies; in words, where it could not be written.

    Nothing is written beside another machine's.
    """
    content = to_text(drill, host=host).encode()
    here = ownership.require_here().name
    failed = []
    for source in sources:
        if source.target.machine != here:
            continue
        try:
            ownership.require_ours(source.target)
            source.target.attach(source.job, source.run_id, proof_name(drill.at), content)
        except TargetError as error:
            failed.append(
                f"the result of the drill could not be left on target {source.target.name}, and a rebuilt catalogue"
                f" will not know of it: {error.message}"
            )
    return tuple(failed)


def proofs_of(target: Target, job: str, run_id: str) -> tuple[Drill, ...]:
    """The results of drills that lie beside a backup and can be understood, oldest first.

    Raises:
        TargetError: the target cannot be read.
    """
    found = []
    for name, size in sorted(target.objects(job, run_id).items()):
        if not is_proof(name) or size > _MOST_BYTES:
            continue
        with target.reading(job, run_id, name) as chunks:
            drill = from_text(b"".join(map(bytes, chunks)), run_id)
        if drill is None:
            log.warning("%s beside backup %s on target %s is no result of a drill of it", name, run_id, target.name)
        else:
            found.append(drill)
    return tuple(found)


def to_text(drill: Drill, *, host: str) -> str:
    """The document, ending with a line feed."""
    position = None if drill.position is None else _plain(drill.position)
    body = {"schema": 1, **asdict(drill), "at": drill.at.isoformat(), "host": host, "position": position}
    return json.dumps(body, indent=2) + "\n"


def from_text(text: bytes, run_id: str) -> Drill | None:
    """What was written; None where it is not of this run, or cannot be understood."""
    try:
        body = json.loads(text)
        if body["run_id"] != run_id:
            return None
        drill = Drill(
            run_id,
            ok=_flag(body["ok"]),
            checks=tuple(
                Check(str(one["name"]), _flag(one["ok"]), str(one["expected"]), str(one["found"]))
                for one in body["checks"]
            ),
            seconds=float(body["seconds"]),
            at=datetime.fromisoformat(body["at"]),
            position=_position(body.get("position")),
            undecided=str(body.get("undecided", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    contradicts = drill.ok and (drill.undecided or not all(check.ok for check in drill.checks))
    return None if contradicts or drill.at.tzinfo is None else drill


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _plain(position: Position) -> dict[str, Any]:
    return {"file": position.binlog_file, "offset": position.binlog_offset, "gtid": position.gtid}


def _position(told: Any) -> Position | None:
    if not isinstance(told, dict):
        return None
    file, offset, gtid = told.get("file"), told.get("offset"), told.get("gtid")
    if not (isinstance(file, str) and isinstance(offset, int)):
        return None
    return Position(file, offset, gtid if isinstance(gtid, str) else None)
