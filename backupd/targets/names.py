"""What things are called on every target that has folders or keys: MACHINE/JOB/RUN/OBJECT, `manifest.json` among them.

MACHINE/owner/NUMBER.json are a machine's owner records (`chain`): no job is called `owner`. MACHINE/JOB/binlog/SEGMENT
is a job's binlog archive: no backup is called `binlog`.
"""

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

from backupd.vocabulary.errors import AlreadyThere, TargetError
from backupd.vocabulary.identity import is_name

MANIFEST = "manifest.json"
OWNER = "owner"
BINLOG = "binlog"
_PARTIAL = ".partial"
_NUMBER = re.compile(r"\.[0-9]+$")

_JOB = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")  # as the configuration wants them
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")  # as the command line wants them
_OBJECT = re.compile(r"((data-[0-9]+|binlog|options)\.tar|index\.jsonl)\.zst(\.age)?")
_RECORD = re.compile(r"(?P<number>[0-9]{10,18})\.json")
_RECORD_OR_PART = re.compile(r"\.?(?P<number>[0-9]{10,18})\.json(\.[0-9a-f]+\.partial)?")

_SEGMENT_NAME = r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}-[0-9]{10}\.binlog"  # CHAIN-NUMBER.binlog
_SEGMENT = re.compile(_SEGMENT_NAME)
_SEGMENT_PART = re.compile(rf"\.(?P<name>{_SEGMENT_NAME})\.[0-9a-f]+\.partial")

_TRIAL = ".backupd-writable-"
TRIAL_SECONDS = 3600.0  # within which whoever tries a target has removed what it wrote, or has died

_PROOF = re.compile(r"proof-[0-9]{8}T[0-9]{6}Z\.json")


def part(name: str) -> str:
    """One component of a path, and never one that leads elsewhere.

    Raises:
        TargetError: it would.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise TargetError(f"{name!r} cannot be a name on a target", hint="a name has no slash")
    return name


def machine_part(name: str) -> str:
    """The folder of a machine.

    Raises:
        TargetError: no machine is called so.
    """
    if not is_machines(name):
        raise TargetError(
            f"{name!r} is not a machine's name",
            hint=("a machine's name is HOSTNAME-xxxxxxxx: see `backupd identity show`"),
        )
    return name


def job_part(name: str) -> str:
    """The folder of a job.

    Raises:
        TargetError: it would lead elsewhere, or to the owner records.
    """
    if name == OWNER:
        raise TargetError(
            f"a job cannot be called {OWNER!r}", hint="a machine's owner records are in the folder of that name"
        )
    return part(name)


def backup_part(name: str) -> str:
    """The folder of a backup that is to be removed.

    Raises:
        TargetError: it would lead elsewhere, or to the binlog archive.
    """
    if name == BINLOG:
        raise TargetError(
            f"a backup cannot be called {BINLOG!r}", hint="the binlog archive is in the folder of that name"
        )
    return part(name)


def object_part(backup_id: str, name: str) -> str:
    """What may be written into a backup's folder, or into that of the binlog archive.

    Raises:
        TargetError: it would lead elsewhere, or be no segment among segments.
    """
    return segment_part(name) if backup_id == BINLOG else part(name)


def segment_part(name: str) -> str:
    """A segment of the binlog archive.

    Raises:
        TargetError: none is called so.
    """
    if not is_segments(name):
        raise TargetError(f"{name!r} is not a segment's name", hint="a segment is called CHAIN-NUMBER.binlog")
    return name


def is_machines(folder: str) -> bool:
    """Whether it can be a machine's: on a shared storage other people's folders lie there as well."""
    return is_name(folder)


def is_jobs(folder: str) -> bool:
    """Whether it can be a job's: owner records lie there as well, and what file systems and storages put there."""
    return _JOB.fullmatch(folder) is not None and folder != OWNER


def is_backups(folder: str) -> bool:
    """Whether it can be a backup's: a storage may put folders of its own into every folder (@eaDir, .trash)."""
    return _RUN.fullmatch(folder) is not None and folder != BINLOG


def is_objects(name: str) -> bool:
    """Whether backupd calls an object of a backup so, the manifest apart. What is called otherwise is a person's."""
    return _OBJECT.fullmatch(name) is not None


def is_segments(name: str) -> bool:
    """Whether backupd calls a segment of the binlog archive so. Such names are in order as their chains were begun."""
    return _SEGMENT.fullmatch(name) is not None


