"""From a target back into a folder: compared before it is unpacked, marked incomplete until whole.

A run may have left several copies, which are tried in order for each object by itself (`next_copy`). What an
interruption leaves can be gone on with (`unfinished`).
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.archive.index import Recorded
from backupd.archive.parallel import side_by_side
from backupd.archive.unpack import Unpacking, UnpackOptions
from backupd.archive.unpack_progress import UnpackProgress
from backupd.host.exhaustion import told_as_exhausted
from backupd.host.filesystem import MORE_ROOM, require_no_way_out, share_that_stays_free
from backupd.host.signals import shielded
from backupd.mysql.relocation import Relocation, owner_of
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.as_recorded import open_as_recorded, require_as_recorded
from backupd.operations.restore.next_copy import AgreedCopies, ObjectCopy, agreed, content_of
from backupd.operations.restore.unfinished import Filling, filling, resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.operations.restore.wanted_objects import (
    WantedPart,
    bytes_of_tables,
    index_of,
    parts_of,
    parts_with,
    table_files,
)
from backupd.targets import BackupSource
from backupd.vocabulary.errors import BackupdError, Cancelled, HostExhausted, TargetError, UsageError
from backupd.vocabulary.storage import MARKER, Manifest
from backupd.vocabulary.units import compared_sizes, rounded_size

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

SAVE_BYTES = 512 << 20  # of the tar streams, between two records of how far it is

_GROWTH = 10  # a log makes the files larger by this part of it, beside the room that it frees

_TellCopied = Callable[[int, int], None]  # bytes of the tar streams: so far, in all


def restore(
    sources: Sequence[BackupSource],
    *,
    to: Path,
    identities: "Identities | None" = None,
    tables: Collection[Table] = (),
    copied: _TellCopied = lambda _done, _total: None,
    confined: bool = True,
    keeps: bool = True,
    staging: bool = False,
) -> Manifest:
    """Unpack a backup into an empty folder or mount point, which is made if it is not there.

    `sources` are copies of one run, the first of them preferred. When this returns, the folder is whole and durable,
    and what is in it is what was recorded (`archive.ondisk` says what is compared).
    When it is interrupted (`Cancelled`, a target that cannot be reached, a host without memory, the end of the process)
    the folder keeps what is durable, marked by `.backupd-incomplete`, and the same call continues from there. So does a
    folder in which something is not as recorded: the same call compares once more. After any other error it is as empty
    as before, but what an earlier call has left, or what is whole, is kept. Unless it `keeps` that, any error leaves
    the folder so.

    With `tables`, only what a server with these tables needs is fetched. They are as the snapshot had them: a server
    has to recover them before they are of use. Where it is not `confined`, tar is bound by nothing but our judgement of
    what it is given. `staging` is as for `require_room`.

    Raises:
        UsageError: the folder is not empty, or has no room; the backup is encrypted, and no identity opens it; there is
            no such table.
        Busy: another process restores into the folder.
        TargetError: there is no such backup, or no target that can be read.
        VerificationError: what is stored is not what was written, on any of the targets.
        NotAsRecorded: what is in the folder is not what was recorded, or cannot be compared.
    """
    with filled(
        *(sources, to, identities), tables=tables, copied=copied, confined=confined, keeps=keeps, staging=staging
    ) as (manifest, _):
        return manifest


@contextmanager
def filled(
    sources: Sequence[BackupSource],
    to: Path,
    identities: "Identities | None",
    *,
    tables: Collection[Table],
    copied: _TellCopied,
    confined: bool,
    keeps: bool = True,
    staging: bool = False,
    exporting: bool = False,
) -> Iterator[tuple[Manifest, Filling]]:
    """The same; within the block the folder is filled, marked still, and closed to others. Where a server has worked in
    it in an earlier block, it is filled anew. With `exporting` there is room for the tables once more.

    Raises:
        As `restore`.
    """
    manifest, readable = agreed(sources, identities)
    copies = AgreedCopies(readable, manifest, identities)
    what = Unfinished(manifest.job, manifest.run_id, content_of(manifest), tuple(sorted(map(str, tables))))
    listed = index_of(copies) if tables else None
    parts = parts_of(manifest) if listed is None else parts_with(tables, listed, manifest)
    needed, there = _unpacked_bytes(parts, manifest), occupied_bytes(to)
    if exporting and listed is not None:
        needed += bytes_of_tables(tables, listed, manifest)
    if there:
        _require_free(to, needed - there, staging=staging)  # before the block: a refusal undoes nothing
    with resumable(to, what, keeps=keeps) as folder:
        if not there:
            _require_free(to, needed, staging=staging)
        if folder.is_spoilt:
            folder.emptied()
        itself = fill(folder, copies, parts, to=to, tables=tables, copied=copied, confined=confined)
        yield manifest, folder
        open_as_recorded(to, itself)


def fill(
    folder: Filling,
    copies: AgreedCopies,
    parts: Sequence[WantedPart],
    *,
    to: Path,
    tables: Collection[Table] = (),
    copied: _TellCopied = lambda _done, _total: None,
    confined: bool = True,
) -> Recorded | None:
    """The parts are unpacked, from where an earlier restore has come to, and stand in the folder as recorded.

    Returns what is recorded of the folder itself, which still nobody else can enter.

    Raises:
        UsageError, TargetError, VerificationError, NotAsRecorded: as `restore`.
    """
    work = _Work(copies, to, parts, copied=copied, confined=confined, begun=folder.begun, save=folder.save)
    work.do()
    if tables:
        _make_schemas(to, copies)
    folder.unpacked(work.progress)
    return require_as_recorded(to, copies, tables)


def _make_schemas(to: Path, copies: AgreedCopies) -> None:
    """Every schema has its folder, if only an empty one: in them MariaDB's recovery makes the files of tables that are
    younger than the last checkpoint. Where it cannot make one, it ends there, and leaves out wanted ones behind it.
    """
    manifest = copies.manifest
    copy = Relocation(to, manifest.datadir, manifest.server.datadir)
    datadir = copy.datadir
    try:
        owner = owner_of(copy)
        for schema in table_files(index_of(copies), manifest).schemas:
            folder = datadir / schema
            if not folder.exists():
                folder.mkdir(mode=0o700)
                if os.geteuid() == 0:
                    os.chown(folder, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise UsageError(f"no folder can be made in {datadir}: {error.strerror}", hint=MORE_ROOM) from error


def unpack_objects(
    sources: Sequence[BackupSource],
    manifest: Manifest,
    *,
    to: Path,
    identities: "Identities | None" = None,
    copied: _TellCopied = lambda _done, _total: None,
    confined: bool = True,
) -> Recorded | None:
    """Every object of the backup is unpacked, and stands there as recorded; `copied` is told the bytes so far, and all.

    The folder is one that nobody else can enter (`unfinished`). Returns what is recorded of that itself.

    Raises:
        UsageError: the folder cannot take it; the backup is encrypted, and no identity opens it.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written, on any of the targets.
        NotAsRecorded: what is in the folder is not what was recorded, or cannot be compared.
    """
    copies = AgreedCopies(sources, manifest, identities)
    _Work(copies, to, parts_of(manifest), copied=copied, confined=confined).do()
    return require_as_recorded(to, copies)


@contextmanager
def restore_at(
    mount_point: Path,
    sources: Sequence[BackupSource],
    manifest: Manifest,
    *,
    identities: "Identities | None" = None,
    copied: _TellCopied = lambda _done, _total: None,
    confined: bool = True,
) -> Iterator[None]:
    """The backup is unpacked into a new file system before the block, and open to its server after it.

    Raises:
        As `unpack_objects`. An interrupted one is not continued: its file system goes.
    """
    with filling(mount_point, {"run": manifest.run_id, "job": manifest.job}):
        itself = unpack_objects(
            sources, manifest, to=mount_point, identities=identities, copied=copied, confined=confined
        )
        yield
        open_as_recorded(mount_point, itself)


def require_room(to: Path, manifest: Manifest, *, there: int = 0, log: int = 0, staging: bool = False) -> None:
    """Raise when the restored files cannot fit; bytes of them are `there` already, and so many of a `log` are applied
    to them. In the `staging` folder a share has to stay free: by default the catalogue lies beside it.

    Raises:
        UsageError: naming what is needed and what is free.
    """
    growth = log // _GROWTH  # its relay logs go as they are applied, while the tables grow
    _require_free(to, unpacked_bytes(manifest) - there + log + growth, staging=staging)


def occupied_bytes(to: Path) -> int:
    """What an unfinished restore takes of the folder's disk: of a file that was cut short what is there of it, too.

    0 where the folder is not marked. What cannot be read is not counted.
    """
    blocks = 0
    with suppress(OSError):
        if (to / MARKER).exists():
            for folder, _, files in os.walk(to):
                blocks += sum((Path(folder) / name).lstat().st_blocks for name in files)
    return blocks * 512


def unpacked_bytes(manifest: Manifest) -> int:
    """What the files take once a server has run on them: it fills the hole in its redo log."""
    return _unpacked_bytes(parts_of(manifest), manifest)


def _unpacked_bytes(parts: Sequence[WantedPart], manifest: Manifest) -> int:
    snapshot = manifest.run.snapshot
    hole = max(snapshot.redo_left_out, 0) if snapshot is not None else 0
    return sum(part.size for part in parts) + hole


def _require_free(to: Path, needed: int, *, staging: bool = False) -> None:
    usage = shutil.disk_usage(next(place for place in (to, *to.parents) if place.exists()))
    stays = share_that_stays_free(usage.total) if staging else 0
    if usage.free < needed + stays:
        left, wanted = compared_sizes(usage.free, needed)
        beside = f"; {rounded_size(stays)} must stay free" if stays else ""
        raise UsageError(f"{to} has {left} free, and the backup needs {wanted}{beside}", hint=MORE_ROOM)


def _missing(parts: Sequence[WantedPart], begun: Mapping[str, UnpackProgress]) -> int:
    """Bytes of the tar streams that are not unpacked yet."""
    missing = 0
    for part in parts:
        progress = begun.get(part.stored.plain_name, UnpackProgress())
        ranges = ((0, part.stored.plain_bytes),) if part.wanted is None else part.wanted
        missing += (
            0
            if progress.done
            else sum(end - max(begin, progress.offset) for begin, end in ranges if end > progress.offset)
        )
    return missing


@dataclass
class _Work:
    """The parts of one backup on their way into a folder, side by side."""

    copies: AgreedCopies
    to: Path
    parts: Sequence[WantedPart]
    copied: _TellCopied
    confined: bool = True
    begun: Mapping[str, UnpackProgress] = field(default_factory=dict)
    save: Callable[[Mapping[str, UnpackProgress]], None] | None = None

    def __post_init__(self) -> None:
        self._now: dict[str, Unpacking] = {}
        self._total = sum(part.size for part in self.parts)
        self._before = self._total - _missing(self.parts, self.begun)
        self._saved_at = self._before

    def do(self) -> None:
        """Everything is unpacked, and nothing in the folder leads out of it; until it is opened it is ours alone."""
        largest_first = sorted(self.parts, key=lambda part: -part.size)
        try:
            with told_as_exhausted("unpacking"):
                side_by_side([self._task(part) for part in largest_first], idle=self._look)
        except (Cancelled, HostExhausted, TargetError) as interrupted:
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
            self.save(self.progress)

    def _save_at_the_end(self, interrupted: BackupdError) -> None:
        if self.save is None:
            return
        try:
            self.save(self.progress)
        except UsageError as error:
            interrupted.add_note(error.message)

    @property
    def progress(self) -> Mapping[str, UnpackProgress]:
        """How far each object is."""
        return {**self.begun, **{name: unpacking.progress for name, unpacking in tuple(self._now.items())}}

    def _task(self, part: WantedPart) -> Callable[[Callable[[], None]], None]:
        return lambda require_wanted: self._unpack(part, UnpackOptions(_Wanted(require_wanted), confined=self.confined))

    def _unpack(self, part: WantedPart, options: UnpackOptions) -> None:
        """The part is unpacked from the first copy that has it; a later one goes on where the one before ended."""
        name = part.stored.plain_name

        def unpack(copy: ObjectCopy) -> None:
            begun = self._now[name].progress if name in self._now else self.begun.get(name)
            self._now[name] = Unpacking(
                copy.stored, self.to, options=options, begun=begun, wanted=part.wanted, key=copy.key
            )
            self._now[name].run(copy.reading)

        self.copies.first_given(part.stored, unpack)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A governor that only ends the work once nobody waits for it."""

    require_wanted: Callable[[], None]

    def pace(self, size: int) -> None:  # noqa: ARG002
        self.require_wanted()
