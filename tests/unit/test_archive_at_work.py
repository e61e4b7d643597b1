"""Where an archive begins to receive, and what ends that: by what its server tells, without one."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.config import BinlogConfig
from backupd.mysql.binlog.endings import EndKind, ReceiverEnd
from backupd.mysql.binlog.receiver import ReceivedBytes, Receiver
from backupd.mysql.binlog.source import BinlogSource, LogState, ServerBinlog
from backupd.operations.binlog.archive import ArchiveTools, _Archive, _settle
from backupd.operations.binlog.placed_backups import placed_backups
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.start_points import behind, following_place, new_beginning, taken_over
from backupd.operations.binlog.storing import Senders
from backupd.policy.binlog_chain import PlacedBackup
from backupd.service.archive_alarms import open_gaps
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.binlogs import CATALOGUE_LOST, NOT_LOGGED, ArchiveGap, BinlogPlace, lost_from, segment_name
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import BEGAN, FIRST, chain_of, sealed_chain
from tests.signers import signer
from tests.unit.test_binlog_first_file import begun_by
from tests.unit.test_catalogue import SNAPSHOT
from tests.unit.test_segment_storing import JOB, Site

OTHER = replace(FIRST.origin, server_id=2)
END = BinlogPlace("binlog.000009", 4000)
SOURCE = BinlogSource(
    FIRST.origin,
    "ROW",
    END,
    "0-1-99",
    "",
    tuple(ServerBinlog(f"binlog.{number:06}", 4000) for number in (7, 8, 9)),
    None,
    encrypted=False,
    own_writes=True,
)
AWAY = ReceiverEnd(EndKind.SERVER_AWAY, "the server is away")
GONE = ReceiverEnd(EndKind.PLACE_GONE, "the server has purged it")


class Client:
    """A receiver that brings so much, and ends so after it has been looked at a few times; None: it does not."""

    def __init__(self, end: ReceiverEnd | None, looks: int, pieces: Sequence[ReceivedBytes]) -> None:
        self._end, self._looks, self._pieces = end, looks, [*pieces]

    @property
    def ended(self) -> ReceiverEnd | None:
        self._looks -= 1
        return self._end if self._looks < 0 else None

    def poll(self) -> list[ReceivedBytes]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def wait(self, seconds: float) -> None:
        """Nothing comes."""


class Server:
    """What an archive is told, and from where on it asked for the log."""

    def __init__(self, site: Site) -> None:
        self.site, self.source = site, SOURCE
        self.end: ReceiverEnd | None = AWAY
        self.looks = 0  # before that end
        self.sent: list[ReceivedBytes] = []
        self.backups: list[PlacedBackup] = []
        self.log = LogState(END, "")
        self.begun: list[BinlogPlace] = []

    @contextmanager
    def receiving(self, begin: BinlogPlace) -> Iterator[Receiver]:
        self.begun.append(begin)
        yield cast(Receiver, Client(self.end, self.looks, self.sent))

    def minute(self) -> None:
        raise ServerError("the server is read-only")

    def archive(self) -> _Archive:
        store, catalogue = self.site.store, self.site.catalogue
        tools = ArchiveTools(
            claims=store.ownership.claims,
            catalogue=catalogue,
            store=store,
            source=lambda: self.source,
            end_of_log=lambda _: self.log,
            sizes_of_log=lambda: self.source.files,
            promoted=lambda *_: pytest.fail("no other server answers"),
            receiving=self.receiving,
            backups=lambda: self.backups,
            author=lambda origin: SegmentAuthor(catalogue.identity().name, JOB, origin, (), signer()),
            minute=self.minute,
        )
        return _Archive(JOB, BinlogConfig(), tools, Senders([]))

    def gaps(self) -> list[str]:
        return [gap.reason for gap in self.site.catalogue.archive_gaps(JOB)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.catalogue:
        yield site


@pytest.fixture
def server(site: Site) -> Server:
    return Server(site)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done every few seconds or minutes is done each time."""
    for name in ("_ASK_SECONDS", "_MINUTE_SECONDS"):
        monkeypatch.setattr(f"backupd.operations.binlog.archive.{name}", -1.0)


