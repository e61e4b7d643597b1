"""Whether what was restored is what was recorded when the backup was taken, by the index of its members.

Knows: whose word counts (`archive.ondisk` says what is compared), and how much of a difference is told.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from backupd.archive.index import Index, Member, MemberKind, Recorded
from backupd.archive.ondisk import differences, opened
from backupd.archive.restating import PRIVATE, is_root
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.next_copy import AgreedCopies
from backupd.operations.restore.wanted_objects import index_of, parts_of, selected_members
from backupd.vocabulary.errors import NotAsRecorded, NotHeld, UsageError, VerificationError
from backupd.vocabulary.storage import MARKER, Manifest

log = logging.getLogger(__name__)

_TOLD = 5  # differences, by name
_OTHERWISE = "something has changed it, or this file system cannot store it: restore into another folder"


def require_as_recorded(to: Path, copies: AgreedCopies, tables: Collection[Table] = ()) -> Recorded | None:
    """What was unpacked stands there as the index has it; folders have their times.

    Returns what is recorded of the folder itself, for `open_as_recorded`: it is ours alone until nothing is left to do
    in it.

    Raises:
        NotAsRecorded: something is different, or there is no index that could be read.
        NotHeld: every file is there and holds what was recorded; what is kept beside that is different, or the folder
            itself could not be opened.
        TargetError: it cannot be read now.
    """
    manifest = copies.manifest
    log.info("comparing the files in %s with the manifest", to)
    try:
        listed = index_of(copies)
        if tables:
            members: Iterator[Member] = (
                member for _, member, wanted in selected_members(listed, manifest, tables) if wanted
            )
        else:
            members = _every(listed, manifest)
        itself = _itself(listed)
        found = differences(to, members)
        first = tuple(islice(found, _TOLD))
        rest = [difference.only_beside for difference in found]
    except (VerificationError, UsageError) as error:
        raise NotAsRecorded(f"the files restored to {to} cannot be compared: {error.message}") from error
    if first:
        told = "; ".join((*map(str, first), *((f"and {len(rest)} more",) if rest else ())))
        kind = NotHeld if all((*(difference.only_beside for difference in first), *rest)) else NotAsRecorded
        raise kind(f"the files restored to {to} differ from the manifest: {told}", hint=_OTHERWISE)
    _require_openable(to, itself)
    return itself


def recorded_itself(to: Path, copies: AgreedCopies) -> Recorded | None:
    """What is recorded of the folder itself; what is in it is not looked at.

    Raises:
        NotAsRecorded: there is no index that could be read.
        TargetError: the index cannot be read now.
    """
    try:
        return _itself(index_of(copies))
    except (VerificationError, UsageError) as error:
        raise NotAsRecorded(f"the files restored to {to} cannot be compared: {error.message}") from error


def open_as_recorded(to: Path, itself: Recorded | None) -> None:
    """Whoever was let into the folder may come in. They may change whatever root goes on with by its path.

    Raises:
        NotHeld: the folder cannot be so.
    """
    with _as_not_held(to):
        if itself is not None:
            opened(to, itself)


def _require_openable(to: Path, itself: Recorded | None) -> None:
    """Tried out on a folder in it that is gone afterwards: until it is opened, a server may have worked for hours."""
    if itself is None:
        return
    tried = to / f"{MARKER}.itself"
    with _as_not_held(to):
        with suppress(FileNotFoundError):
            tried.rmdir()  # of one that was killed
        tried.mkdir(mode=PRIVATE)
        try:
            opened(tried, itself)
        finally:
            tried.rmdir()


@contextmanager
def _as_not_held(to: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotHeld(f"{to} cannot be set as recorded: {error.strerror}", hint=_OTHERWISE) from error


def _itself(listed: Index) -> Recorded | None:
    return next((member.recorded for _, member in listed.members() if is_root(member.name)), None)


def _every(listed: Index, manifest: Manifest) -> Iterator[Member]:
    """All members that it tells of, which are as many files as were stored.

    Raises:
        VerificationError: it is silent about some: nobody could say what they should be.
    """
    told = Counter[str]()
    for name, member in listed.members():
        told[name] += member.recorded.kind is not MemberKind.FOLDER
        yield member
    for part in parts_of(manifest):
        found = told[part.stored.plain_name]
        if found != part.stored.files:
            raise VerificationError(f"the index lists {found} of the {part.stored.files} files in {part.stored.name}")
