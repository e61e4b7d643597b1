"""What every target has leaves the spool, and is no gap, whatever fails in between."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyrage import x25519

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.catalogue.audit import Event
from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig
from backupd.host.claims import Claims
from backupd.mysql.binlog.source import BinlogSource
from backupd.operations.binlog.archive import ArchiveTools, _Archive, _settle, archive
from backupd.operations.binlog.cutting import CutPiece
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.spool import BinlogSpool
from backupd.operations.binlog.storing import SegmentStore, Senders, _Sender
from backupd.operations.ownership import Ownership
from backupd.policy.segment_file import from_line
from backupd.service.archive_alarms import archive_alarms, open_gaps
from backupd.targets.names import BINLOG
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment
from backupd.vocabulary.errors import (
    Cancelled,
    CatalogueError,
    ConfigurationError,
    NotOurs,
    ServerError,
    TargetAway,
    UsageError,
)
from backupd.vocabulary.identity import Machine
from tests.binlog_segments import BEGAN, FIRST, begun_by, following, sealed_chain, upgraded
from tests.fakes.target import MemoryTarget
from tests.signers import signer

JOB = "nightly"
UNSET = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
FAR = datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC)  # the last that 32 bits hold
LATEST = datetime(9892, 3, 1, tzinfo=UTC)  # that MySQL's GTIDs can tell


class Site:
    """Three segments that wait in the spool of a job with two targets."""

    def __init__(self, base: Path) -> None:
        machine = Machine("db1", {"machine-id": "a1"}, boot_id="boot")
        self.catalogue = Catalogue.open(base / "catalogue.db", machine=lambda: machine)
        name = self.catalogue.identity().name
        self.targets = [MemoryTarget("here", name), MemoryTarget("there", name)]
        self.spool = BinlogSpool(base / "spool", JOB)
        self.spool.open()
        self.clock = 0.0  # seconds since the boot
        ownership = Ownership(
            self.catalogue, machine, Claims(base / "run"), renewal_seconds=60, clock=lambda: self.clock
        )
        self.store = SegmentStore(JOB, self.targets, self.catalogue, self.spool, ownership)
        self.segments: list[BinlogSegment] = []
        for one in sealed_chain(3, signer(), first=replace(FIRST, machine=name)):
            self.spool.keep(one.segment.name, b"", one.content)
            self.catalogue.add_segment(one.segment)
            self.segments.append(one.segment)

    def sender(self, target: MemoryTarget) -> _Sender:
        return _Sender(self.store, target, threading.Event())

    def at_work(self) -> tuple[_Sender, BinlogSegment]:
        """One that has sent to the first target whatever there was, and the segment that is to come."""
        sender, last = self.sender(self.targets[0]), self.segments[-1]
        self.catalogue.left_spool([last.name])
        sender._send_all()
        return sender, last

    def goes_on(self, segment: BinlogSegment) -> None:
        """That one has come, a minute later."""
        self.catalogue.forget_segments([segment.name])
        self.catalogue.add_segment(segment)
        self.clock = 61.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.catalogue:
        yield site


def test_what_every_target_has_leaves_the_spool_after_the_catalogue_had_failed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row told already that the last target has it: nobody lacks it any more."""
    here, there = (site.sender(target) for target in site.targets)
    here._send_all()
    assert len(site.spool.sizes()) == 3
    with monkeypatch.context() as failing, pytest.raises(CatalogueError):
        failing.setattr(site.catalogue, "left_spool", _full)
        there._send_all()
    there._send_all()
    assert site.spool.sizes() == {}
    assert site.catalogue.spooled_segments(JOB) == []


def _full(_names: list[str]) -> None:
    raise CatalogueError("the disk is full", hint="make room")


