"""The results of drills beside the backups that were drilled: what a rebuilt catalogue knows of them.

Knows: the document (`"schema": 1`), its name, and that it is signed as the manifest is: of everything else in it.
What is read comes from the storage: a document that cannot be parsed or believed, is of another run or has another
schema, is passed over and told; keys that are not known mean nothing.

A proof host drills the backups of other machines, and signs with its own key. Its document says besides which copy it
is of: the target and the digest of the manifest. So it is believed of no other copy, and of no other manifest.
"""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from backupd.catalogue.store import Catalogue
from backupd.operations.ownership import Ownership
from backupd.policy.signing import Signer, is_signed
from backupd.targets import BackupSource
from backupd.targets.names import is_proof, proof_name
from backupd.vocabulary.errors import TargetAway, TargetError
from backupd.vocabulary.escaping import is_one_line, some
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.records import Check, Drill, DrilledMoment, RunDetails
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Signature

log = logging.getLogger(__name__)

_SCHEMA = 1  # another one means something else
_MOST_BYTES = 1 << 20
_MOST_PROOFS = 1000  # the newest ones: whoever owns the storage can put there as many as he likes
_TOLD = 3  # of those that are ignored
_LARGEST = 1 << 63  # no offset is so large
_SIGNED = b"backupd drill 1\0"  # before the digest that is signed: such a signature is of nothing else


def leave_proof(sources: Sequence[BackupSource], drill: Drill, ownership: Ownership, *, host: str) -> tuple[str, ...]:
    """The drill's result lies beside each of these copies; in words, where it could not be written.

    Nothing is written beside another machine's. A good one only beside a copy that gave all of the backup: it is no
    proof of one that may be broken. Where several gave parts of it, it lies beside none.
    """
    here, signer = ownership.require_here().name, ownership.signer()
    failed, whole = [], frozenset[str]().union(*(source.gave for source in sources))
    for source in sources:
        gave_all = source.was_read.is_set() and not source.failures and source.gave == whole
        if source.target.machine != here or (drill.ok and not gave_all):
            continue
        try:
            ownership.require_ours(source.target)
            content = to_text(drill, source, signer=signer, host=host).encode()
            source.target.attach(source.job, source.run_id, proof_name(drill.at), content)
        except TargetError as error:
            failed.append(
                f"the result of the drill could not be stored on target {source.target.name}; a rebuilt catalogue"
                f" will not have it: {error.message}"
            )
    return tuple(failed)


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ProofHosts:
    """The proof hosts that are believed, by their public keys, and what their proofs of one copy must be of."""

    keys: frozenset[str] = frozenset()
    digest: str | None = None  # of the copy's manifest; None: nobody asks
    since: datetime = _FIRST  # the backup is no older
    now: datetime = _LAST


_NO_HOSTS = ProofHosts()


class _Ignored(Exception):
    """Why a document counts for nothing."""


def leave_proof_of_host(
    source: BackupSource, drill: Drill, *, digest: str, by: str, server: str, signer: Signer
) -> None:
    """The result of a proof host's drill lies beside the copy that was drilled, whoever's it is.

    `digest` is that of the manifest that was drilled, `by` the proof host's name, `server` the version of its server.

    Raises:
        TargetError: it could not be written.
    """
    about = {"target": source.target.name, "manifest": digest, "by": by, "server": server}
    content = to_text(drill, source, signer=signer, **about).encode()
    source.target.attach(source.job, source.run_id, proof_name(drill.at), content)


def take_in_proofs(
    source: BackupSource, run: RunDetails, catalogue: Catalogue, keys: frozenset[str], *, now: datetime
) -> tuple[Drill, ...]:
    """What proof hosts with these keys found out about this copy is in the catalogue; what was new, oldest first.

    A failed one is a drill that failed: nothing is removed for it. What is ignored is logged. Without keys nothing is
    read.

    Raises:
        TargetError: the target cannot be read.
        CatalogueError: it cannot be written.
    """
    backup = run.backup_on(source.target.name)
    if not keys or backup is None:
        return ()
    hosts = ProofHosts(keys, backup.manifest_digest, run.started_at, now)
    known = frozenset(proof_name(drill.at) for drill in run.drills)
    taken = []
    for name, _, drill, by in _believed(source, hosts, known=known):
        if not catalogue.take_in_drill(drill, proof=name, target=source.target.name, by=by):
            continue
        log.log(
            logging.WARNING if drill.failed else logging.INFO,
            "%s says of run %s on target %s: %s",
            *(name, run.run_id, source.target.name, _outcome(drill)),
        )
        taken.append(drill)
    return tuple(taken)


