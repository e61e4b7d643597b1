"""What of a snapshot is stored, under which name, and what the manifest says of it.

Knows: where datadir, binlog and relay logs stand in the archive. Refuses to know how files become an object.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from backupd.archive.sources import BinlogCut, Exclusions
from backupd.errors import ServerError, SnapshotError
from backupd.model import Flavour, Manifest, Position, RunDetails, StoredObject
from backupd.mysql.binlogs import committed_end, listed, needed_by_recovery
from backupd.mysql.facts import binlog_header
from backupd.preflight import Ready

_BINLOG_FOLDER = PurePosixPath(".backupd-binlog")  # for a binlog that lives outside the archived folder


@dataclass(frozen=True, slots=True)
class Standing:
    """The binlog that a backup ends with, and those before it without which it cannot be recovered."""

    position: Position
    earlier: tuple[str, ...] = ()  # file names; only of an image that was taken without a lock


def standing_in_image(ready: Ready, mounted: Path) -> Standing:
    """What the image itself says: its newest binlog, of which nobody knows yet up to where it counts.

    Raises:
        SnapshotError: the image has no binlog that could be read.
    """
    index = _below(ready, _index(ready))
    if ready.facts.binlog_basename is None or index is None:
        return Standing(Position())
    try:
        names = listed(mounted / index)
        if ready.facts.flavour is Flavour.MARIADB:
            names = needed_by_recovery(mounted / _binlog_folder(ready), names)
    except ServerError as error:
        raise SnapshotError(f"the snapshot's binlog: {error.message}", hint=error.hint) from error
    return Standing(Position(binlog_file=names[-1]), names[:-1])


def exclusions(ready: Ready, standing: Standing, *, include_binlogs: bool) -> Exclusions:
    """Which files of the archived folder are not stored."""
    relay_log = ready.facts.settings.get("relay_log_basename")
    return Exclusions(
        datadir=_datadir(ready),
        binlog=_below(ready, ready.facts.binlog_basename),
        relay_log=_below(ready, Path(relay_log)) if relay_log else None,
        named_binlog=standing.position.binlog_file,
        include_binlogs=include_binlogs,
        kept_binlogs=frozenset(standing.earlier),
    )


def binlog_cut(ready: Ready, standing: Standing, mounted: Path) -> BinlogCut | None:
    """The binlog that the position names, to be stored up to the recorded offset; None where there is no position.

    It is read from the snapshot where the volume has it, else from its own, live folder: the server only appends to it,
    so its first bytes are the same. Where no offset is known, all that the snapshot has of it; of MariaDB's, all whole
    transactions.

    Raises:
        SnapshotError: the snapshot does not have it.
    """
    basename, position = ready.facts.binlog_basename, standing.position
    arcname = _binlog_name(ready, position)
    if basename is None or position.binlog_file is None or arcname is None:
        return None
    live = basename.parent / position.binlog_file
    file = live if _below(ready, basename) is None else mounted / arcname
    recorded = position.binlog_offset
    end = _whole(ready, file) if recorded is None else recorded + binlog_header(ready.facts)
    return BinlogCut(file=file, offset=end, arcname=arcname, earlier=standing.earlier)


def manifest(
    ready: Ready,
    run: RunDetails,
    *,
    objects: tuple[StoredObject, ...],
    canary: str | None,
    locked: bool,
    recipients: tuple[str, ...],
    audit_head: str,
) -> Manifest:
    """What is written last, and is enough to start a server on what was restored, and to know the run by."""
    position = run.position or Position()
    binlog = _binlog_name(ready, position)
    return Manifest(
        run_id=run.run_id,
        job=run.job,
        host=run.host,
        created_at=datetime.now(UTC),
        objects=objects,
        server=ready.facts,
        position=position,
        lsn=run.lock.lsn if run.lock is not None else None,
        layout=ready.volume.layout,
        volume=ready.volume.full_name,
        datadir=str(_datadir(ready)),
        binlog=None if binlog is None else str(binlog),
        canary=canary,
        locked=locked,
        filesystem=ready.mount.filesystem,
        recipients=recipients,
        audit_head=audit_head,
        run=run,
    )


def _datadir(ready: Ready) -> PurePosixPath:
    """Where the datadir is in the archive; the server's own name for it may be a link to where it is."""
    return PurePosixPath(ready.facts.datadir.resolve().relative_to(ready.root))


def _binlog_name(ready: Ready, position: Position) -> PurePosixPath | None:
    """In the archive; None where there is no position."""
    return None if position.binlog_file is None else _binlog_folder(ready) / position.binlog_file


def _binlog_folder(ready: Ready) -> PurePosixPath:
    below = _below(ready, ready.facts.binlog_basename)
    return below.parent if below is not None else _BINLOG_FOLDER


def _whole(ready: Ready, binlog: Path) -> int:
    """How much of a binlog in the image counts, in bytes."""
    try:
        return committed_end(binlog) if ready.facts.flavour is Flavour.MARIADB else binlog.stat().st_size
    except (OSError, ServerError) as error:
        raise SnapshotError(f"the snapshot's binlog could not be read: {error}") from error


def _index(ready: Ready) -> Path | None:
    """The live server's; beside its binlogs unless it says otherwise."""
    basename, told = ready.facts.binlog_basename, ready.facts.settings.get("log_bin_index")
    if basename is None:
        return None
    return ready.facts.datadir / told if told else basename.with_name(f"{basename.name}.index")


def _below(ready: Ready, path: Path | None) -> PurePosixPath | None:
    """A live file's path, relative to the archived folder; None where it lies elsewhere."""
    if path is None:
        return None
    resolved = path.parent.resolve() / path.name
    return PurePosixPath(resolved.relative_to(ready.root)) if resolved.is_relative_to(ready.root) else None