def test_an_archive_at_work_stores_nothing_in_a_folder_that_another_machine_has_taken_over(site: Site) -> None:
    """It lives for months: that it once was the owner says nothing of a minute later."""
    here = site.targets[0]
    sender, last = site.at_work()
    record = here.owner()
    assert record is not None
    here.succeed(replace(record, number=record.number + 1, incarnation="f" * 32, host="its successor"))
    site.goes_on(last)
    with pytest.raises(NotOurs, match="its successor"):
        sender._send_all()
    assert last.name not in here.segments(JOB)


def test_an_archive_at_work_owns_a_folder_that_was_found_empty_before_it_stores_there(site: Site) -> None:
    """A disk was replaced: segments without an owner record beside them would be nobody's."""
    here = site.targets[0]
    sender, last = site.at_work()
    here.stored.clear()
    here.records.clear()
    site.goes_on(last)
    sender._send_all()
    assert (set(here.segments(JOB)), here.owner() is not None) == ({last.name}, True)


def test_an_archive_at_work_ends_once_its_machine_has_another_name(site: Site) -> None:
    """`identity new` on a clone: the catalogue tells of no segment that waits, and nothing would ever be stored."""
    sender, last = site.at_work()
    site.goes_on(last)
    site.catalogue.take_identity(replace(site.catalogue.identity(), name="db2-0a1b2c3d"), Event.IDENTITY_NEW)
    assert (site.catalogue.waiting_segments(JOB), site.catalogue.archive_gaps(JOB)) == ((0, 0), []), "all looks well"
    with pytest.raises(UsageError, match="this machine is now db2-0a1b2c3d, but"):
        sender._send_all()