def last_tried(source: BackupSource, keys: frozenset[str]) -> datetime | None:
    """When a proof host with one of these keys last drilled the copy, whatever it found; None: never.

    What others have written there, its own machine among them, is not told.

    Raises:
        TargetError: the target cannot be read.
    """
    hosts = ProofHosts(keys, now=datetime.now(UTC))
    newest = _believed(source, hosts, level=logging.DEBUG, newest_first=True)
    return next((drill.at for _, _, drill, _ in newest), None)  # the others are not even read


def proofs_of(source: BackupSource, hosts: ProofHosts = _NO_HOSTS) -> tuple[Drill, ...]:
    """The results of drills that lie beside a backup and can be understood and believed, oldest first.

    Raises:
        TargetError: the target cannot be read.
    """
    return tuple(drill for drill, _ in told_proofs_of(source, hosts))


def told_proofs_of(source: BackupSource, hosts: ProofHosts) -> tuple[tuple[Drill, dict[str, str | list[str]]], ...]:
    """As `proofs_of`, each with what the audit chain is to say of it: where it was found, and which machine did it,
    the backup's own or a proof host.

    Raises:
        TargetError: the target cannot be read.
    """
    return tuple(
        (drill, {"proof": name, "target": source.target.name, "by": by or source.target.machine})
        for name, _, drill, by in _believed(source, hosts)
    )


def proofs_to_copy(source: BackupSource) -> list[tuple[str, bytes]]:
    """The results of its machine's drills that lie beside a backup and are believed: by their names, as they are there.

    Raises:
        TargetError: the target cannot be read.
    """
    return [(name, content) for name, content, _, _ in _believed(source, _NO_HOSTS)]


def _believed(
    source: BackupSource,
    hosts: ProofHosts,
    *,
    known: frozenset[str] = frozenset(),
    level: int = logging.WARNING,
    newest_first: bool = False,
) -> Iterator[tuple[str, bytes, Drill, str]]:
    """The name and the content of each but the known, what it says, and the proof host that says it (empty: the machine
    whose backup it is), in the order of their times, which their names tell. The others are told in one line.

    A single one that cannot be read is passed over as well: anybody who writes there could plant it.
    """
    target, job, run_id = source.target, source.job, source.run_id
    listed = sorted((name, size) for name, size in target.objects(job, run_id).items() if is_proof(name))
    listed = listed[-_MOST_PROOFS:]
    ignored = []
    for name, size in reversed(listed) if newest_first else listed:
        if name in known:
            continue
        if size > _MOST_BYTES:
            ignored.append(f"{name} (it has {size} bytes, more than any)")
            continue
        try:
            with target.reading(job, run_id, name, size=size) as chunks:
                content = b"".join(map(bytes, chunks))
            drill, by = from_text(content, source, hosts, name=name)
        except TargetAway:
            raise
        except TargetError as error:
            ignored.append(f"{name} ({error.message})")
        except _Ignored as why:
            ignored.append(f"{name} ({why})")
        else:
            yield name, content, drill, by
    if ignored:
        log.log(
            level,
            "next to backup %s on target %s these drill results do not count: %s",
            *(run_id, target.name, some(ignored, _TOLD, "; ")),
        )


def _outcome(drill: Drill) -> str:
    if drill.undecided:
        return f"undecided: {drill.undecided}"
    return "proven" if drill.ok else f"NOT proven: {', '.join(check.name for check in drill.checks if not check.ok)}"


