"""From a target back into a folder: compared before it is unpacked, marked incomplete until whole.

A run may have left several copies. They are tried in order, for each object by itself: what one of them has lost or
does not give, the next one may have. What an interruption leaves can be gone on with (`unfinished`).
"""

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.archive.frames import DAMAGED, Range
from backupd.archive.governor import Unhindered
from backupd.archive.index import INDEX_OBJECT, Index, Member, MemberKind
from backupd.archive.ondisk import differences, opened
from backupd.archive.parallel import side_by_side
from backupd.archive.restating import is_root
from backupd.archive.stream import BINLOG_OBJECT
from backupd.archive.unpack import Key, Manner, Unpacking, frames_in
from backupd.archive.unpack_progress import UnpackProgress
from backupd.host.filesystem import MORE_ROOM, require_no_way_out
from backupd.host.signals import shielded
from backupd.mysql.tablefiles import Table, TableFiles
from backupd.operations.restore.unfinished import Unfinished, occupied_bytes, resumable
from backupd.operations.restore.verify import manifest_of, reading_of
from backupd.targets import BackupSource
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    NotAsRecorded,
    NotHeld,
    TargetError,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.storage import Manifest, StoredObject

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

log = logging.getLogger(__name__)

_LEAST_INDEX = 64 << 20  # bytes that any index may unpack to
_INDEX_LINES = 4 << 10  # more for each file: a usual line has 200

SAVE_BYTES = 512 << 20  # of the tar streams, between two records of how far it is

_BESIDE = frozenset({INDEX_OBJECT, "options.tar.zst"})  # objects that are no part of the restored folder

_TOLD = 5  # differences, by name
_OTHERWISE = "something has changed it, or this file system cannot store it: restore into another folder"

Copied = Callable[[int, int], None]  # bytes of the tar streams: so far, in all


def restore(
    sources: Sequence[BackupSource],
    *,
    to: Path,
    identities: "Identities | None" = None,
    tables: Collection[Table] = (),
    copied: Copied = lambda _done, _total: None,
    confined: bool = True,
) -> Manifest:
    """Unpack a backup into an empty folder or mount point, which is made if it is not there.

    `sources` are copies of one run, the first of them preferred. When this returns, the folder is whole and durable,
    and what is in it is what was recorded (`archive.ondisk` says what is compared).
    When it is interrupted (`Cancelled`, a target that cannot be reached, the end of the process) the folder keeps what
    is durable, marked by `.backupd-incomplete`, and the same call continues from there. So does a folder in which
    something is not as recorded: the same call compares once more. After any other error it is as empty as before, but
    what an earlier call has left, or what is whole, is kept.

    With `tables`, only what a server with these tables needs is fetched. They are as the snapshot had them: a server
    has to recover them before they are of use. Where it is not `confined`, tar is bound by nothing but our judgement of
    what it is given.

    Raises:
        UsageError: the folder is not empty, or has no room; the backup is encrypted, and no identity opens it; there is
            no such table.
        Busy: another process restores into the folder.
        TargetError: there is no such backup, or no target that can be read.
        VerificationError: what is stored is not what was written, on any of the targets.
        NotAsRecorded: what is in the folder is not what was recorded, or cannot be compared.
    """
    manifest, readable = agreed(sources)
    key = key_of(manifest, identities)
    what = Unfinished(manifest.job, manifest.run_id, manifest.digest, tuple(sorted(map(str, tables))))
    parts = parts_with(tables, _index(readable, manifest, key), manifest) if tables else parts_of(manifest)
    needed, there = _unpacked_bytes(parts, manifest), occupied_bytes(to)
    if there:
        _require_free(to, needed - there)  # before the block: a refusal undoes nothing
    with resumable(to, what) as folder:
        if not there:
            _require_free(to, needed)
        work = _Work(
            *(readable, manifest, to, key, parts),
            copied=copied,
            confined=confined,
            begun=folder.begun,
            save=folder.save,
        )
        work.do()
        folder.unpacked(work.standings)
        _require_as_recorded(to, readable, manifest, key, tables)
    return manifest


def unpack_objects(
    sources: Sequence[BackupSource],
    manifest: Manifest,
    *,
    to: Path,
    identities: "Identities | None" = None,
    copied: Copied = lambda _done, _total: None,
    confined: bool = True,
) -> None:
    """Every object of the backup is unpacked, and stands there as recorded; `copied` is told the bytes so far, and all.

    The folder is one that nobody else can enter (`unfinished`).

    Raises:
        UsageError: the folder cannot take it; the backup is encrypted, and no identity opens it.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written, on any of the targets.
        NotAsRecorded: what is in the folder is not what was recorded, or cannot be compared.
    """
    key = key_of(manifest, identities)
    _Work(sources, manifest, to, key, parts_of(manifest), copied=copied, confined=confined).do()
    _require_as_recorded(to, sources, manifest, key)