def test_what_ends_an_archive_is_told_by_its_alarm(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon starts it again for ever, and knows only that none is at work."""
    monkeypatch.setattr("backupd.operations.binlog.archive.give_way_archiving", lambda: None)
    shutil.rmtree(tmp_path / "spool" / JOB)
    (tmp_path / "spool" / JOB).write_text("in its place")
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store, site.store.ownership.claims))
    with pytest.raises(UsageError, match="the binlog spool cannot be used"):
        archive(JOB, BinlogConfig(), tools)
    now = datetime.now(UTC) + timedelta(minutes=20)
    record = site.catalogue.records([JOB], at=now)[JOB].archive
    (alarm,) = [one for one in archive_alarms(record, spool_limit=1 << 30, now=now) if one.about == "receiver"]
    assert "has not been received for 20 min: the binlog spool cannot be used: " in alarm.text


@pytest.mark.timeout(30)
def test_what_ends_an_archive_is_told_before_a_target_that_hangs_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.operations.binlog.archive.give_way_archiving", lambda: None)
    monkeypatch.setattr("backupd.operations.binlog.storing._END_SECONDS", 60.0)  # nobody who waits for it gets through
    stands = threading.Event()

    def is_told() -> bool:
        return site.catalogue.records([JOB], at=datetime.now(UTC))[JOB].archive.refused == "the disk is full"

    def hangs(*_given: object, **_named: object) -> None:
        stands.set()
        while not is_told():
            time.sleep(0.01)
        raise TargetAway("it hung")

    def source() -> BinlogSource:
        assert stands.wait(10)
        raise UsageError("the disk is full", hint="make room")

    monkeypatch.setattr(site.targets[0], "writing", hangs)
    claims = site.store.ownership.claims
    with pytest.raises(UsageError, match="the disk is full"):
        archive(JOB, BinlogConfig(), cast(ArchiveTools, _Tools(site.catalogue, site.store, claims, source)))


def test_what_waits_is_stored_though_no_process_gets_a_password_that_the_server_accepts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that was not changed with it: each process ends at its first try. A target that is away waits."""
    monkeypatch.setattr("backupd.operations.binlog.archive.give_way_archiving", lambda: None)
    here, there = site.targets

    def refused() -> BinlogSource:
        raise ConfigurationError("wrong password")

    def away(*_given: object, **_named: object) -> None:
        raise TargetAway("it is away")

    with monkeypatch.context() as broken:
        broken.setattr(there, "writing", away)
        receive(site, refused)
    assert set(here.segments(JOB)) == {segment.name for segment in site.segments}
    receive(site, refused)
    assert (set(there.segments(JOB)), site.spool.sizes()) == ({segment.name for segment in site.segments}, {})


def test_a_password_that_is_refused_for_good_is_told_before_what_waits_is_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That may take minutes, in which somebody may stop the process."""
    monkeypatch.setattr("backupd.operations.binlog.archive.give_way_archiving", lambda: None)

    def refused() -> BinlogSource:
        raise ConfigurationError("wrong password")

    def stopped(*_given: object, **_named: object) -> None:
        raise Cancelled("stopped by SIGTERM")

    monkeypatch.setattr(Senders, "rest", stopped)
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store, site.store.ownership.claims, refused))
    with pytest.raises(Cancelled):
        archive(JOB, BinlogConfig(), tools)
    assert "the binlog is not received: wrong password" in caplog.text
    assert site.catalogue.records([JOB], at=datetime.now(UTC))[JOB].archive.refused == "wrong password"


def receive(site: Site, source: Callable[[], BinlogSource]) -> None:
    """One process, which gets no password."""
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store, site.store.ownership.claims, source))
    with pytest.raises(ConfigurationError, match="wrong password"):
        archive(JOB, BinlogConfig(), tools)


def test_what_every_target_has_is_not_lost_where_the_spool_is_full(site: Site, tmp_path: Path) -> None:
    """Whoever makes room may look between the two rows that its last sender writes."""
    first = site.segments[0]
    for target in site.targets:
        site.catalogue.segment_stored(first.name, target.name, at=BEGAN)
    fill(site, tmp_path)
    assert not made_room(site, 100 << 20), "the chain has lost nothing"
    assert list(site.spool.sizes()) == [segment.name for segment in site.segments[1:]]
    assert site.catalogue.segment_targets(first.name) == {"here", "there"}
    assert made_room(site, 64 << 20)
    assert list(site.spool.sizes()) == [site.segments[2].name]


class Killed(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("effects", range(3))
def test_a_segment_that_was_half_dropped_waits_or_is_told_as_missing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effects: int, elsewhere: bool
) -> None:
    """A row that waits for nobody, and lies nowhere, would be taken for something that can be restored."""
    first, left = site.segments[0], effects
    if elsewhere:
        site.catalogue.segment_stored(first.name, "here", at=BEGAN)
    fill(site, tmp_path)

    def killed_in_time(act: Callable[..., None]) -> Callable[..., None]:
        def acts(*given: Any, **named: Any) -> None:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            act(*given, **named)

        return acts

    with monkeypatch.context() as dying, suppress(Killed):
        for verb in ("archive_gap", "left_spool", "forget_segments", "segment_dropped"):
            dying.setattr(site.catalogue, verb, killed_in_time(getattr(site.catalogue, verb)))
        dying.setattr(site.spool, "forget", killed_in_time(site.spool.forget))
        made_room(site, 100 << 20)
    _settle(JOB, cast(ArchiveTools, _Tools(site.catalogue, site.store)))
    waiting = {segment.name for segment in site.catalogue.spooled_segments(JOB)}
    assert set(site.spool.sizes()) == waiting
    there = site.catalogue.segment_targets(first.name)
    known = first in site.catalogue.segments(JOB)
    assert known is (first.name in waiting or bool(there))
    lacking = f"{first.chain} on there" if there else first.chain
    assert (lacking in {gap.chain for gap in site.catalogue.archive_gaps(JOB)}) is (first.name not in waiting)


def test_what_is_dropped_of_a_chain_that_had_ended_is_a_gap_from_there_on(site: Site, tmp_path: Path) -> None:
    """The log was reset while the only target was away: that gap tells nothing of what waited for it."""
    first, *_, last = site.segments
    reset = ArchiveGap(last.chain, "the log was reset", BEGAN, last.last_at)
    site.catalogue.archive_gap(JOB, reset)
    fill(site, tmp_path)
    assert not made_room(site, 64 << 20, chain="20261121T040000Z-0123abcd"), "the chain that goes on has lost nothing"
    assert list(site.spool.sizes()) == [last.name]
    gap = next(gap for gap in site.catalogue.archive_gaps(JOB) if gap != reset)
    assert reset in site.catalogue.archive_gaps(JOB)
    assert (gap.chain, gap.last_at) == (first.name.removesuffix(".binlog"), first.first_at)
    assert "the binlog spool was full" in gap.reason


def test_a_chain_that_has_lost_its_oldest_segments_to_a_full_spool_is_told_from_there_on(
    site: Site, tmp_path: Path
) -> None:
    """And not from its newest on, which waits as long as there is room for it."""
    first, *_, last = site.segments
    fill(site, tmp_path)
    assert made_room(site, 100 << 20)
    assert made_room(site, 64 << 20)
    (gap,) = site.catalogue.archive_gaps(JOB)
    assert (gap.chain, gap.last_at, list(site.spool.sizes())) == (last.chain, first.first_at, [last.name])


def test_of_several_segments_that_are_lost_with_the_spool_the_gap_tells_from_the_first_on(site: Site) -> None:
    site.spool.received.mkdir()  # it is the one that they waited in
    for segment in site.segments:
        site.spool.forget(segment.name)
    _settle(JOB, cast(ArchiveTools, _Tools(site.catalogue, site.store)))
    (gap,) = site.catalogue.archive_gaps(JOB)
    assert (gap.chain, gap.last_at) == (site.segments[0].chain, site.segments[0].first_at)


def fill(site: Site, base: Path) -> None:
    """Each of its segments takes 40 MiB."""
    for name in site.spool.sizes():
        os.truncate(base / "spool" / JOB / name, 40 << 20)


def made_room(site: Site, limit: int, *, chain: str = FIRST.chain) -> bool:
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store))
    return _Archive(JOB, BinlogConfig(spool_limit=limit), tools, Senders([])).make_room(chain)


@dataclass(frozen=True)
class _Tools:
    """What of an archive's tools makes room, and may not be had."""

    catalogue: Catalogue
    store: SegmentStore
    claims: Claims | None = None
    source: Callable[[], BinlogSource] | None = None


def test_a_server_of_a_later_series_is_a_gap_and_the_chain_goes_on(site: Site) -> None:
    """Until a backup has followed it, no later moment can be restored."""
    last = site.segments[-1]
    site.catalogue.forget_segments([last.name])
    last = replace(last, file_ended=True, format=begun_by("10.11.19-MariaDB"))
    site.catalogue.add_segment(last)
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store))
    archive = _Archive(JOB, BinlogConfig(), tools, Senders([]))
    origin = replace(last.origin, version="11.8.9-MariaDB")
    author = SegmentAuthor(last.machine, JOB, origin, (), signer())
    first = archive.keep(piece_of(upgraded(last, to=origin.version)), author, last.chain, last)
    second = archive.keep(piece_of(following(first)), author, last.chain, first)
    (gap,) = site.catalogue.archive_gaps(JOB)
    assert (gap.chain, gap.last_at) == (first.name.removesuffix(".binlog"), last.last_at)
    assert gap.reason.startswith("from binlog.000008 on the binlog was written by 11.8.9-MariaDB, a newer series")
    assert (first.chain, second.number) == (last.chain, last.number + 2)


