"""From a target back into a folder: digests checked while unpacking, marked incomplete until whole."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from backupd.archive.unpack import unpack
from backupd.errors import UsageError
from backupd.interruption import shielded
from backupd.model import Manifest
from backupd.targets import Target

INCOMPLETE = ".backupd-incomplete"  # in the folder while it is not whole
_OWN_TO_A_FILE_SYSTEM = {"lost+found"}  # what an empty mount point may hold


def restore(
    job: str,
    run_id: str,
    target: Target,
    *,
    to: Path,
    copied: Callable[[int, int], None] = lambda _done, _total: None,
) -> Manifest:
    """Unpack a backup into an empty folder or mount point, which is made if it is not there.

    When this returns, the folder is whole and durable. When it raises, it is as empty as before; should even that fail
    (the host goes down), the marker file `.backupd-incomplete` says so.

    Raises:
        UsageError: the folder is not empty.
        TargetError: there is no such backup, or the target cannot be read.
        VerificationError: what is stored is not what was written.
    """
    manifest = target.manifest(job, run_id)
    with filling(to, {"run": run_id, "job": job}):
        unpack_objects(job, run_id, target, manifest, to=to, copied=copied)
    return manifest


@contextmanager
def filling(to: Path, what: Mapping[str, str]) -> Iterator[bool]:
    """For the length of the block the folder is marked as incomplete; afterwards it is durable, or empty as before.

    The block is told whether the folder had to be made.

    Raises:
        UsageError: the folder is not empty, or cannot be written.
    """
    made = _require_empty(to)
    try:
        marker = _mark_incomplete(to, what)
        yield made
        os.sync()
        marker.unlink()
    except BaseException:
        with shielded():
            _empty(to, remove=made)
        raise


def unpack_objects(
    job: str,
    run_id: str,
    target: Target,
    manifest: Manifest,
    *,
    to: Path,
    copied: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Every object of the backup is unpacked; `copied` is told the bytes so far, and those of all.

    Raises:
        TargetError: the target cannot be read.
        VerificationError: what is stored is not what was written.
    """
    total = sum(stored.plain_bytes for stored in manifest.objects)
    done = 0
    for stored in manifest.objects:
        with target.reading(job, run_id, stored.name) as chunks:
            unpack(chunks, stored, into=to)
        done += stored.plain_bytes
        copied(done, total)


def _require_empty(to: Path) -> bool:
    """True when the folder had to be made."""
    try:
        entries = {entry.name for entry in to.iterdir()}
    except FileNotFoundError:
        try:
            to.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise UsageError(f"{to} cannot be made: {error.strerror}", hint="choose another folder") from error
        return True
    except OSError as error:
        raise UsageError(f"{to} cannot be read: {error.strerror}", hint="name a folder") from error
    if INCOMPLETE in entries:
        raise UsageError(f"{to} holds a restore that was cut short", hint=f"empty it first: rm -r {to}")
    if entries - _OWN_TO_A_FILE_SYSTEM:
        raise UsageError(f"{to} is not empty", hint="restore into an empty folder or mount point")
    return False


def _mark_incomplete(to: Path, what: Mapping[str, str]) -> Path:
    """The marker, which is there until the folder is whole."""
    marker = to / INCOMPLETE
    try:
        marker.write_text(json.dumps(what) + "\n")
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint="choose another folder") from error
    return marker


def _empty(to: Path, *, remove: bool) -> None:
    for entry in to.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in _OWN_TO_A_FILE_SYSTEM:
                shutil.rmtree(entry)
        else:
            entry.unlink()
    if remove:
        to.rmdir()


def require_room(to: Path, manifest: Manifest) -> None:
    """Raise when the restored files cannot fit.

    Raises:
        UsageError: naming what is needed and what is free.
    """
    needed = sum(stored.plain_bytes for stored in manifest.objects)
    free = shutil.disk_usage(next(place for place in (to, *to.parents) if place.exists())).free
    if free < needed:
        raise UsageError(
            f"{to} has {free} bytes free, and the backup needs {needed}", hint="choose a folder with more room"
        )
