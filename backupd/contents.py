"""What of a snapshot is stored, under which name, and what the manifest says of it.

Knows: where datadir, binlog and relay logs stand in the archive. Refuses to know how files become an object. Pure.
"""

from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from backupd.archive.sources import BinlogCut, Exclusions
from backupd.model import Manifest, Position, StoredObject
from backupd.mysql.facts import binlog_header
from backupd.preflight import Ready

_BINLOG_FOLDER = PurePosixPath(".backupd-binlog")  # for a binlog that lives outside the archived folder


def exclusions(ready: Ready, position: Position, *, include_binlogs: bool) -> Exclusions:
    """Which files of the archived folder are not stored."""
    relay_log = ready.facts.settings.get("relay_log_basename")
    return Exclusions(
        datadir=_datadir(ready),
        binlog=_below(ready, ready.facts.binlog_basename),
        relay_log=_below(ready, Path(relay_log)) if relay_log else None,
        named_binlog=position.binlog_file,
        include_binlogs=include_binlogs,
    )


def binlog_cut(ready: Ready, position: Position, mounted: Path) -> BinlogCut | None:
    """The binlog that the position names, to be stored up to the recorded offset; None where there is no position.

    It is read from the snapshot where the volume has it, else from its own, live folder: the server only appends to it,
    so its first bytes are the same.
    """
    basename = ready.facts.binlog_basename
    if basename is None or position.binlog_file is None or position.binlog_offset is None:
        return None
    below = _below(ready, basename)
    folder = below.parent if below is not None else _BINLOG_FOLDER
    live = basename.parent / position.binlog_file
    return BinlogCut(
        file=live if below is None else mounted / folder / position.binlog_file,
        offset=position.binlog_offset + binlog_header(ready.facts),
        arcname=folder / position.binlog_file,
    )


def manifest(
    ready: Ready,
    *,
    run_id: str,
    job: str,
    host: str,
    objects: tuple[StoredObject, ...],
    position: Position,
    lsn: int | None,
    canary: str | None,
) -> Manifest:
    """What is written last, and is enough to start a server on what was restored."""
    cut = binlog_cut(ready, position, Path())
    return Manifest(
        run_id=run_id,
        job=job,
        host=host,
        created_at=datetime.now(UTC),
        objects=objects,
        server=ready.facts,
        position=position,
        lsn=lsn,
        layout=ready.volume.layout,
        volume=ready.volume.full_name,
        datadir=str(_datadir(ready)),
        binlog=None if cut is None else str(cut.arcname),
        canary=canary,
    )


def _datadir(ready: Ready) -> PurePosixPath:
    """Where the datadir is in the archive; the server's own name for it may be a link to where it is."""
    return PurePosixPath(ready.facts.datadir.resolve().relative_to(ready.root))


def _below(ready: Ready, path: Path | None) -> PurePosixPath | None:
    """A live file's path, relative to the archived folder; None where it lies elsewhere."""
    if path is None:
        return None
    resolved = path.parent.resolve() / path.name
    return PurePosixPath(resolved.relative_to(ready.root)) if resolved.is_relative_to(ready.root) else None