def agreed(sources: Sequence[BackupSource]) -> tuple[Manifest, Sequence[BackupSource]]:
    """The manifest of the first copy that has one, and the copies from there on.

    Raises:
        TargetError, VerificationError: none has one; as the first of them says it.
    """
    errors: list[BackupdError] = []
    for i, source in enumerate(sources):
        try:
            return manifest_of(source), sources[i:]
        except (TargetError, VerificationError) as error:
            errors.append(error)
            _tell(source, error, another=i + 1 < len(sources))
    raise _gravest(errors)


def key_of(manifest: Manifest, identities: "Identities | None") -> Key | None:
    """What opens the backup; None where everybody can read it.

    Raises:
        UsageError: it is encrypted, and there is no identity, or not the right one.
    """
    if not any(stored.encrypted for stored in manifest.objects):
        return None
    recipients = ", ".join(manifest.recipients)
    if identities is None:
        raise UsageError(
            f"run {manifest.run_id} is encrypted for {recipients}",
            hint="pass the file with the identity of one of these: --identity FILE",
        )
    if not set(manifest.recipients) & set(identities.recipients):
        raise UsageError(
            f"none of the identities in {identities.source} can read run {manifest.run_id}: it is encrypted for"
            f" {recipients}",
            hint="`age-keygen -y FILE` prints the recipient of a file",
        )
    return Key(identities, manifest.recipients)


@dataclass(frozen=True, slots=True)
class WantedPart:
    """What is wanted of one object: these ranges of its tar stream; None is all."""

    stored: StoredObject
    wanted: tuple[Range, ...] | None = None

    @property
    def size(self) -> int:
        """Bytes of the tar stream."""
        return self.stored.plain_bytes if self.wanted is None else sum(end - begin for begin, end in self.wanted)


def parts_of(manifest: Manifest) -> tuple[WantedPart, ...]:
    """All that a restored folder consists of."""
    return tuple(WantedPart(stored) for stored in manifest.objects if stored.name.removesuffix(".age") not in _BESIDE)


def parts_with(tables: Collection[Table], listed: Index, manifest: Manifest) -> tuple[WantedPart, ...]:
    """What a server with these tables consists of, by the index of the backup's members.

    Raises:
        UsageError: there is no such table.
        VerificationError: the index does not fit the objects.
    """
    ranges: dict[str, list[Range]] = {}
    for name, member, chosen in _selected(listed, manifest, tables):
        wanted = ranges.setdefault(name, [])
        if chosen:
            _join(wanted, member, name)
    parts = []
    for part in parts_of(manifest):
        found = ranges.get(part.stored.name.removesuffix(".age"))
        if found and found[-1][1] > part.stored.plain_bytes:
            raise _misfit(part.stored.name)
        if found is None:  # nothing of it is known: all of it may be needed
            parts.append(part)
        elif found:
            parts.append(WantedPart(part.stored, tuple(found)))
    return tuple(parts)


def _selected(listed: Index, manifest: Manifest, tables: Collection[Table]) -> Iterator[tuple[str, Member, bool]]:
    """Each member with its object's name, and whether a server with these tables needs it.

    Raises:
        UsageError: there is no such table.
    """
    files = TableFiles(
        (member.name for _, member in listed.members()),
        datadir=manifest.datadir,
        lower_case=manifest.server.settings.get("lower_case_table_names", "0") != "0",
    )
    files.require(tables)
    members, named = tee(listed.members())
    chosen = files.selected((member.name for _, member in named), tables)
    return (
        (name, member, wanted or name == BINLOG_OBJECT) for (name, member), wanted in zip(members, chosen, strict=True)
    )


def _join(ranges: list[Range], member: Member, name: str) -> None:
    """The member's range is among them, as one with the last where it follows that."""
    begin, end = member.offset, member.offset + member.size
    last = ranges[-1][1] if ranges else 0
    if begin < last:
        raise _misfit(name)
    if ranges and begin == last:
        begin = ranges.pop()[0]
    ranges.append((begin, end))


def _misfit(name: str) -> VerificationError:
    return VerificationError(f"the index does not match {name}", hint=DAMAGED)