def test_it_goes_on_behind_the_last_segment(server: Server) -> None:
    assert server.archive()._receive() == "the server is away"
    assert (server.begun, server.gaps()) == ([BinlogPlace("binlog.000007", 3004)], [])


def test_a_chain_that_a_rebuilt_catalogue_has_told_as_ended_goes_on_where_no_target_has_more_of_it(
    server: Server, site: Site
) -> None:
    last = site.segments[-1]
    site.catalogue.archive_gap(JOB, ArchiveGap(last.chain, CATALOGUE_LOST, BEGAN, last.last_at))
    server.archive()._receive()
    assert (server.begun, server.gaps()) == ([BinlogPlace("binlog.000007", 3004)], [])


def test_a_chain_that_a_target_has_more_of_than_the_catalogue_does_not_go_on(server: Server, site: Site) -> None:
    last = site.segments[-1]
    site.targets[0].stored[JOB, "binlog", segment_name(last.chain, last.number + 1)] = b"a segment"
    site.catalogue.archive_gap(JOB, ArchiveGap(last.chain, CATALOGUE_LOST, BEGAN, last.last_at))
    server.archive()._receive()
    assert (server.begun, server.gaps()) == ([END], [CATALOGUE_LOST])


def test_a_chain_that_a_listing_leaves_the_rest_out_of_does_not_go_on(
    server: Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = site.segments[-1]
    site.targets[0].stored[JOB, "binlog", segment_name(last.chain, last.number + 1)] = b"a segment"
    site.catalogue.archive_gap(JOB, ArchiveGap(last.chain, CATALOGUE_LOST, BEGAN, last.last_at))
    monkeypatch.setattr(site.targets[0], "segments", lambda *_asked, **_behind: {})
    server.archive()._receive()
    assert (server.begun, server.gaps()) == ([END], [CATALOGUE_LOST])


def test_a_chain_that_a_folder_may_have_more_of_whose_file_system_is_not_mounted_does_not_go_on(
    server: Server, site: Site, tmp_path: Path
) -> None:
    last = site.segments[-1]
    unmounted = DirectoryTarget("here", tmp_path, machine=site.targets[0].machine, sentinel=".mounted")
    site.store = replace(site.store, targets=[unmounted, site.targets[1]])
    site.catalogue.archive_gap(JOB, ArchiveGap(last.chain, CATALOGUE_LOST, BEGAN, last.last_at))
    server.archive()._receive()
    assert (server.begun, server.gaps()) == ([END], [CATALOGUE_LOST])


def test_what_the_server_has_purged_is_a_gap_and_it_is_received_from_its_end_on(server: Server) -> None:
    server.source = replace(SOURCE, files=SOURCE.files[1:])
    server.archive()._receive()
    assert server.gaps() == ["the server no longer has binlog.000007 up to byte 3004"]
    assert server.begun == [END]


def test_a_file_that_was_archived_whole_and_has_another_length_was_reset(server: Server, site: Site) -> None:
    last = replace(site.segments[-1], file_ended=True)
    site.catalogue.left_spool([last.name])
    site.goes_on(last)
    server.archive()._receive()
    assert server.gaps() == ["binlog.000007 now has 4000 bytes, and 3004 were archived: the log was reset"]


def test_a_backup_whose_place_is_purged_before_it_is_received_is_no_beginning_the_next_time(
    server: Server, site: Site
) -> None:
    site.catalogue.left_spool([segment.name for segment in site.segments])
    site.catalogue.forget_segments([segment.name for segment in site.segments])
    place = BinlogPlace("binlog.000008", 100)
    server.backups = [PlacedBackup("r1", place, "0-1-50", datetime.now(UTC))]
    server.end = GONE
    archive = server.archive()
    assert archive._receive() == archive._receive() == "the server has purged it"
    assert (server.begun, server.gaps()) == ([place, END], [])


def test_a_backup_that_is_no_beginning_keeps_no_later_one_from_being_one(server: Server, site: Site) -> None:
    """After RESET the new file has outgrown the old one's place, and a backup is being taken in the new one."""
    names = [segment.name for segment in site.segments]
    site.catalogue.left_spool(names)
    site.catalogue.forget_segments(names)
    now, file = datetime.now(UTC), SOURCE.files[0].name
    before = PlacedBackup("r0", BinlogPlace(file, 700), "0-1-50", now - timedelta(hours=1))
    server.sent, server.looks = [ReceivedBytes(file, 0, begun_by(1, at=int(now.timestamp()) - 60), file_ended=True)], 1
    archive = server.archive()
    with site.catalogue.open_run(JOB, "db1", run_id="r1") as run:
        run.position(Position(file, 330, "0-1-50"))
        run.snapshot(replace(SNAPSHOT, taken_at=now))
        server.backups = [*placed_backups(site.catalogue.runs(job=JOB, limit=None)), before]
        assert archive._receive() == f"{file} is newer than backup r0"
        server.sent, server.looks = [], 0
        archive._receive()
        run.complete((Backup("here", "/r1", 5000, 400, 12, "ab" * 32),))
    assert server.begun == [before.place, BinlogPlace(file, 330)]
    server.backups = [before]
    archive._receive()
    assert server.begun[2:] == [END]


def test_a_chain_whose_place_is_purged_ends_and_the_next_one_begins_behind_it(server: Server, site: Site) -> None:
    server.end = GONE
    archive = server.archive()
    archive._receive()
    assert server.gaps() == ["the server has purged it"]
    archive._receive()
    assert server.begun == [BinlogPlace("binlog.000007", 3004), END]


def test_a_silent_connection_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.binlog.archive._SILENT_SECONDS", 0.0)
    server.end = None
    assert server.archive()._receive().startswith("nothing has arrived for")


@pytest.mark.usefixtures("at_once")
def test_how_far_it_is_behind_is_recorded_while_nothing_arrives(
    server: Server, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """And that no canary row can be written keeps it from nothing."""
    server.looks = 2
    assert server.archive()._receive() == "the server is away"
    record = site.catalogue.records([JOB], at=datetime.now(UTC) + timedelta(seconds=1))[JOB].archive
    assert record.behind_bytes == (4000 - 3004) + 4000 + 4000
    assert "the canary row of this minute was not written: the server is read-only" in caplog.text


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_kept", [False, True])
def test_what_was_received_and_not_kept_is_not_told_as_archived(server: Server, site: Site, is_kept: bool) -> None:
    """The spool's disk may be full: each process would find that it has received all, and end before it keeps any."""
    last, file = replace(site.segments[-1], file_ended=True), "binlog.000008"
    site.catalogue.left_spool([last.name])
    site.goes_on(last)
    server.sent, server.looks = [ReceivedBytes(file, 0, begun_by(1), file_ended=is_kept)], 3
    end = BinlogPlace(file, len(begun_by(1)))
    server.source = replace(SOURCE, end=end, files=(ServerBinlog(last.file, last.end), ServerBinlog(file, end.offset)))
    server.log = LogState(end, "")
    site.catalogue.archive_contact(JOB, at=BEGAN)
    server.archive()._receive()
    record = site.catalogue.records([JOB], at=datetime.now(UTC) + timedelta(seconds=1))[JOB].archive
    assert record.reached_at is not None
    assert record.asked_at is not None
    assert (record.reached_at > BEGAN, record.asked_at > BEGAN) == (is_kept, True)
    assert record.behind_bytes == (0 if is_kept else end.offset - 4)


@pytest.mark.usefixtures("at_once")
def test_a_server_that_begins_to_leave_something_out_of_its_log_ends_the_chain(server: Server) -> None:
    server.looks, server.log = 2, LogState(END, "Binlog_Do_DB is set")
    assert server.archive()._receive() == "Binlog_Do_DB is set"
    (reason,) = server.gaps()
    assert reason.endswith("Binlog_Do_DB is set")


@pytest.mark.usefixtures("at_once")
def test_a_log_that_ends_before_what_was_received_was_reset(server: Server) -> None:
    server.looks, server.log = 2, LogState(BinlogPlace("binlog.000001", 500), "")
    server.archive()._receive()
    assert server.gaps() == ["the server's log ends at binlog.000001:500, before what was received: it was reset"]


def test_a_backup_from_which_the_next_chain_does_not_lead_on_ends_no_gap(server: Server, site: Site) -> None:
    """It was taken while the receiver could not go on, and copied for as long: nothing has what came in between."""
    last, purged = site.segments[-1], datetime.now(UTC)
    lacked = ArchiveGap("20261121T040000Z-0123abcd", f"{NOT_LOGGED}it was off", purged, None, resumed_at=purged)
    site.catalogue.archive_gap(JOB, ArchiveGap(last.chain, "it was purged", purged, last.last_at))
    site.catalogue.archive_gap(JOB, lacked)
    with site.catalogue.open_run(JOB, "db1", run_id="r1") as run:
        run.position(Position("binlog.000008", 100))
        server.archive()._receive()
        run.complete((Backup("here", "/r1", 5000, 400, 12, "ab" * 32),))
    assert server.begun == [END]
    assert len(open_gaps(record_of(site))) == 2
    with site.catalogue.open_run(JOB, "db1", run_id="r2") as run:
        run.position(Position(END.file, END.offset + 100))
        run.complete((Backup("here", "/r2", 5000, 400, 12, "ab" * 32),))
    assert open_gaps(record_of(site)) == []


def gap_of(name: str, at: datetime) -> ArchiveGap:
    return ArchiveGap(name, f"why {name}", at, None)


def completed(site: Site, run_id: str, place: BinlogPlace) -> None:
    with site.catalogue.open_run(JOB, "db1", run_id=run_id) as run:
        run.position(Position(place.file, place.offset))
        run.complete((Backup("here", f"/{run_id}", 5000, 400, 12, "ab" * 32),))


def test_a_gap_within_a_chain_that_a_backup_has_closed_stays_closed_when_that_chain_ends(
    server: Server, site: Site
) -> None:
    """What the chain had behind it led on from that backup."""
    chain, noticed = site.segments[-1].chain, datetime.now(UTC)
    within = [gap_of(name, noticed) for name in (lost_from(chain, 2), f"{chain} on there")]
    before, later = gap_of("20200101T000000Z-0123abcd", noticed), gap_of("20301121T040000Z-0123abcd", noticed)
    for gap in (*within, before, later):
        site.catalogue.archive_gap(JOB, gap)
    completed(site, "r1", BinlogPlace("binlog.000001", 4))
    server.source = replace(SOURCE, files=SOURCE.files[1:])
    server.archive()._receive()
    assert server.begun == [END]
    assert {gap.chain for gap in open_gaps(record_of(site))} == {chain, later.chain}
    assert {*within, before} <= {*site.catalogue.archive_gaps(JOB)}


def test_a_gap_that_a_backup_has_closed_stays_closed_where_nothing_is_archived_any_more(
    server: Server, site: Site
) -> None:
    names = [segment.name for segment in site.segments]
    site.catalogue.left_spool(names)
    site.catalogue.forget_segments(names)
    closed = gap_of("20200101T000000Z-0123abcd", datetime.now(UTC))
    site.catalogue.archive_gap(JOB, closed)
    completed(site, "r1", BinlogPlace("binlog.000001", 4))
    still = gap_of("20200201T000000Z-0123abcd", datetime.now(UTC))
    site.catalogue.archive_gap(JOB, still)
    server.archive()._receive()
    (moved,) = open_gaps(record_of(site))
    assert (moved.chain, moved.noticed_at > still.noticed_at) == (still.chain, True)
    assert closed in site.catalogue.archive_gaps(JOB)


def test_a_chain_that_begins_with_a_backup_that_is_being_taken_ends_no_gap_unless_that_is_good(
    server: Server, site: Site
) -> None:
    """An earlier good one had ended the alarm; what led on from it was gone before anything was received."""
    chain = site.segments[-1].chain
    site.catalogue.archive_gap(JOB, gap_of(chain, datetime.now(UTC)))
    site.catalogue.archive_gap(JOB, within := gap_of(lost_from(chain, 2), datetime.now(UTC)))
    completed(site, "r1", BinlogPlace("binlog.000001", 4))
    assert open_gaps(record_of(site)) == []
    with site.catalogue.open_run(JOB, "db1", run_id="r2") as run:
        run.position(Position("binlog.000008", 100))
        run.snapshot(replace(SNAPSHOT, taken_at=datetime.now(UTC)))
        server.backups = placed_backups(site.catalogue.runs(job=JOB, limit=None))
        server.archive()._receive()
        assert server.begun == [BinlogPlace("binlog.000008", 100)]
        assert [gap.chain for gap in open_gaps(record_of(site))] == [chain]
        run.complete((Backup("here", "/r2", 5000, 400, 12, "ab" * 32),))
    assert open_gaps(record_of(site)) == []
    assert within in site.catalogue.archive_gaps(JOB)


def record_of(site: Site) -> ArchiveRecord:
    return site.catalogue.records([JOB], at=datetime.now(UTC))[JOB].archive


def test_a_chain_begins_with_the_backup_that_is_being_taken_where_no_good_one_can_lead_on(site: Site) -> None:
    at = datetime.now(UTC)
    with site.catalogue.open_run(JOB, "db1", run_id="r1") as run:
        run.position(Position("binlog.000008", 100, "0-1-50"))
        run.snapshot(replace(SNAPSHOT, taken_at=at))
        (live,) = placed_backups(site.catalogue.runs(job=JOB, limit=None))
        run.complete((Backup("here", "/r1", 5000, 400, 12, "ab" * 32),))
    failed = replace(live, run_id="r0", live=False)
    found = new_beginning(SOURCE, END, site.segments[-1], [live, failed])
    assert (found.backup, found.begin, found.gtids) == (live, BinlogPlace("binlog.000008", 100), "0-1-50")
    good = replace(live, run_id="r-1", place=BinlogPlace("binlog.000007", 50), good=True, live=False)
    assert new_beginning(SOURCE, END, site.segments[-1], [live, failed, good]).backup == good
    assert new_beginning(SOURCE, END, site.segments[-1], [failed]).backup is None


# --- another server answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "source", "why"),
    [
        ({}, {"origin": replace(OTHER, flavour=Flavour.MYSQL)}, "another server answers: 10.11.19-MariaDB, id 2"),
        ({"within_transaction": True}, {}, "; the archive ends within a transaction of the previous server"),
        ({}, {"own_writes": False}, "; log_slave_updates is off there: its log lacks what it got from others"),
        ({}, {"gtid": "0-1-5,1-3-9"}, "; it has executed 0-1-5,1-3-9, and 0-1-10 is archived"),
    ],
)
def test_why_another_server_s_log_does_not_go_on_with_what_is_archived(
    last: dict[str, Any], source: dict[str, Any], why: str
) -> None:
    told = replace(SOURCE, **{"origin": OTHER, "gtid": "0-1-10", **source})
    found = taken_over(replace(FIRST, **last), told, lambda *_: pytest.fail("its log is not asked for"))
    assert isinstance(found, str)
    assert found.startswith("another server answers: 10.11.19-MariaDB, id 2")
    assert found.endswith(why)


def test_behind_an_open_transaction_it_begins_where_that_began() -> None:
    """What has come of it is received again, and not kept again."""
    whole, begun, more = FIRST, *(replace(one, within_transaction=True) for one in chain_of(3)[1:])
    found = behind(more, following_place(more), [whole, begun, more])
    assert (found.begin, found.gtids) == (BinlogPlace(whole.file, whole.end), whole.gtid_end)
    assert (found.archived, found.before) == (BinlogPlace(more.file, more.end), more)
    alone = behind(begun, following_place(begun), [begun])
    assert (alone.begin, alone.gtids) == (BinlogPlace(begun.file, begun.start), begun.gtid_start)


# --- what a process that died had done by half ------------------------------------------------------------------------


def test_what_was_written_by_half_leaves_the_spool_as_it_is_opened(site: Site, tmp_path: Path) -> None:
    half = tmp_path / "spool" / JOB / f"{site.segments[0].name}.part"
    half.write_bytes(b"half of it")
    site.spool.open()
    assert not half.exists()
    assert sorted(site.spool.sizes()) == [segment.name for segment in site.segments]


def test_a_minute_later_the_folder_is_looked_at_again_and_the_next_segment_stored(site: Site) -> None:
    sender, last = site.at_work()
    records = dict(site.targets[0].records)
    site.goes_on(last)
    sender._send_all()
    assert last.name in site.targets[0].segments(JOB)
    assert site.targets[0].records == records, "nothing new was to be said of it"


def settle(server: Server) -> None:
    _settle(JOB, server.archive()._tools)


def test_what_is_no_segment_leaves_the_spool(server: Server, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    stranger = segment_name(FIRST.chain, 9)
    site.spool.keep(stranger, b"", b"no segment\n")
    settle(server)
    assert f"{stranger} in the binlog spool cannot be used" in caplog.text
    assert sorted(site.spool.sizes()) == [segment.name for segment in site.segments]


def test_a_spool_with_another_machine_s_segments_is_not_archived_into(server: Server, site: Site) -> None:
    (other,) = sealed_chain(
        1, signer(), first=replace(FIRST, machine="db9-00000000", chain="20261121T040000Z-0123abcd")
    )
    site.spool.keep(other.segment.name, b"", other.content)
    with pytest.raises(UsageError, match=r"has .* of machine db9-00000000, and this is") as told:
        settle(server)
    assert "`backupd identity adopt db9-00000000`" in told.value.hint
    assert other.segment.name in site.spool.sizes()


def test_what_is_lost_with_the_spool_and_another_target_has_is_a_gap_of_the_target_that_lacks_it(
    server: Server, site: Site
) -> None:
    first = site.segments[0]
    site.catalogue.segment_stored(first.name, "here", at=BEGAN)
    site.spool.forget(first.name)
    settle(server)
    (reason,) = server.gaps()
    assert reason.startswith(f"target there lacks segments from {first.name} on, which others have")


def test_a_spool_in_which_nothing_is_of_what_waits_and_never_was_is_not_taken_for_one_that_lost_it(
    server: Server, site: Site, tmp_path: Path
) -> None:
    """It was moved, or its disk is not mounted: the segments lie whole elsewhere, and no target may have them."""
    (tmp_path / "spool" / JOB).rename(tmp_path / "whole")
    for _ in range(2):  # the second start finds the folder of the first
        site.spool.open()
        with pytest.raises(UsageError, match="is new, and has none of the 3 segments that wait for a target") as told:
            settle(server)
    assert (site.catalogue.spooled_segments(JOB), server.gaps()) == (site.segments, [])
    subprocess.run(told.value.hint.partition("`")[2].partition("`")[0].split(), check=True)
    settle(server)
    (reason,) = server.gaps()
    assert "lost with the binlog spool" in reason
    assert site.catalogue.spooled_segments(JOB) == []


def test_a_new_spool_is_as_good_as_any_where_nothing_waits(server: Server, site: Site, tmp_path: Path) -> None:
    for segment in site.segments:
        for target in site.targets:
            site.catalogue.segment_stored(segment.name, target.name, at=BEGAN)
    shutil.rmtree(tmp_path / "spool")
    site.spool.open()
    settle(server)
    assert (site.catalogue.spooled_segments(JOB), server.gaps()) == ([], [])
