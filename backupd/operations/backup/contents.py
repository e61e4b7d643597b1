"""What of a snapshot is stored, under which name, and what the manifest says of it.

Knows: where datadir, binlog and relay logs stand in the archive.
"""

import logging
import os
import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from backupd.archive import redo
from backupd.archive.listing import Listing
from backupd.archive.redo import RedoCut
from backupd.archive.sources import BinlogCut, Exclusions
from backupd.mysql.binlogs import committed_end, listed, needed_by_recovery
from backupd.mysql.facts import binlog_header
from backupd.operations.backup.live_binlogs import LiveBinlogs
from backupd.operations.backup.preflight import Ready
from backupd.vocabulary.errors import ServerError, SnapshotError
from backupd.vocabulary.penalty import Losses, Verdict
from backupd.vocabulary.records import RunDetails, SnapshotFacts
from backupd.vocabulary.run_section import (
    BillSection,
    LockSection,
    LossesSection,
    RunSection,
    SnapshotSection,
    StageSection,
    VerdictSection,
)
from backupd.vocabulary.servers import Flavour, LockReceipt, Position
from backupd.vocabulary.storage import Manifest, StoredObject

_REDO_LOG = "ib_logfile0"
# Of MariaDB: recoveries from cut logs were compared with others on 10.11.19 and 11.8.9 (tests/contract/test_redo.py).
_CUT_BY = frozenset({(10, 11), (11, 8)})
_BINLOG_FOLDER = PurePosixPath(".backupd-binlog")  # for a binlog that lives outside the archived folder


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BinlogTail:
    """The binlog that a backup ends with, and those before it without which it cannot be recovered."""

    position: Position
    earlier: tuple[str, ...] = ()  # file names; only of an image that was taken without a lock


def tail_in_image(ready: Ready, mounted: Path) -> BinlogTail:
    """What the image itself says: its newest binlog, of which nobody knows yet up to where it counts.

    Raises:
        SnapshotError: the image has no binlog that could be read.
    """
    index = _below(ready, _index(ready))
    if ready.facts.binlog_basename is None or index is None:
        return BinlogTail(Position())
    try:
        names = listed(mounted / index)
        if ready.facts.flavour is Flavour.MARIADB:
            names = needed_by_recovery(mounted / _binlog_folder(ready), names)
    except ServerError as error:
        raise SnapshotError(f"the snapshot's binlog: {error.message}", hint=error.hint) from error
    return BinlogTail(Position(binlog_file=names[-1]), names[:-1])


def exclusions(ready: Ready, tail: BinlogTail, *, include_binlogs: bool) -> Exclusions:
    """Which files of the archived folder are not stored."""
    relay_log = ready.facts.settings.get("relay_log_basename")
    return Exclusions(
        datadir=_datadir(ready),
        binlog=_below(ready, ready.facts.binlog_basename),
        relay_log=_below(ready, Path(relay_log)) if relay_log else None,
        named_binlog=tail.position.binlog_file,
        include_binlogs=include_binlogs,
        kept_binlogs=frozenset(tail.earlier),
    )


def earlier_stored(ready: Ready, tail: BinlogTail, listing: Listing) -> BinlogTail:
    """The tail with every binlog before the named one that is in the listing: the index is to tell of each.

    Raises:
        SnapshotError: one is missing without which the backup cannot be recovered.
    """
    basename, named = ready.facts.binlog_basename, tail.position.binlog_file
    if basename is None or named is None or _below(ready, basename) is None:
        return tail
    folder = os.fsencode(f"{_binlog_folder(ready)}/".removeprefix("./"))
    wanted = re.compile(re.escape(folder + os.fsencode(basename.name)) + rb"\.(\d{6,})")
    found = (wanted.fullmatch(entry.name) for entry in listing.entries)
    numbers = sorted((int(match[1]), os.fsdecode(match[0].removeprefix(folder))) for match in found if match)
    earlier = tuple(name for number, name in numbers if number < _number(named))
    if missing := [name for name in tail.earlier if name not in earlier]:
        raise SnapshotError(
            f"the snapshot has no binlog {missing[0]}, which its recovery needs, says {basename.parent / named}",
            hint=(
                "check the server's binlog index, or set lock.strategy to anything but none: the others need no"
                " earlier binlogs"
            ),
        )
    return replace(tail, earlier=earlier)


