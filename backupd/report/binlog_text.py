"""How a binlog archive looks to a person: what can be restored, how it stands, what was found in it.

Knows: that names, statements and reasons are a stranger's, and that each is shown on one line.
"""

from collections.abc import Sequence
from datetime import datetime

from backupd.report.binlog_archive import ArchivedOnTarget, ArchiveListing, ArchiveReport, SpooledSegments
from backupd.report.binlog_timeline import archive_timeline
from backupd.report.words import age, columns, count, duration, in_ascii, many, size
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace, ChangeKind, LoggedTransaction, TableChange
from backupd.vocabulary.escaping import on_one_line, some
from backupd.vocabulary.instants import shown

_CHANGES = 4  # of a transaction that are told
_STATEMENT = 60  # characters of one that are told
_GAPS = 3  # the latest, that are told one by one


def listing_text(listing: ArchiveListing, *, width: int = 72, ascii_only: bool = False) -> str:
    """What can be restored: a time line, a table, what is stored."""
    last = listing.last_moment
    if last is None:
        parts = [_nothing(listing)]
    else:
        drawn = archive_timeline(listing.reach, listing.backups, at=listing.at, width=width, ascii_only=ascii_only)
        ago = age((listing.at - last).total_seconds())
        parts = [drawn, _moments(listing), f"the last moment that can be restored: {shown(last)} ({ago} ago)"]
    parts += [_targets(listing.targets), *([_left(listing.left)] if listing.left else []), _spool(listing.spool)]
    return "\n\n".join([*parts, *([_gaps(listing.gaps)] if listing.gaps else [])])


def archive_report_text(report: ArchiveReport) -> str:
    """How far the archive of one job is."""
    rows = [
        ("receiver:", "running" if report.receiving else "none is running: nothing is archived now"),
        ("archived up to:", _up_to(report.archived, report.received_at, report.at)),
        ("last transaction:", "-" if report.last_at is None else shown(report.last_at)),
        ("the server is at:", _server(report)),
        *((f"on {target.target}:", _up_to(target.until, target.received_at, report.at)) for target in report.targets),
        ("spool:", _spooled(report.spool)),
        ("gaps:", "none" if not report.gaps else f"{len(report.gaps)}, the last: {_gap(report.gaps[-1])}"),
    ]
    return f"job {report.job}\n{columns(rows)}"


def transactions_table(transactions: Sequence[LoggedTransaction], *, ascii_only: bool = False) -> str:
    """Transactions, a line each; GTIDs where the server gives any."""
    with_gtids = any(transaction.gtid for transaction in transactions)
    head = ["COMMITTED (UTC)", *(["GTID"] if with_gtids else []), "POSITION", "CHANGES", "STATEMENT"]
    rows = [
        [
            _time(transaction.committed_at),
            *([transaction.gtid or "-"] if with_gtids else []),
            f"{transaction.start.file}:{transaction.start.offset}-{transaction.end.offset}",
            some([_change(change) for change in transaction.changes], _CHANGES, "; ") or "nothing",
            _beginning(transaction.statement),
        ]
        for transaction in transactions
    ]
    table = columns([head, *rows])
    return in_ascii(table) if ascii_only else table


def next_command(job: str, transactions: Sequence[LoggedTransaction]) -> str:
    """What is typed to have everything back that was committed before one of these; which one, a person decides."""
    first = transactions[0]
    moment = f"--before-gtid {first.gtid}" if first.gtid else f"--to-position {_place(first.start)}"
    if len(transactions) > 1:
        moment = "--before-gtid GTID" if first.gtid else "--to-position FILE:OFFSET, where its POSITION begins"
    return f"backupd restore --to DIR --job {job} {moment}"


def _nothing(listing: ArchiveListing) -> str:
    if any(target.segments for target in listing.targets) or listing.spool.segments:
        return (
            "nothing can be restored to a moment yet: no good backup tells where it is in the binlog\n"
            "a backup without a lock tells it once a drill has found it"
        )
    return "nothing is archived yet, and there is no backup to begin with"


def _moments(listing: ArchiveListing) -> str:
    reach = listing.reach
    found = [(one.since, one.until, f"from backup {one.backup.run_id}") for one in reach.stretches]
    found += [(hole.since, hole.until, f"NOT to be restored: {hole.reason}") for hole in reach.holes]
    rows = [(_time(since), _time(until), duration((until - since).total_seconds()), said)
            for since, until, said in sorted(found)]  # fmt: skip
    return columns([("FROM (UTC)", "TO (UTC)", "LENGTH", "HOW"), *rows], right=(2,))


def _targets(targets: Sequence[ArchivedOnTarget]) -> str:
    rows = [
        (one.target, count(one.segments), size(one.bytes_stored), _place(one.until), _second(one.received_at))
        for one in targets
    ]
    return columns([("TARGET", "SEGMENTS", "SIZE", "STORED UP TO", "RECEIVED (UTC)"), *rows], right=(1, 2))


def _left(targets: Sequence[str]) -> str:
    return (
        f"no longer configured: {', '.join(targets)}; segments stored only there cannot be restored until the target is"
        " configured again"
    )


def _spool(spool: SpooledSegments) -> str:
    return f"in the spool, for a target that lacks it: {_spooled(spool)}"


def _spooled(spool: SpooledSegments) -> str:
    if not spool.segments:
        return "nothing waits"
    return f"{many(spool.segments, 'segment')}, {size(spool.bytes)} of {size(spool.limit)}"


def _gaps(gaps: Sequence[ArchiveGap]) -> str:
    told = [f"{many(len(gaps), 'gap')} in the archive{', the latest' if len(gaps) > _GAPS else ''}:"]
    return "\n".join([*told, *(f"  {_gap(gap)}" for gap in gaps[-_GAPS:])])


def _gap(gap: ArchiveGap) -> str:
    since = "from its beginning on" if gap.last_at is None else f"behind {shown(gap.last_at)}"
    until = "" if gap.resumed_at is None else f", archived again from {shown(gap.resumed_at)} on"
    return on_one_line(f"{since}: {gap.reason}{until}")


def _server(report: ArchiveReport) -> str:
    server = report.server
    if server.end is None:
        return f"not known: {server.error}"
    if server.behind_bytes is None:
        why = "nothing is archived" if report.archived is None else "it does not go on where the archive ends"
        return f"{_place(server.end)}: {why}"
    if not server.behind_bytes:
        return f"{_place(server.end)}: all of it is archived"
    seconds = duration(report.behind_seconds)
    return f"{_place(server.end)}: {size(server.behind_bytes)} are not archived yet, of the last {seconds} or less"


def _up_to(place: BinlogPlace | None, received_at: datetime | None, now: datetime) -> str:
    if place is None or received_at is None:
        return "nothing"
    return f"{_place(place)}, received {age((now - received_at).total_seconds())} ago"


def _place(place: BinlogPlace | None) -> str:
    return "-" if place is None else f"{place.file}:{place.offset}"


def _time(at: datetime | None) -> str:
    return "-" if at is None else shown(at).removesuffix(" UTC")


def _second(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _change(change: TableChange) -> str:
    rows = f" ({many(change.rows, 'row')})" if change.rows else ""
    if change.table:
        return f"{change.kind} {change.schema}.{change.table}{rows}"
    return f"{change.kind} schema {change.schema}" if change.kind is not ChangeKind.OTHER else change.kind.value + rows


def _beginning(statement: str) -> str:
    said = " ".join(statement.split())
    return said if len(said) <= _STATEMENT else f"{said[: _STATEMENT - 1]}…"