def partial_segment(name: str, token: str) -> str:
    """What a segment is called while it is being written, in its job's folder: each writer has a `token` of its own."""
    return partial(f"{segment_part(name)}.{token}")


def segment_of(unfinished: str) -> str | None:
    """Which segment it was to become; None where it is called otherwise."""
    found = _SEGMENT_PART.fullmatch(unfinished)
    return found["name"] if found else None


def already_there(name: str, where: str) -> AlreadyThere:
    """This segment is there already, and stays what it is."""
    return AlreadyThere(
        f"{where} already has {name}",
        hint="a segment is never overwritten: has another machine the same name and catalogue?",
    )


def proof_name(at: datetime) -> str:
    """What the result of a drill of that instant is called beside the backup that was drilled."""
    return f"proof-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}.json"


def is_proof(name: str) -> bool:
    """Whether it is the name of such a result: what may be attached to a finished backup."""
    return _PROOF.fullmatch(name) is not None


def not_attachable(name: str, place: str) -> TargetError:
    """Nothing of this name can be attached to what is at this place."""
    return TargetError(
        f"{name} cannot be attached to {place}",
        hint="only the results of drills are, each once, and only to a finished backup",
    )


def already_finished(place: str) -> TargetError:
    """Nothing more is written to what is at this place."""
    return TargetError(f"{place} already has a finished backup", hint="a run never writes to another run's folder")


def unfinished_backup(backup_id: str, target: str) -> TargetError:
    """There is something of this backup on the target, and it is none."""
    return TargetError(
        f"the backup {backup_id} on target {target} is unfinished: it has no manifest",
        hint="it cannot be restored; choose another backup from `backupd history`. If it was good once, something has"
        " removed its manifest: find out what, before it removes more",
    )


def is_ours(name: str) -> bool:
    """Whether backupd has given this name to something in a backup's folder; only such things are ever removed."""
    whole = _NUMBER.sub("", name[1 : -len(_PARTIAL)]) if is_partial(name) else name
    return whole == MANIFEST or is_objects(whole) or is_proof(whole)


def sizes_told(entries: Iterable[tuple[str, int]], *, where: str) -> dict[str, int]:
    """The names of a listing and their bytes; one that is told twice alike, as pages of a listing may, counts once.

    Raises:
        TargetError: one is told twice, in different sizes: nobody knows which of them is read.
    """
    sizes: dict[str, int] = {}
    for name, size in entries:
        if sizes.setdefault(name, size) != size:
            raise TargetError(
                f"{where} lists {name!r} twice: as {sizes[name]} bytes and as {size}",
                hint="try again; if this continues, do not rely on this storage: it does not know its own contents",
            )
    return sizes


def trials(machine: str) -> str:
    """How the names begin under which a machine tries whether a target can be written to."""
    return f"{_TRIAL}{machine_part(machine)}-"


def new_trial(machine: str) -> str:
    """One that nothing has."""
    return f"{trials(machine)}{secrets.token_hex(4)}"


def is_left_trial(name: str, machine: str, age_seconds: float) -> bool:
    """Whether a process of this machine wrote it, tried no more, and did not get to removing it."""
    ours = re.fullmatch(rf"{re.escape(trials(machine))}[0-9a-f]{{8}}({re.escape(_PARTIAL)})?", name)
    return ours is not None and age_seconds > TRIAL_SECONDS


def partial(name: str, number: int | None = None) -> str:
    """What an object is called while it is being written, or that part of it where its parts are objects."""
    return f".{part(name)}{'' if number is None else f'.{number}'}{_PARTIAL}"


def is_partial(name: str) -> bool:
    """Whether it is the name of something that is being written."""
    return name.startswith(".") and name.endswith(_PARTIAL)


def record_name(number: int) -> str:
    """What the owner record of this number is called."""
    return f"{number:010}.json"


def partial_record(name: str, token: str) -> str:
    """What an owner record is called while it is being written: each writer has a `token` of its own."""
    return partial(f"{name}.{token}")


def record_number(name: str, *, or_part: bool = False) -> int | None:
    """The number of an owner record, `or_part` of one that was never finished; None where it is called otherwise."""
    found = (_RECORD_OR_PART if or_part else _RECORD).fullmatch(name)
    return int(found["number"]) if found else None
