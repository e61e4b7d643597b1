"""The results of drills beside the backups that were drilled: what a rebuilt catalogue knows of them.

Knows: the document (`"schema": 1`), its name, and that it is signed as the manifest is: of everything else in it.
What is read comes from the storage: a document that cannot be parsed or believed, or is of another run, is passed
over; keys that are not known mean nothing.
"""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from backupd.operations.upkeep.ownership import Ownership
from backupd.policy.signing import Signer, is_signed
from backupd.targets import BackupSource, Target
from backupd.targets.names import is_proof, proof_name
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.escaping import is_one_line
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Signature

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20
_MOST_PROOFS = 1000  # the newest ones: whoever owns the storage can put there as many as he likes
_SIGNED = b"backupd drill 1\0"  # before the digest that is signed: such a signature is of nothing else


def leave_proof(sources: Sequence[BackupSource], drill: Drill, ownership: Ownership, *, host: str) -> tuple[str, ...]:
    """The drill's result lies beside each of these copies; in words, where it could not be written.

    Nothing is written beside another machine's.
    """
    here, signer = ownership.require_here().name, ownership.signer()
    failed = []
    for source in sources:
        if source.target.machine != here:
            continue
        try:
            ownership.require_ours(source.target)
            content = to_text(drill, source, host=host, signer=signer).encode()
            source.target.attach(source.job, source.run_id, proof_name(drill.at), content)
        except TargetError as error:
            failed.append(
                f"the result of the drill could not be stored on target {source.target.name}; a rebuilt catalogue"
                f" will not have it: {error.message}"
            )
    return tuple(failed)


def proofs_of(source: BackupSource) -> tuple[Drill, ...]:
    """The results of drills that lie beside a backup and can be understood and believed, oldest first.

    Raises:
        TargetError: the target cannot be read.
    """
    return tuple(drill for _, _, drill in _believed(source))


def copy_proofs(source: BackupSource, target: Target) -> None:
    """The results of drills that lie beside a backup and are believed lie beside its copy on this target, too.

    Raises:
        TargetError: one of them could not be read or written.
    """
    for name, content, _ in _believed(source):
        target.attach(source.job, source.run_id, name, content)


def _believed(source: BackupSource) -> Iterator[tuple[str, bytes, Drill]]:
    """The name and the content of each, and what it says; oldest first."""
    target, job, run_id = source.target, source.job, source.run_id
    listed = sorted((name, size) for name, size in target.objects(job, run_id).items() if is_proof(name))
    for name, size in listed[-_MOST_PROOFS:]:
        if size > _MOST_BYTES:
            continue
        with target.reading(job, run_id, name, size=size) as chunks:
            content = b"".join(map(bytes, chunks))
        drill = from_text(content, source)
        if drill is None:
            log.warning(
                "%s next to backup %s on target %s is not a drill result that a known key has signed",
                *(name, run_id, target.name),
            )
        else:
            yield name, content, drill


def to_text(drill: Drill, source: BackupSource, *, host: str, signer: Signer) -> str:
    """The document, ending with a line feed."""
    position = None if drill.position is None else _plain(drill.position)
    whose = {"machine": source.target.machine, "job": source.job, "host": host}
    body = {"schema": 1, **asdict(drill), "at": drill.at.isoformat(), "position": position, **whose}
    return json.dumps({**body, "signature": asdict(signer.sign(_meaning(body)))}, indent=2) + "\n"


def from_text(text: bytes, source: BackupSource) -> Drill | None:
    """What was written; None where it is not of this backup, or cannot be parsed or believed."""
    try:
        body = json.loads(text)
        told = body.pop("signature", None)
        signature = None if told is None else Signature(str(told["key"]), str(told["value"]))
        if not source.trust.believes(signature) or (signature and not is_signed(signature, _meaning(body))):
            return None
        whose = (body.get("machine", source.target.machine), body.get("job", source.job), body["run_id"])
        if whose != (source.target.machine, source.job, source.run_id):
            return None
        drill = Drill(
            source.run_id,
            ok=_flag(body["ok"]),
            checks=tuple(
                Check(
                    *(str(one["name"]), _flag(one["ok"]), str(one["expected"]), str(one["found"])),
                    asked=str(one.get("asked", "")),
                )
                for one in body["checks"]
            ),
            seconds=_finite(float(body["seconds"])),
            at=datetime.fromisoformat(body["at"]),
            position=_position(body.get("position")),
            undecided=str(body.get("undecided", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    contradicts = drill.ok and (drill.undecided or not all(check.ok for check in drill.checks))
    return None if contradicts or drill.at.tzinfo is None else drill


def _meaning(body: Mapping[str, Any]) -> bytes:
    """What is signed: the order of keys and the blanks of the file mean nothing."""
    return _SIGNED + hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).digest()


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _plain(position: Position) -> dict[str, Any]:
    return {"file": position.binlog_file, "offset": position.binlog_offset, "gtid": position.gtid}


def _position(told: Any) -> Position | None:
    if not isinstance(told, dict):
        return None
    file, offset, gtid = _name(told.get("file")), told.get("offset"), _name(told.get("gtid"))
    if file is None or not isinstance(offset, int):
        return None
    return Position(file, offset, gtid)


def _name(told: Any) -> str | None:
    return told if isinstance(told, str) and is_one_line(told) else None
