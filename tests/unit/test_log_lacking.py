"""What is remembered of a log that lacked changes, and that what comes afterwards continues nothing from before."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backupd.catalogue.store import Catalogue
from backupd.mysql.binlog.source import BinlogSource, ServerBinlog
from backupd.mysql.unlocked import HeldNothing
from backupd.operations.binlog.log_gaps import lacked_meanwhile, record_lacking, whole_since
from backupd.operations.binlog.start_points import new_beginning
from backupd.policy.binlog_chain import PlacedBackup, continuations
from backupd.policy.segment_file import from_line, to_line
from backupd.vocabulary.binlogs import CATALOGUE_LOST, ArchiveGap, BinlogPlace, SegmentOrigin
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import BEGAN, CHAIN, FIRST, UUID, chain_of
from tests.fakes.chain_rows import rows
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

JOB, OFF, HOUR = "nightly", "the server's binlog is off", timedelta(hours=1)
SOURCE = BinlogSource(
    FIRST.origin, "ROW", BinlogPlace("binlog.000007", 1004), "", "", (), None, encrypted=False, own_writes=False
)
NEXT = "20261121T040000Z-0123abcd"


def gaps(catalogue: Catalogue) -> list[tuple[str, datetime, datetime | None]]:
    return [(gap.chain, gap.noticed_at, gap.resumed_at) for gap in catalogue.archive_gaps(JOB)]


def archived(catalogue: Catalogue, chain: str = CHAIN, **changed: object) -> None:
    first = replace(FIRST, machine=catalogue.identity().name, chain=chain, **changed)  # type: ignore[arg-type]
    catalogue.add_segment(first, spooled=False)


def test_a_look_at_a_log_that_lacks_changes_ends_the_chain_once(catalogue: Catalogue) -> None:
    archived(catalogue)
    assert record_lacking(catalogue, JOB, OFF, at=BEGAN + HOUR) is not None
    assert record_lacking(catalogue, JOB, OFF, at=BEGAN + 2 * HOUR) is None
    assert gaps(catalogue) == [(CHAIN, BEGAN + HOUR, None)]
    assert whole_since(catalogue, JOB, at=BEGAN + 3 * HOUR) == BEGAN + 3 * HOUR
    assert whole_since(catalogue, JOB, at=BEGAN + 4 * HOUR) == BEGAN + 3 * HOUR, "it was whole then"
    record_lacking(catalogue, JOB, OFF, at=BEGAN + 5 * HOUR)
    assert whole_since(catalogue, JOB, at=BEGAN + 6 * HOUR) == BEGAN + 6 * HOUR, "nothing had been archived in between"
    assert gaps(catalogue) == [(CHAIN, BEGAN + HOUR, BEGAN + 6 * HOUR)]


def test_it_is_remembered_where_no_chain_goes_on_that_could_end(catalogue: Catalogue) -> None:
    record_lacking(catalogue, JOB, OFF, at=BEGAN)
    assert record_lacking(catalogue, JOB, OFF, at=BEGAN + HOUR) is None
    archived(catalogue, NEXT)
    catalogue.archive_gap(JOB, ArchiveGap(NEXT, "the log was reset", BEGAN, None))
    record_lacking(catalogue, JOB, OFF, at=BEGAN + 2 * HOUR)
    before, reset, after = (chain for chain, *_ in gaps(catalogue))
    assert {before < NEXT, reset == NEXT, after > NEXT} == {True}


def test_a_chain_that_would_go_on_after_the_catalogue_was_lost_does_not(catalogue: Catalogue) -> None:
    archived(catalogue)
    catalogue.archive_gap(JOB, ArchiveGap(CHAIN, CATALOGUE_LOST, BEGAN, None))
    record_lacking(catalogue, JOB, OFF, at=BEGAN)
    assert [gap.not_logged for gap in catalogue.archive_gaps(JOB)] == [True]


def test_a_log_that_never_lacked_anything_is_told_as_such(catalogue: Catalogue) -> None:
    archived(catalogue)
    catalogue.archive_gap(JOB, ArchiveGap(CHAIN, "the log was reset", BEGAN, None))
    assert whole_since(catalogue, JOB, at=BEGAN) is None
    assert gaps(catalogue) == [(CHAIN, BEGAN, None)]


def test_a_catalogue_that_was_rebuilt_knows_it_by_the_segments(catalogue: Catalogue) -> None:
    archived(catalogue, origin=replace(FIRST.origin, whole_since=BEGAN))
    assert whole_since(catalogue, JOB, at=BEGAN + HOUR) == BEGAN


def test_a_backup_that_found_the_log_off_tells_it_where_nobody_received(catalogue: Catalogue) -> None:
    archived(catalogue)
    with catalogue.open_run(JOB, "db1", run_id="r1") as run:
        run.position(Position())
        run.complete((Backup("vault", "/v", 5000, 400, 12, "ab" * 32),))
    lacked = lacked_meanwhile(catalogue, JOB, SOURCE)
    assert lacked == "the server's binlog was off when run r1 looked"
    record_lacking(catalogue, JOB, lacked, at=BEGAN)
    whole_since(catalogue, JOB, at=datetime.now(UTC) + HOUR)
    assert lacked_meanwhile(catalogue, JOB, SOURCE) == ""


def test_a_backup_that_found_the_log_off_is_not_forgotten_behind_many_later_ones(catalogue: Catalogue) -> None:
    archived(catalogue)
    for number in range(60):
        with catalogue.open_run(JOB, "db1", run_id=f"r{number}") as run:
            run.position(Position() if number == 0 else Position("binlog.000007", 504))
            run.complete((Backup("vault", "/v", 5000, 400, 12, "ab" * 32),))
    assert lacked_meanwhile(catalogue, JOB, SOURCE) == "the server's binlog was off when run r0 looked"


def test_a_backup_without_a_lock_says_nothing_of_the_log(catalogue: Catalogue) -> None:
    """Its place is unknown until a drill has found it, whether the log is on or off."""
    archived(catalogue)
    with catalogue.open_run(JOB, "db1", run_id="r1") as run:
        run.lock(HeldNothing(None).receipt)
        run.position(HeldNothing(None).position)
        run.complete((Backup("vault", "/v", 5000, 400, 12, "ab" * 32),))
    assert lacked_meanwhile(catalogue, JOB, SOURCE) == ""


def test_what_a_server_was_sent_and_did_not_log_is_told_once(catalogue: Catalogue) -> None:
    archived(catalogue)
    assert lacked_meanwhile(catalogue, JOB, replace(SOURCE, applied="0-2-10,1-2-400")) == ""
    assert lacked_meanwhile(catalogue, JOB, replace(SOURCE, applied="0-1-11")) == "", "its own"
    sent = replace(SOURCE, applied="0-2-11")
    assert lacked_meanwhile(catalogue, JOB, replace(sent, own_writes=True)) == ""
    lacked = lacked_meanwhile(catalogue, JOB, sent)
    assert lacked.endswith("up to 0-2-11")
    record_lacking(catalogue, JOB, lacked, at=BEGAN)
    assert lacked_meanwhile(catalogue, JOB, sent) == ""
    archived(catalogue, NEXT)
    assert lacked_meanwhile(catalogue, JOB, sent) == "", "it is recorded, and nothing has been written since"


def test_what_mysql_executed_and_has_in_none_of_its_files_is_told_where_it_was_not_archived(
    catalogue: Catalogue,
) -> None:
    mysql = SegmentOrigin(Flavour.MYSQL, "9.7.4", 1, UUID)
    archived(catalogue, origin=mysql, gtid_start=f"{UUID}:1-5", gtid_end=f"{UUID}:1-9")
    purged = replace(SOURCE, origin=mysql, purged=f"{UUID}:1-9")
    assert lacked_meanwhile(catalogue, JOB, purged) == ""
    assert lacked_meanwhile(catalogue, JOB, replace(purged, purged=f"{UUID}:1-12")).endswith(f"had {UUID}:1-12")


def test_what_was_backed_up_before_the_log_was_whole_begins_no_chain_and_is_rolled_forward_by_none() -> None:
    whole = replace(FIRST.origin, whole_since=BEGAN)
    found = rows(chain_of(4, first=replace(FIRST, origin=whole)))
    for taken_at, fits in ((BEGAN - timedelta(seconds=1), False), (BEGAN + timedelta(seconds=1), True)):
        backup = PlacedBackup("r1", BinlogPlace(FIRST.file, FIRST.start), "", taken_at)
        assert bool(continuations(backup, found)) is fits
        beginning = new_beginning(
            replace(SOURCE, origin=whole, files=(ServerBinlog(FIRST.file, 1004),)),
            BinlogPlace(FIRST.file, 1004),
            None,
            [backup],
        )
        assert (beginning.backup is not None) is fits


def test_a_backup_of_a_clock_that_was_ahead_begins_no_chain() -> None:
    """It may have been taken before the log lacked changes, whatever it says."""
    now = datetime.now(UTC)
    source = replace(
        SOURCE, origin=replace(FIRST.origin, whole_since=now - HOUR), files=(ServerBinlog(FIRST.file, 1004),)
    )
    end = BinlogPlace(FIRST.file, 1004)
    for taken_at, begins in ((now + HOUR, False), (now - HOUR / 2, True)):
        backup = PlacedBackup("r1", BinlogPlace(FIRST.file, 504), "0-1-5", taken_at)
        assert (new_beginning(source, end, None, [backup]).backup == backup) is begins


def test_from_when_on_a_log_was_whole_is_told_with_each_segment() -> None:
    segment = replace(FIRST, origin=replace(FIRST.origin, whole_since=BEGAN))
    assert from_line(to_line(segment)).origin.whole_since == BEGAN
    assert b'"minor":3' in to_line(segment)
    assert b"whole_since" not in to_line(FIRST)


def test_a_log_that_lost_its_end_in_a_crash_is_followed_by_no_backup_from_before(catalogue: Catalogue) -> None:
    archived(catalogue)  # up to binlog.000007:1004
    end = BinlogPlace("binlog.000008", 330)
    files = (ServerBinlog("binlog.000007", 700), ServerBinlog("binlog.000008", 330))
    crashed = replace(SOURCE, end=end, files=files)
    told = lacked_meanwhile(catalogue, JOB, crashed)
    assert told == "binlog.000007 has 700 bytes, and 1004 were archived: the end of the log was lost"
    assert record_lacking(catalogue, JOB, told, at=BEGAN + HOUR) is not None
    assert lacked_meanwhile(catalogue, JOB, crashed) == ""
    whole = whole_since(catalogue, JOB, at=BEGAN + 2 * HOUR)
    source = replace(crashed, origin=replace(SOURCE.origin, whole_since=whole))
    backup = PlacedBackup("r1", BinlogPlace("binlog.000007", 504), "0-1-5", BEGAN + timedelta(seconds=5))
    beginning = new_beginning(source, end, catalogue.latest_segment(JOB), [backup])
    assert (beginning.backup, beginning.begin) == (None, end)


def test_a_run_that_failed_begins_no_chain_where_a_good_backup_before_it_can() -> None:
    source = replace(SOURCE, files=(ServerBinlog(FIRST.file, 1004),))
    good = PlacedBackup("r1", BinlogPlace(FIRST.file, 504), "0-1-5", BEGAN)
    failed = PlacedBackup("r2", BinlogPlace(FIRST.file, 604), "0-1-6", BEGAN + HOUR, good=False)
    assert new_beginning(source, BinlogPlace(FIRST.file, 1004), None, [failed, good]).backup == good