def to_text(drill: Drill, source: BackupSource, *, signer: Signer, **about: str) -> str:
    """The document, ending with a line feed."""
    position = None if drill.position is None else _plain(drill.position)
    whose = {"machine": source.target.machine, "job": source.job, **about}
    told = {"at": drill.at.isoformat(), "position": position, "moment": _told_moment(drill.moment)}
    body = {"schema": _SCHEMA, **asdict(drill), **told, **whose}
    return json.dumps({**body, "signature": asdict(signer.sign(_meaning(body)))}, indent=2) + "\n"


def from_text(text: bytes, source: BackupSource, hosts: ProofHosts, *, name: str) -> tuple[Drill, str]:
    """What was written, and the name of the proof host that wrote it; empty where its own machine did, or it has none.

    Raises:
        _Ignored: it is not of this backup, or cannot be parsed or believed.
    """
    try:
        body = json.loads(text)
        told = body.pop("signature", None)
        signature = None if told is None else Signature(str(told["key"]), str(told["value"]))
        if body["schema"] != _SCHEMA:
            raise _Ignored("a newer backupd wrote it")
        drill = _drill(body, source)
        _require_believed(body, signature, source, hosts)
        if not source.trust.believes(signature):
            _require_of_copy(body, drill, source, hosts)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _Ignored("it cannot be parsed") from error
    if name != proof_name(drill.at):
        raise _Ignored("its name is that of another one")
    return drill, _name(body.get("by")) or ""


def _require_believed(
    body: Mapping[str, Any], signature: Signature | None, source: BackupSource, hosts: ProofHosts
) -> None:
    known = source.trust.believes(signature) or (signature is not None and signature.key in hosts.keys)
    if not known:
        raise _Ignored("it is not signed by a trusted key")
    if signature is not None and not is_signed(signature, _meaning(body)):
        raise _Ignored("it was changed after it was signed")


def _require_of_copy(body: Mapping[str, Any], drill: Drill, source: BackupSource, hosts: ProofHosts) -> None:
    """What a proof host signed is of this copy, and of a time that can be."""
    if (body["machine"], body["job"]) != (source.target.machine, source.job):
        raise _Ignored("it is of another backup")
    if body["target"] != source.target.name:
        raise _Ignored(f"it is of the copy on target {body['target']!r:.60}")
    if hosts.digest is not None and body["manifest"] != hosts.digest:
        raise _Ignored("it is of another manifest than the one on record")
    if drill.at > hosts.now:
        raise _Ignored(f"it is dated in the future: {to_the_second(drill.at)}")
    if drill.at < hosts.since:
        raise _Ignored(f"it is older than the backup: {to_the_second(drill.at)}")


def _drill(body: Mapping[str, Any], source: BackupSource) -> Drill:
    """What the document says, if it is of this backup; a KeyError and its like where it says nothing of the kind."""
    whose = (body.get("machine", source.target.machine), body.get("job", source.job), body["run_id"])
    if whose != (source.target.machine, source.job, source.run_id):
        raise _Ignored("it is of another backup")
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
        moment=_moment(body.get("moment")),
    )
    if drill.at.tzinfo is None or (drill.ok and (drill.undecided or not all(check.ok for check in drill.checks))):
        raise _Ignored("it contradicts itself")
    if drill.ok and not drill.checks:
        raise _Ignored("it has checked nothing")
    return drill


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
    if file is None or not isinstance(offset, int) or not 0 <= offset < _LARGEST:
        return None
    return Position(file, offset, gtid)


def _told_moment(moment: DrilledMoment | None) -> dict[str, Any] | None:
    return None if moment is None else {"name": moment.name, "at": None if moment.at is None else moment.at.isoformat()}


def _moment(told: Any) -> DrilledMoment | None:
    """What a drill of a moment says; a backup's own is proven by no such drill, however little is understood of it.

    Raises:
        ValueError, KeyError, TypeError: it makes no sense.
    """
    if told is None:
        return None
    name, at = _name(told["name"]), told.get("at")
    if name is None:
        raise ValueError(f"{told['name']!r:.80} is not the name of a moment")
    when = None if at is None else datetime.fromisoformat(at)
    if when is not None and when.tzinfo is None:
        raise ValueError(f"{at!r:.80} has no zone")
    return DrilledMoment(name, when)


def _name(told: Any) -> str | None:
    return told if isinstance(told, str) and is_one_line(told) else None