def _index(sources: Sequence[BackupSource], manifest: Manifest, key: Key | None) -> Index:
    """From the first copy that has it.

    Raises:
        UsageError: the backup has no index.
        VerificationError, TargetError: it cannot be read.
    """
    stored = next((each for each in manifest.objects if each.name.removesuffix(".age") == INDEX_OBJECT), None)
    if stored is None:
        raise UsageError(
            f"run {manifest.run_id} has no index of its members: single tables cannot be restored",
            hint="restore everything: omit --tables",
        )
    _require_modest_index(stored, manifest)
    errors: list[BackupdError] = []
    for i, source in enumerate(sources):
        try:
            return Index(frames_in(stored, reading_of(source, stored), key=key, governor=Unhindered()))
        except (TargetError, VerificationError) as error:
            errors.append(error)
            _tell(source, error, another=i + 1 < len(sources))
    raise _gravest(errors)


def _require_modest_index(stored: StoredObject, manifest: Manifest) -> None:
    """It unpacks to no more than lines of these files, and as many folders again, can be.

    Raises:
        VerificationError: it would.
    """
    files = sum(each.files for each in manifest.objects)
    if stored.plain_bytes > _LEAST_INDEX + files * _INDEX_LINES:
        raise VerificationError(
            f"the index of run {manifest.run_id} unpacks to {stored.plain_bytes} bytes: {files} files need far less",
            hint=DAMAGED,
        )


def _require_as_recorded(
    to: Path, sources: Sequence[BackupSource], manifest: Manifest, key: Key | None, tables: Collection[Table] = ()
) -> None:
    """What was unpacked stands there as the index has it; folders have their times, and the folder itself is opened.

    Raises:
        NotAsRecorded: something is different, or there is no index that could be read.
        NotHeld: every file is there and holds what was recorded; what is kept beside that is different.
        TargetError: it cannot be read now.
    """
    log.info("comparing the files in %s with the manifest", to)
    try:
        listed = _index(sources, manifest, key)
        if tables:
            members: Iterator[Member] = (member for _, member, wanted in _selected(listed, manifest, tables) if wanted)
        else:
            members = _every(listed, manifest)
        itself = next((member.recorded for _, member in listed.members() if is_root(member.name)), None)
        found = differences(to, members)
        first = tuple(islice(found, _TOLD))
        rest = [difference.only_beside for difference in found]
    except (VerificationError, UsageError) as error:
        raise NotAsRecorded(f"the files restored to {to} cannot be compared: {error.message}") from error
    if first:
        told = "; ".join((*map(str, first), *((f"and {len(rest)} more",) if rest else ())))
        kind = NotHeld if all((*(difference.only_beside for difference in first), *rest)) else NotAsRecorded
        raise kind(f"the files restored to {to} differ from the manifest: {told}", hint=_OTHERWISE)
    try:
        if itself is not None:
            opened(to, itself)
    except OSError as error:
        raise NotHeld(f"{to} cannot be set as recorded: {error.strerror}", hint=_OTHERWISE) from error


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
        found = told[part.stored.name.removesuffix(".age")]
        if found != part.stored.files:
            raise VerificationError(f"the index lists {found} of the {part.stored.files} files in {part.stored.name}")


def require_room(to: Path, manifest: Manifest) -> None:
    """Raise when the restored files cannot fit.

    Raises:
        UsageError: naming what is needed and what is free.
    """
    _require_free(to, unpacked_bytes(manifest))


def unpacked_bytes(manifest: Manifest) -> int:
    """What the files take once a server has run on them: it fills the hole in its redo log."""
    return _unpacked_bytes(parts_of(manifest), manifest)


def _unpacked_bytes(parts: Sequence[WantedPart], manifest: Manifest) -> int:
    snapshot = manifest.run.snapshot
    hole = max(snapshot.redo_left_out, 0) if snapshot is not None else 0
    return sum(part.size for part in parts) + hole


def _require_free(to: Path, needed: int) -> None:
    free = shutil.disk_usage(next(place for place in (to, *to.parents) if place.exists())).free
    if free < needed:
        raise UsageError(f"{to} has {free} bytes free, and the backup needs {needed}", hint=MORE_ROOM)


def _missing(parts: Sequence[WantedPart], begun: Mapping[str, UnpackProgress]) -> int:
    """Bytes of the tar streams that are not unpacked yet."""
    missing = 0
    for part in parts:
        standing = begun.get(part.stored.name, UnpackProgress())
        ranges = ((0, part.stored.plain_bytes),) if part.wanted is None else part.wanted
        missing += (
            0
            if standing.done
            else sum(end - max(begin, standing.offset) for begin, end in ranges if end > standing.offset)
        )
    return missing


