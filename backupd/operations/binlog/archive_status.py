"""How the archive of a job's binlog stands: asked of the catalogue, of the claims of this host, and of the server."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, JobConfig
from backupd.host.claims import Claims
from backupd.mysql.binlog.source import BinlogSource, binlog_source, bytes_behind
from backupd.mysql.session import connector
from backupd.operations.binlog.placed_backups import looked_on, placed_backups
from backupd.operations.binlog.start_points import following_place
from backupd.operations.binlog.tools import binlog_of
from backupd.operations.configured_servers import login_of
from backupd.policy.binlog_chain import ChainRow, PlacedBackup, is_same_server, order
from backupd.policy.reach import reach
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.report.binlog_archive import (
    ArchivedOnTarget,
    ArchiveListing,
    ArchiveReport,
    ServerLogEnd,
    SpooledSegments,
)
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from backupd.vocabulary.errors import ConfigurationError, ServerError


def archive_listing(
    job: JobConfig, catalogue: Catalogue, configured: Collection[str], *, target: str | None, now: datetime
) -> ArchiveListing:
    """What can be restored of the job: from all targets that are configured, or by what is on one alone.

    Raises:
        ConfigurationError: its binlog is not archived.
        CatalogueError: the catalogue cannot be read.
    """
    gaps, there = catalogue.archive_gaps(job.name), _targets(job, catalogue)
    backups, rows = _outline(job.name, catalogue, looked_on(catalogue, job.name, configured, target=target))
    return ArchiveListing(
        job=job.name,
        at=now,
        reach=reach(backups, rows, gaps, now=now),
        backups=backups,
        gaps=tuple(gaps),
        targets=there,
        spool=_spool(job, catalogue),
        left=tuple(one.target for one in there if one.segments and one.target not in configured),
    )


def _outline(
    job: str, catalogue: Catalogue, targets: Collection[str] | None
) -> tuple[tuple[PlacedBackup, ...], Sequence[ChainRow]]:
    """Good backups, the oldest first, and the rows of the archive."""
    if targets is None:
        outline = catalogue.archive_outlines([job]).get(job)
        if outline is not None:
            return outline.backups, outline.rows
    runs = catalogue.runs_with_backup(job, targets=targets)
    backups = tuple(backup for backup in reversed(placed_backups(runs)) if backup.good)
    with catalogue.archive_search(job, backups, targets=targets) as archive:
        return backups, archive.rows


def archive_report(
    job: JobConfig, catalogue: Catalogue, claims: Claims, source: Callable[[], BinlogSource], *, now: datetime
) -> ArchiveReport:
    """How far the job's archive is. `source` asks the server; that it does not answer is told as well.

    Raises:
        ConfigurationError: its binlog is not archived.
        CatalogueError: the catalogue cannot be read.
    """
    last = catalogue.latest_segment(job.name)
    return ArchiveReport(
        job=job.name,
        at=now,
        receiving=claims.is_archiving(job.name),
        archived=None if last is None else BinlogPlace(last.file, last.end),
        last_at=None if last is None else last.last_at,
        received_at=None if last is None else last.received_at,
        server=_server(source, last),
        targets=_targets(job, catalogue),
        spool=_spool(job, catalogue),
        gaps=tuple(catalogue.archive_gaps(job.name)),
    )


def server_log(configuration: Configuration, job: JobConfig) -> BinlogSource:
    """The binlog of the job's server as it is now.

    Raises:
        ServerError: the server does not answer.
        ConfigurationError: its password cannot be had.
    """
    with connector(login_of(configuration.hosts[job.host]))() as session:
        return binlog_source(session)


def _targets(job: JobConfig, catalogue: Catalogue) -> tuple[ArchivedOnTarget, ...]:
    """The job's, and those that it had before and that have segments still."""
    stored = catalogue.stored_segments(job.name)
    found = []
    for target in dict.fromkeys([*job.targets, *sorted(stored)]):
        count, size = stored.get(target, (0, 0))
        last = catalogue.latest_segment(job.name, target=target) if count else None
        until = None if last is None else BinlogPlace(last.file, last.end)
        found.append(ArchivedOnTarget(target, count, size, until, None if last is None else last.received_at))
    return tuple(found)


def _spool(job: JobConfig, catalogue: Catalogue) -> SpooledSegments:
    return SpooledSegments(*catalogue.waiting_segments(job.name), limit=binlog_of(job).spool_limit)


def _server(source: Callable[[], BinlogSource], last: BinlogSegment | None) -> ServerLogEnd:
    try:
        found = source()
    except (ServerError, ConfigurationError) as error:
        return ServerLogEnd(None, None, error.message)
    if found.end is None:
        return ServerLogEnd(None, None, "the server's binlog is off")
    if last is None or not is_same_server(last.origin, found.origin):
        return ServerLogEnd(found.end, None)
    return ServerLogEnd(found.end, _behind(following_place(last), found, found.end))


def _behind(archived: BinlogPlace, source: BinlogSource, end: BinlogPlace) -> int | None:
    """Bytes of the server's log that lie behind what is archived; None where that is not in its log any more.

    The file that follows one that has ended is begun a moment after that.
    """
    if archived.offset <= FIRST_OFFSET and order(end) < order(archived):
        return 0
    if not source.has(archived):
        return None
    return bytes_behind(source.files, archived, end)