def test_a_backup_that_is_taken_as_soon_as_the_upgraded_server_is_up_closes_the_gap(site: Site) -> None:
    """The first of its log may be received after that has begun."""
    last = replace(site.segments[-1], file_ended=True, format=begun_by("10.11.19-MariaDB"))
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store))
    up = last.received_at + timedelta(seconds=90)
    first = replace(upgraded(last, to="11.8.9-MariaDB"), format=begun_by("11.8.9-MariaDB", at=int(up.timestamp())))
    author = SegmentAuthor(last.machine, JOB, first.origin, (), signer())
    _Archive(JOB, BinlogConfig(), tools, Senders([])).keep(piece_of(first), author, last.chain, last)
    gaps = tuple(site.catalogue.archive_gaps(JOB))
    assert open_gaps(ArchiveRecord(gaps=gaps, placed_at=up + timedelta(seconds=1))) == []
    assert open_gaps(ArchiveRecord(gaps=gaps, placed_at=up - timedelta(seconds=1))) == list(gaps)


@pytest.mark.parametrize(
    ("first_at", "last_at"), [(UNSET, UNSET), (UNSET, FAR), (UNSET, LATEST)], ids=["1970", "2106", "9892"]
)
def test_what_any_client_may_date_its_transactions_is_archived_and_read(
    site: Site, tmp_path: Path, first_at: datetime, last_at: datetime
) -> None:
    """`SET timestamp = 1` on MariaDB: the line of such a segment was one that no restore and no start would read."""
    last = site.segments[-1]
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store))
    author = SegmentAuthor(last.machine, JOB, last.origin, (), signer())
    piece = replace(piece_of(following(last)), first_at=first_at, last_at=last_at)
    kept = _Archive(JOB, BinlogConfig(), tools, Senders([])).keep(piece, author, last.chain, last)
    machine = Machine("db1", {"machine-id": "a1"}, boot_id="boot")
    with Catalogue.open(tmp_path / "begun-anew.db", machine=lambda: machine) as anew:
        anew.take_identity(replace(anew.identity(), name=site.catalogue.identity().name), Event.IDENTITY_ADOPTED)
        _settle(JOB, cast(ArchiveTools, _Tools(anew, replace(site.store, catalogue=anew))))
        assert anew.latest_segment(JOB) == kept