@dataclass
class _Work:
    """The parts of one backup on their way into a folder, side by side."""

    sources: Sequence[BackupSource]
    manifest: Manifest
    to: Path
    key: Key | None
    parts: Sequence[WantedPart]
    copied: Copied
    confined: bool = True
    begun: Mapping[str, UnpackProgress] = field(default_factory=dict)
    save: Callable[[Mapping[str, UnpackProgress]], None] | None = None

    def __post_init__(self) -> None:
        self._now: dict[str, Unpacking] = {}
        self._total = sum(part.size for part in self.parts)
        self._before = self._total - _missing(self.parts, self.begun)
        self._saved_at = self._before
        self._same: dict[int, BackupdError | None] = {0: None}  # what is wrong with a copy's manifest, by its number
        self._asking = threading.Lock()

    def do(self) -> None:
        """Everything is unpacked, and nothing in the folder leads out of it; until it is opened it is ours alone."""
        largest_first = sorted(self.parts, key=lambda part: -part.size)
        try:
            side_by_side([self._task(part) for part in largest_first], idle=self._look)
        except (Cancelled, TargetError) as interrupted:
            with shielded():
                self._save_at_the_end(interrupted)
            raise
        try:
            require_no_way_out(self.to)
        except OSError as error:
            raise UsageError(f"{self.to} cannot be read: {error.strerror}", hint="check its disk") from error
        self.copied(self._total, self._total)

    def _look(self) -> None:
        done = min(self._total, self._before + sum(unpacking.fed for unpacking in tuple(self._now.values())))
        self.copied(done, self._total)
        if self.save is not None and done - self._saved_at >= SAVE_BYTES:
            self._saved_at = done
            self.save(self.standings)

    def _save_at_the_end(self, interrupted: BackupdError) -> None:
        if self.save is None:
            return
        try:
            self.save(self.standings)
        except UsageError as error:
            interrupted.add_note(error.message)

    @property
    def standings(self) -> Mapping[str, UnpackProgress]:
        """How far each object is."""
        return {**self.begun, **{name: unpacking.standing for name, unpacking in tuple(self._now.items())}}

    def _task(self, part: WantedPart) -> Callable[[Callable[[], None]], None]:
        return lambda require_wanted: self._unpack(part, Manner(_Wanted(require_wanted), confined=self.confined))

    def _unpack(self, part: WantedPart, manner: Manner) -> None:
        """The part is unpacked from the first copy that has it; a later one goes on where the one before ended."""
        name = part.stored.name
        begun = self.begun.get(name)
        errors: list[BackupdError] = []
        for i, source in enumerate(self.sources):
            try:
                self._require_same(i)
                unpacking = Unpacking(
                    part.stored, self.to, manner=manner, begun=begun, wanted=part.wanted, key=self.key
                )
                self._now[name] = unpacking
                return unpacking.run(reading_of(source, part.stored))
            except (TargetError, VerificationError) as error:
                errors.append(error)
                if name in self._now:
                    begun = self._now[name].standing
                _tell(source, error, another=i + 1 < len(self.sources))
        raise _gravest(errors)

    def _require_same(self, number: int) -> None:
        """This copy is one of the same backup, by its manifest.

        Raises:
            VerificationError: it is not.
            TargetError: it cannot be read.
        """
        with self._asking:
            if number not in self._same:
                self._same[number] = _difference(self.sources[number], self.manifest)
        wrong = self._same[number]
        if wrong is not None:
            raise wrong


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A governor that only ends the work once nobody waits for it."""

    require_wanted: Callable[[], None]

    def pace(self, size: int) -> None:  # noqa: ARG002
        self.require_wanted()


def _difference(source: BackupSource, manifest: Manifest) -> BackupdError | None:
    try:
        if manifest_of(source).objects == manifest.objects:
            return None
    except (TargetError, VerificationError) as error:
        return error
    return VerificationError(f"the copy on target {source.target.name} does not have the same objects", hint=DAMAGED)


def _tell(source: BackupSource, error: BackupdError, *, another: bool) -> None:
    log.warning(
        "target %s: %s%s", source.target.name, error.message, "; continuing with the next copy" if another else ""
    )


def _gravest(errors: Sequence[BackupdError]) -> BackupdError:
    """What is told where no copy could give it: that a target may come back, if one may; the others are notes on it."""
    chosen = next((error for error in errors if isinstance(error, TargetError)), errors[0])
    for error in errors:
        if error is not chosen:
            chosen.add_note(error.message)
    return chosen