def redo_cut(ready: Ready, mounted: Path, *, told_lsn: int | None) -> RedoCut | None:
    """Of the redo log in the image what recovery needs, if nothing was written beyond `told_lsn`; None: all of it."""
    facts = ready.facts
    home = facts.datadir / facts.settings.get("innodb_log_group_home_dir", "")
    log_file = _below(ready, home / _REDO_LOG)
    if told_lsn is None or log_file is None:
        return None
    if facts.flavour is not Flavour.MARIADB or facts.version_number[:2] not in _CUT_BY:
        return None
    try:
        return redo.redo_cut(mounted, str(log_file), told_lsn=told_lsn)
    except redo.NotCut as why:
        log.info("storing the whole redo log: %s", why)
        return None


def live_folder(ready: Ready) -> tuple[Path, Path] | None:
    """The index and the folder of a binlog that the snapshot does not have; None where it has it, or there is none."""
    basename, index = ready.facts.binlog_basename, _index(ready)
    if basename is None or index is None or _below(ready, basename) is not None:
        return None
    return index, basename.parent


def binlog_cut(ready: Ready, tail: BinlogTail, mounted: Path, *, live: LiveBinlogs | None = None) -> BinlogCut | None:
    """The binlog that the position names, to be stored up to the recorded offset; None where there is no position.

    It is read from the snapshot where the volume has it, else from the live file that is held open (`live`): the server
    only appends to it, so its first bytes are the same. Where no offset is known, all that the snapshot has of it; of
    MariaDB's, all whole transactions.

    Raises:
        SnapshotError: the snapshot does not have it.
    """
    basename, position = ready.facts.binlog_basename, tail.position
    arcname = _binlog_name(ready, position)
    if basename is None or position.binlog_file is None or arcname is None:
        return None
    file = mounted / arcname if live is None else live.file(position.binlog_file)
    recorded = position.binlog_offset
    end = _whole(ready, file) if recorded is None else recorded + binlog_header(ready.facts)
    cut = BinlogCut(file=file, offset=end, arcname=arcname, earlier=tail.earlier)
    return cut if live is None else replace(cut, whole=live.earlier, folder_like=mounted / _datadir(ready))


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
        machine=run.machine,
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
        run=run_section(run),
    )


def run_section(run: RunDetails) -> RunSection:
    """What its manifest tells of the run."""
    return RunSection(
        started_at=run.started_at,
        phases={phase.value: seconds for phase, seconds in run.phases.items()},
        verdict=None if run.verdict is None else _verdict(run.verdict),
        lock=None if run.lock is None else _lock(run.lock),
        snapshot=None if run.snapshot is None else _snapshot(run.snapshot),
        attention=run.attention,
        throughput=tuple(StageSection(each.stage, each.bytes, each.busy_seconds) for each in run.throughput),
        bill=None if run.bill is None else BillSection(**asdict(run.bill)),
        losses=None if run.losses is None else _losses(run.losses),
    )


def _verdict(verdict: Verdict) -> VerdictSection:
    return VerdictSection(verdict.outcome.value, verdict.reason.value, verdict.detail, verdict.waited_seconds)


def _lock(lock: LockReceipt) -> LockSection:
    return LockSection(**asdict(lock))


def _losses(losses: Losses) -> LossesSection:
    return LossesSection(**{**asdict(losses), "counted": losses.counted.value})


def _snapshot(snapshot: SnapshotFacts) -> SnapshotSection:
    return SnapshotSection(
        name=snapshot.name,
        volume=snapshot.volume,
        layout=snapshot.layout.value,
        stripes=snapshot.stripes,
        stripe_size=snapshot.stripe_size,
        chunk_size=snapshot.chunk_size,
        cow_size=snapshot.cow_size,
        cow_used_peak=snapshot.cow_used_peak,
        pool=snapshot.pool,
        chunk_reason=snapshot.chunk_reason,
        cow_extended=snapshot.cow_extended,
        size_reason=snapshot.size_reason,
        redo_left_out=snapshot.redo_left_out,
        taken_at=snapshot.taken_at,
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


def _number(binlog: str) -> int:
    return int(binlog.rpartition(".")[2])


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
    """A live file's path, relative to the archived folder; None where it is elsewhere."""
    if path is None:
        return None
    resolved = path.parent.resolve() / path.name
    return PurePosixPath(resolved.relative_to(ready.root)) if resolved.is_relative_to(ready.root) else None