def test_a_segment_that_as_many_can_open_as_there_may_be_recipients_is_read(site: Site) -> None:
    last, recipients = site.segments[-1], [str(x25519.Identity.generate().to_public())] * 1300
    sealed = SegmentAuthor(last.machine, JOB, last.origin, recipients, signer()).segment(
        piece_of(following(last)), chain=last.chain, before=last, at=BEGAN
    )
    assert from_line(sealed.line).recipients == tuple(recipients)


def test_what_nobody_could_read_is_not_kept(site: Site) -> None:
    """It would be found by the restore that needs it, or by every start that takes the spool up."""
    last, there = site.segments[-1], site.spool.sizes()
    tools = cast(ArchiveTools, _Tools(site.catalogue, site.store))
    author = SegmentAuthor(last.machine, JOB, last.origin, (), signer())
    piece = replace(piece_of(following(last)), file="bin'log.000007")
    with pytest.raises(ServerError, match=r"archived from byte 3004 on: .* no valid segment\.file") as told:
        _Archive(JOB, BinlogConfig(), tools, Senders([])).keep(piece, author, last.chain, last)
    assert "report it" in told.value.hint
    assert (site.spool.sizes(), site.catalogue.latest_segment(JOB)) == (there, last)


def piece_of(segment: BinlogSegment) -> CutPiece:
    told = {one.name: getattr(segment, one.name) for one in fields(CutPiece) if one.name != "events"}
    return CutPiece(**told, events=(bytes(segment.plain_bytes),))


def test_what_waits_is_not_removed_because_the_catalogue_was_lost(site: Site, tmp_path: Path) -> None:
    """The server may have purged that binlog: the spool is the only place where it is."""
    machine = Machine("db1", {"machine-id": "a1"}, boot_id="boot")
    with Catalogue.open(tmp_path / "begun-anew.db", machine=lambda: machine) as anew:
        anew.take_identity(replace(anew.identity(), name=site.catalogue.identity().name), Event.IDENTITY_ADOPTED)
        _settle(JOB, cast(ArchiveTools, _Tools(anew, replace(site.store, catalogue=anew))))
        assert anew.lacking_segments(JOB, "there") == site.segments
        assert list(site.spool.sizes()) == [segment.name for segment in site.segments]


