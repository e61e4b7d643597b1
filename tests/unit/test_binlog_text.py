"""A binlog archive as a person sees it: the time line, what can be restored, how it stands, what was found."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.mysql.binlog.source import BinlogSource, ServerBinlog
from backupd.operations.binlog.archive_status import _behind
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Hole, Reach, RestorableStretch
from backupd.report.binlog_archive import (
    ArchivedOnTarget,
    ArchiveListing,
    ArchiveReport,
    ServerLogEnd,
    SpooledSegments,
)
from backupd.report.binlog_text import archive_report_text, listing_text, next_command, transactions_table
from backupd.report.binlog_timeline import archive_timeline
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace, ChangeKind, LoggedTransaction, TableChange
from tests.binlog_segments import BEGAN, CHAIN, FIRST
from tests.hostile_words import HOSTILE, faults

HOUR = timedelta(hours=1)
PLACE = BinlogPlace("binlog.000007", 4711)
NOTHING_WAITS = SpooledSegments(0, 0, 1 << 30)


def backup(number: int, hours: float) -> PlacedBackup:
    return PlacedBackup(f"run-{number}", PLACE, "", BEGAN + hours * HOUR)


ONE, TWO = backup(1, 0), backup(2, 7)
REACH = Reach(
    (
        RestorableStretch(ONE, CHAIN, BEGAN, BEGAN + 4 * HOUR),
        RestorableStretch(TWO, CHAIN, BEGAN + 7 * HOUR, BEGAN + 10 * HOUR),
    ),
    (Hole(BEGAN + 4 * HOUR, BEGAN + 7 * HOUR, "binlog.000009 is gone"),),
)
LISTING = ArchiveListing(
    job="nightly",
    at=BEGAN + 10 * HOUR,
    reach=REACH,
    backups=(ONE, TWO),
    gaps=(ArchiveGap(CHAIN, "binlog.000009 is gone", BEGAN + 5 * HOUR, BEGAN + 4 * HOUR),),
    targets=(
        ArchivedOnTarget("vault", 12, 3 << 20, PLACE, BEGAN + 10 * HOUR),
        ArchivedOnTarget("s3", 0, 0, None, None),
    ),
    spool=SpooledSegments(2, 2048, 1 << 30),
)
REPORT = ArchiveReport(
    job="nightly",
    at=BEGAN + 10 * HOUR,
    receiving=True,
    archived=PLACE,
    last_at=BEGAN + 10 * HOUR - timedelta(seconds=3),
    received_at=BEGAN + 10 * HOUR - timedelta(seconds=2),
    server=ServerLogEnd(BinlogPlace("binlog.000007", 5735), 1024),
    targets=LISTING.targets,
    spool=NOTHING_WAITS,
    gaps=(),
)


def test_the_time_line_has_the_backups_over_what_can_be_restored() -> None:
    drawn = archive_timeline(REACH, (ONE, TWO), at=LISTING.at, width=50, ascii_only=True)
    assert drawn.splitlines() == [
        "*" + " " * 34 + "*",
        "#" * 20 + "." * 16 + "#" * 14,
        "2026-11-20 04:00 UTC          2026-11-20 14:00 UTC",
        "* a backup   # every moment can be restored   . none can",
    ]


@given(st.integers(0, 36_000), st.integers(1, 30), st.integers(0, 300))
def test_a_short_hole_is_seen(begin: int, length: int, width: int) -> None:
    since, until = BEGAN + timedelta(seconds=begin), BEGAN + timedelta(seconds=begin + length)
    reach = Reach(
        (RestorableStretch(ONE, CHAIN, BEGAN, since), RestorableStretch(TWO, CHAIN, until, until + HOUR)),
        (Hole(since, until, "lost"),),
    )
    _, bar, axis, _ = archive_timeline(reach, (), at=until + HOUR, width=width).splitlines()
    assert "·" in bar
    assert len(bar) == len(axis) == max(width, 40)


def test_a_backup_alone_is_a_moment() -> None:
    alone = Reach((RestorableStretch(ONE, "", BEGAN, BEGAN),), ())
    marks, bar, *_ = archive_timeline(alone, (ONE,), at=BEGAN, ascii_only=True).splitlines()
    assert (marks, bar) == ("*", "#" + "." * 71)


def test_what_can_be_restored_is_told_with_what_cannot_and_why() -> None:
    lines = listing_text(LISTING, ascii_only=True).splitlines()
    assert lines[5:9] == [
        "FROM (UTC)           TO (UTC)                 LENGTH  HOW",
        "2026-11-20 04:00:00  2026-11-20 08:00:00  4 h 00 min  from backup run-1",
        "2026-11-20 08:00:00  2026-11-20 11:00:00  3 h 00 min  NOT to be restored: binlog.000009 is gone",
        "2026-11-20 11:00:00  2026-11-20 14:00:00  3 h 00 min  from backup run-2",
    ]
    assert lines[10:] == [
        "the last moment that can be restored: 2026-11-20 14:00:00 UTC (0 s ago)",
        "",
        "TARGET  SEGMENTS     SIZE  STORED UP TO        RECEIVED (UTC)",
        "vault         12  3.0 MiB  binlog.000007:4711  2026-11-20 14:00:00",
        "s3             0      0 B  -                   -",
        "",
        "in the spool, for a target that lacks it: 2 segments, 2.0 KiB of 1.0 GiB",
        "",
        "1 gap in the archive:",
        "  behind 2026-11-20 08:00:00 UTC: binlog.000009 is gone",
    ]


def test_how_the_archive_stands_is_told() -> None:
    assert archive_report_text(REPORT).splitlines() == [
        "job nightly",
        "receiver:          running",
        "archived up to:    binlog.000007:4711, received 2 s ago",
        "last transaction:  2026-11-20 13:59:57 UTC",
        "the server is at:  binlog.000007:5735: 1.0 KiB are not archived yet, of the last 3.0 s or less",
        "on vault:          binlog.000007:4711, received 0 s ago",
        "on s3:             nothing",
        "spool:             nothing waits",
        "gaps:              none",
    ]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (ServerLogEnd(PLACE, 0), "binlog.000007:4711: all of it is archived"),
        (ServerLogEnd(PLACE, None), "binlog.000007:4711: it does not go on where the archive ends"),
        (ServerLogEnd(None, None, "it does not answer"), "not known: it does not answer"),
    ],
)
def test_what_is_known_of_the_server_is_told(server: ServerLogEnd, said: str) -> None:
    assert f"the server is at:  {said}\n" in archive_report_text(replace(REPORT, server=server))


def source(*sizes: int, end: int) -> BinlogSource:
    """A server whose binlogs, from binlog.000007 on, have these sizes."""
    files = tuple(ServerBinlog(f"binlog.{number:06}", size) for number, size in enumerate(sizes, 7))
    return BinlogSource(FIRST.origin, "ROW", BinlogPlace(files[-1].name, end), "", "", files, None, False, False)


@pytest.mark.parametrize(
    ("archived", "sizes", "end", "behind"),
    [
        (("binlog.000007", 500), (500,), 500, 0),
        (("binlog.000007", 400), (500,), 500, 100),
        (("binlog.000007", 400), (500, 600, 100), 100, 100 + 600 + 100),
        (("binlog.000008", 4), (500,), 500, 0),  # the server has ended a file, and not begun the next one yet
        (("binlog.000008", 4), (500, 300), 300, 296),
        (("binlog.000006", 400), (500,), 500, None),  # purged
        (("binlog.000007", 900), (500,), 500, None),  # reset
    ],
)
def test_how_much_is_not_archived(
    archived: tuple[str, int], sizes: tuple[int, ...], end: int, behind: int | None
) -> None:
    found = source(*sizes, end=end)
    assert found.end is not None
    assert _behind(BinlogPlace(*archived), found, found.end) == behind


def found(gtid: str | None, *changes: TableChange, statement: str = "") -> LoggedTransaction:
    return LoggedTransaction(PLACE, BinlogPlace(PLACE.file, 5000), gtid, BEGAN, changes, statement)


def test_a_transaction_is_a_line() -> None:
    rows = found(
        "0-1-7", TableChange("shop", "a", ChangeKind.DELETE, 3), TableChange("shop", "b", ChangeKind.INSERT, 1)
    )
    drop = found(
        "0-1-8", TableChange("shop", "", ChangeKind.DROP), statement="DROP DATABASE\n  shop" + " " * 300 + "x" * 60
    )
    assert transactions_table([rows, drop]).splitlines() == [
        "COMMITTED (UTC)      GTID   POSITION                 CHANGES                                        STATEMENT",
        "2026-11-20 04:00:00  0-1-7  binlog.000007:4711-5000  delete shop.a (3 rows); insert shop.b (1 row)",
        "2026-11-20 04:00:00  0-1-8  binlog.000007:4711-5000  drop schema shop"
        f"                               DROP DATABASE shop {'x' * 40}…",
    ]


def test_without_gtids_the_position_is_what_a_restore_takes() -> None:
    plain = found(None, TableChange("shop", "a", ChangeKind.DELETE, 3))
    assert "GTID" not in transactions_table([plain])
    assert next_command("shop", [plain]) == "backupd restore --to DIR --job shop --to-position binlog.000007:4711"
    assert next_command("shop", [found("0-1-7")]) == "backupd restore --to DIR --job shop --before-gtid 0-1-7"
    assert next_command("shop", [found("0-1-7")] * 2).endswith("--before-gtid GTID")


def test_what_strangers_say_is_one_line_each() -> None:
    hostile = found("0-1-7", TableChange(HOSTILE, HOSTILE, ChangeKind.DROP), statement=HOSTILE)
    gap = ArchiveGap(CHAIN, HOSTILE, BEGAN, BEGAN)
    hole = replace(REACH, holes=(replace(REACH.holes[0], reason=HOSTILE),))
    texts = [
        transactions_table([hostile]),
        listing_text(replace(LISTING, gaps=(gap,), reach=hole)),
        archive_report_text(replace(REPORT, gaps=(gap,), server=ServerLogEnd(None, None, HOSTILE))),
    ]
    for text, lines in zip(texts, (2, 20, 9), strict=True):
        assert faults(text) == []
        assert len(text.splitlines()) == lines