def test_a_name_that_a_clone_has_taken_holds_up_no_later_segment(site: Site) -> None:
    here, first = site.targets[0], site.segments[0]
    site.store.ownership.adopt(here)
    with here.writing(JOB, BINLOG, first.name) as writer:
        writer.write(b"the clone's")
    _settle(JOB, cast(ArchiveTools, _Tools(site.catalogue, site.store)))
    site.sender(here)._send_all()
    assert site.catalogue.segment_targets(site.segments[-1].name) == {"here"}
    (gap,) = site.catalogue.archive_gaps(JOB)
    assert (gap.chain, "from a clone" in gap.reason) == (first.chain, True)


def test_a_segment_that_is_in_no_spool_is_compared_with_nothing(site: Site) -> None:
    """A process had stored it and died before it was recorded; then somebody emptied the spool."""
    here, first = site.targets[0], site.segments[0]
    site.store.ownership.adopt(here)
    with here.writing(JOB, BINLOG, first.name) as writer:
        writer.write(b"the same, or another's")
    site.spool.forget(first.name)
    _settle(JOB, cast(ArchiveTools, _Tools(site.catalogue, site.store)))
    (gap,) = site.catalogue.archive_gaps(JOB)
    assert (gap.chain, "lost with the binlog spool" in gap.reason) == (first.chain, True)


def test_a_segment_that_somebody_removed_from_the_spool_is_said_and_keeps_no_later_one_waiting(site: Site) -> None:
    here, (first, *others) = site.targets[0], site.segments
    site.spool.forget(first.name)
    with pytest.raises(UsageError, match=f"{first.name} is not in the binlog spool any more") as told:
        site.sender(here)._send_all()
    assert "check who removes files from binlog.spool" in (told.value.hint or "")
    assert set(here.segments(JOB)) == {segment.name for segment in others}


def test_what_another_machine_has_stored_under_a_segment_s_name_stays_and_ends_the_archive(site: Site) -> None:
    here, first = site.targets[0], site.segments[0]
    site.store.ownership.adopt(here)
    with here.writing(JOB, BINLOG, first.name) as writer:
        writer.write(b"the clone's")
    with pytest.raises(UsageError, match=f"{first.name} on target here is not the segment that is to be stored there"):
        site.sender(here)._send_all()
    assert here.stored[JOB, BINLOG, first.name] == b"the clone's"
    assert site.catalogue.segment_targets(first.name) == set()


def test_a_segment_that_a_process_had_stored_when_it_died_is_recorded_by_the_next(site: Site) -> None:
    here, first = site.targets[0], site.segments[0]
    site.store.ownership.adopt(here)
    with here.writing(JOB, BINLOG, first.name) as writer, site.spool.reading(first.name) as file:
        writer.write(file.read())
    site.sender(here)._send_all()
    assert site.catalogue.segment_targets(first.name) == {"here"}


@pytest.mark.timeout(30)
def test_a_target_that_hangs_keeps_nobody_from_receiving(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments wait for it, and nothing tells when a dead NFS server answers again: meanwhile the server purges."""
    monkeypatch.setattr("backupd.operations.binlog.storing._ANSWER_SECONDS", 0.2)
    answers = threading.Event()
    hanging, last = site.targets[0], site.segments[-1]
    for verb in ("owner", "segments"):
        monkeypatch.setattr(hanging, verb, lambda *_given, **_named: answers.wait())
    try:
        _settle(JOB, cast(ArchiveTools, _Tools(site.catalogue, site.store)))
        assert site.catalogue.spooled_segments(JOB) == site.segments
        assert not site.store.is_last(last), "it may have a later one"
    finally:
        answers.set()
