"""A probe from its first look to its row in the catalogue, over fakes: what it finds, leaves and refuses."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.load import Counters
from backupd.operations.measure.probe_steps import ProbeTelling
from backupd.operations.tools import FilesystemRoom
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    CommandError,
    ExitStatus,
    GaveUp,
    ProbeError,
    Refused,
    SnapshotError,
    SnapshotVoid,
    UsageError,
)
from backupd.vocabulary.gauges import DiskCounters, FileLoad, Mode, ProcessorTimes, Stage
from backupd.vocabulary.penalty import Reason
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.volumes import AUTO, Auto, DeviceNumber, ThinPool
from tests.fakes.lvm_host import thin_volume
from tests.story.probe_world import SMALL, ProbeWorld
from tests.story.world import World


@pytest.fixture
def probe(world: World) -> ProbeWorld:
    return ProbeWorld(world)


def test_the_table_says_how_much_slower_the_first_writes_are_and_what_stays(probe: ProbeWorld) -> None:
    rows = probe.rows(SMALL)
    assert list(rows) == [
        (Mode.DIRECT, Stage.BASELINE),
        (Mode.DIRECT, Stage.FIRST),
        (Mode.REWRITE, Stage.BASELINE),
        (Mode.REWRITE, Stage.FIRST),
        (Mode.REWRITE, Stage.SETTLED),
    ]
    assert [row.iops for row in rows.values()] == [1000, 250, 1000, 250, 1000]
    assert [row.penalty for row in rows.values()] == [None, 4, None, 4, 1]
    assert [row.repeats for row in rows.values()] == [3, 3, 3, 3, 9]
    assert all(row.spread == 0 for row in rows.values())
    assert {row.chunk_size for row in rows.values()} == {None, 4096}


def test_the_table_says_why(probe: ProbeWorld) -> None:
    rows = probe.rows(SMALL)
    with_snapshot, without = rows[Mode.DIRECT, Stage.FIRST].physical, rows[Mode.DIRECT, Stage.BASELINE].physical
    assert with_snapshot is not None
    assert without is not None
    assert with_snapshot.reads_per_write == pytest.approx(1.0, abs=0.05)
    assert with_snapshot.writes_per_write == pytest.approx(3.0, abs=0.05)
    assert without.writes_per_write == pytest.approx(1.0, abs=0.05)
    third = pytest.approx(1 / 3, abs=0.01)
    assert with_snapshot.shares == {"/dev/sdb": third, "/dev/sdc": third, "/dev/sdd": third, "/dev/sde": 0.0}


def test_a_decay_is_kept_window_by_window(probe: ProbeWorld) -> None:
    curves = probe.take().curves
    assert [curve.repeat for curve in curves] == [1, 2, 3]
    assert {curve.reason for curve in curves} == {Reason.SETTLED}
    assert [round(point.penalty or 0, 3) for point in curves[0].points] == [4, 2, 1, 1, 1]


def test_what_the_catalogue_keeps_is_what_was_measured(probe: ProbeWorld) -> None:
    measured = probe.take()
    record = probe.record()
    assert record.measurement == measured
    assert (record.status, record.job) == (RunStatus.SUCCESS, None)
    assert (measured.volume.name, measured.volume.filesystem, measured.volume.kernel) == ("labvg/data", "xfs", "6.1.0")
    assert measured.settings.chunk_size == 4096


def test_a_probe_is_no_backup_and_leaves_nothing(probe: ProbeWorld) -> None:
    probe.take()
    assert probe.world.left() == []
    with probe.world.catalogue() as catalogue:
        assert catalogue.runs() == []


def test_what_it_will_cost_is_told_before_anything_is_written(probe: ProbeWorld) -> None:
    told: list[tuple[int, int, int]] = []
    probe.take(
        telling=ProbeTelling(bill=lambda bill, _: told.append((bill.file_bytes, bill.cow_bytes // 2, probe.disk.calls)))
    )
    [(file_bytes, cow_bytes, calls)] = told
    assert file_bytes == 64 << 10
    assert cow_bytes > 64 << 10
    assert calls == 0


def test_chunk_sizes_placements_and_numbers_of_snapshots_add_rows(probe: ProbeWorld) -> None:
    request = replace(
        SMALL,
        modes=(Mode.DIRECT,),
        chunk_sizes=(4 << 10, 64 << 10),
        cow_on=("/dev/sde",),
        snapshots=(1, 2, 3),
        repeat=1,
    )
    rows = [row for row in probe.take(request).rows if row.phase is Stage.FIRST]
    assert [(row.chunk_size, row.cow_pvs, row.snapshots, row.penalty) for row in rows] == [
        (4 << 10, ("/dev/sdb",), 1, 4),
        (64 << 10, ("/dev/sdb",), 1, 4),
        (4 << 10, ("/dev/sde",), 1, 4),
        (64 << 10, ("/dev/sde",), 1, 4),
        (4 << 10, ("/dev/sdb",), 2, 8),
        (4 << 10, ("/dev/sdb",), 3, 12),
    ]
    assert probe.world.left() == []


def test_threads_add_rows(probe: ProbeWorld) -> None:
    rows = probe.take(replace(SMALL, modes=(Mode.SYNC,), threads=(1, 10), repeat=1)).rows
    assert [(row.mode, row.threads, row.phase) for row in rows] == [
        (Mode.SYNC, 1, Stage.BASELINE),
        (Mode.SYNC, 1, Stage.FIRST),
        (Mode.SYNC, 10, Stage.BASELINE),
        (Mode.SYNC, 10, Stage.FIRST),
    ]


def test_reads_are_measured_on_both_before_and_after_the_snapshot_has_filled(probe: ProbeWorld) -> None:
    rows = probe.rows(replace(SMALL, modes=(Mode.DIRECT,), reads=True, block_size=4096, repeat=1))
    assert {key: row.penalty for key, row in rows.items() if not key[0].writes} == {
        (Mode.READ, Stage.BASELINE): None,
        (Mode.READ, Stage.FIRST): 1,
        (Mode.READ, Stage.FILLED): 1,
        (Mode.READ_SNAPSHOT, Stage.FIRST): 2,
        (Mode.READ_SNAPSHOT, Stage.FILLED): 2,
        (Mode.SCAN, Stage.BASELINE): None,
        (Mode.SCAN, Stage.FIRST): 1,
        (Mode.SCAN, Stage.FILLED): 1,
        (Mode.SCAN_SNAPSHOT, Stage.FIRST): 2,
        (Mode.SCAN_SNAPSHOT, Stage.FILLED): 2,
    }
    assert probe.disk.overwrites == 1
    assert probe.world.left() == []


def test_scans_alone_read_nothing_at_random_and_write_nothing_more(probe: ProbeWorld) -> None:
    rows = probe.rows(replace(SMALL, modes=(Mode.DIRECT,), reads=True, scans_only=True, block_size=4096, repeat=1))
    assert {stage for _, stage in rows} == {Stage.BASELINE, Stage.FIRST}
    assert {mode for mode, _ in rows} == {Mode.DIRECT, Mode.SCAN, Mode.SCAN_SNAPSHOT}
    assert rows[Mode.SCAN_SNAPSHOT, Stage.FIRST].penalty == 2
    assert probe.disk.overwrites == 0
    assert probe.world.left() == []


def test_the_penalty_while_the_snapshot_is_copied_is_a_row_of_its_own(probe: ProbeWorld) -> None:
    rows = probe.rows(replace(SMALL, modes=(Mode.DIRECT,), while_copying=True, repeat=1))
    assert rows[Mode.DIRECT, Stage.COPYING].penalty == 8
    assert probe.world.left() == []


def test_a_snapshot_that_cannot_be_copied_ends_the_probe(probe: ProbeWorld) -> None:
    probe.world.host.fail("mount")
    with pytest.raises(SnapshotError, match="mount failed, as told"):
        probe.take(replace(SMALL, modes=(Mode.DIRECT,), while_copying=True))
    probe.assert_failed_and_clean()


def test_a_passive_probe_writes_nothing(probe: ProbeWorld) -> None:
    probe.world.host.on_call = lambda verb: None
    rows = probe.rows(replace(SMALL, passive=True, seconds=0.01, repeat=2, max_wait_seconds=0.2))
    assert list(rows) == [
        (Mode.PASSIVE, Stage.BASELINE),
        (Mode.PASSIVE, Stage.FIRST),
        (Mode.PASSIVE, Stage.SETTLED),
    ]
    assert probe.disk.calls == 0
    assert probe.world.left() == []


def test_a_passive_probe_tells_the_penalty_by_how_long_a_write_takes(probe: ProbeWorld) -> None:
    """Twice as many milliseconds a write are a penalty of two, whoever writes however much."""
    server = FileLoad(Mode.DIRECT, 1, 16 << 10, 8 << 20)

    def write(verb: str) -> None:
        if verb == "usage" or not any(lv.live for lv in probe.world.host.lvs.values()):
            slow = any(lv.live for lv in probe.world.host.lvs.values())
            probe.disk.serve(server, 0.01, speed=500.0 if slow else 1000.0)

    probe.counters = Writing(probe.counters, lambda: write("look"))
    probe.world.host.on_call = write
    rows = probe.rows(replace(SMALL, passive=True, seconds=0.01, repeat=1, max_wait_seconds=0.1))
    assert rows[Mode.PASSIVE, Stage.FIRST].penalty == pytest.approx(2.0, rel=0.2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", range(1, 24))
def test_a_probe_that_fails_at_any_call_leaves_nothing(probe: ProbeWorld, call: int) -> None:
    probe.disk.fail_at_call = call
    request = replace(SMALL, repeat=1, reads=True, block_size=4096, while_copying=True, modes=(Mode.DIRECT,))
    try:
        probe.take(request)
    except ProbeError:
        probe.assert_failed_and_clean()
    else:
        assert probe.disk.calls < call
        assert probe.record().status is RunStatus.SUCCESS
    assert probe.world.left() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", ["prepared", "create", "usage", "mount", "group"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_host_that_fails_at_any_verb_is_left_as_it_was(probe: ProbeWorld, verb: str, call: int) -> None:
    probe.world.host.fail(verb, at_call=call)
    with pytest.raises(BackupdError):
        probe.take(replace(SMALL, reads=True, block_size=4096))
    record = probe.record()
    assert record.status in (RunStatus.FAILED, RunStatus.REFUSED)
    assert probe.world.left() == []


def test_a_snapshot_that_overflows_ends_the_probe(probe: ProbeWorld) -> None:
    probe.during = lambda: probe.world.host.write(2 << 30)
    with pytest.raises(SnapshotVoid, match="overflowed"):
        probe.take()
    probe.assert_failed_and_clean()


def test_no_window_begins_once_the_guard_has_ended_the_probe(probe: ProbeWorld) -> None:
    """It may do so while the probe looks at the disks, and nothing is there yet that it could interrupt."""
    begun: list[int] = []

    def look() -> None:
        if not any(lv.live for lv in probe.world.host.lvs.values()):
            return
        if threading.current_thread().name == "guard":
            raise CommandError("the disk is gone")
        for guard in [thread for thread in threading.enumerate() if thread.name == "guard"]:
            guard.join(30)
        begun.append(probe.disk.calls)

    probe.counters = Writing(probe.counters, look)
    with pytest.raises(ProbeError, match="the disk is gone"):
        probe.take()
    assert set(begun) == {probe.disk.calls}
    probe.assert_failed_and_clean()


def test_a_probe_that_is_cancelled_in_mid_window_leaves_nothing(probe: ProbeWorld) -> None:
    def cancel() -> None:
        if any(lv.live for lv in probe.world.host.lvs.values()):
            raise Cancelled("cancelled by SIGINT")

    probe.during = cancel
    with pytest.raises(Cancelled):
        probe.take()
    probe.assert_failed_and_clean(RunStatus.CANCELLED)


def test_a_probe_that_died_is_cleaned_up_by_the_next_one(probe: ProbeWorld) -> None:
    class Killed(BaseException):
        """No code of ours runs after it."""

    def die() -> None:
        if any(lv.live for lv in probe.world.host.lvs.values()):
            probe.world.host.fail("remove", at_call=probe.world.host.calls["remove"] + 1)
            raise Killed

    probe.during = die
    with pytest.raises(Killed):
        probe.take()
    assert probe.world.left() != []
    probe.during = lambda: None
    probe.take(run_id="p2")
    assert probe.world.left() == []


def test_a_volume_that_a_run_holds_is_busy(probe: ProbeWorld) -> None:
    with probe.world.tools.claims.volume_group("labvg", "r1"), pytest.raises(Busy, match="labvg"):
        probe.take()
    probe.assert_failed_and_clean(RunStatus.BUSY)


def read_only(probe: ProbeWorld) -> None:
    probe.world.room = FilesystemRoom(1 << 40, 1 << 40, read_only=True)


def too_full(probe: ProbeWorld) -> None:
    probe.world.room = FilesystemRoom(free=(64 << 10) + 100, total=1 << 30, read_only=False)


def loaded(probe: ProbeWorld) -> None:
    probe.load_average = 9.0


def snapshotted(probe: ProbeWorld) -> None:
    probe.world.host.add_foreign_snapshot("holland")


def no_extents(probe: ProbeWorld) -> None:
    probe.world.host.free_by_pv = {"/dev/sdb": 0}


def incomplete(probe: ProbeWorld) -> None:
    probe.world.host.missing = {"O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFmI0"}


def resyncing(probe: ProbeWorld) -> None:
    probe.world.host.volume = replace(probe.world.host.volume, conditions=("resync",))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (read_only, "read-only"),
        (too_full, "not enough space"),
        (loaded, "load average is 9.0"),
        (snapshotted, "already has a snapshot: holland"),
        (no_extents, "not enough space for snapshots"),
        (resyncing, "resync"),
        (incomplete, "LVM finds no disk for O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFmI0 of labvg"),
    ],
)
def test_what_is_refused_has_touched_nothing(
    probe: ProbeWorld, spoil: Callable[[ProbeWorld], None], words: str
) -> None:
    spoil(probe)
    with pytest.raises(Refused, match=words) as refused:
        probe.take(replace(SMALL, max_load=8.0))
    assert refused.value.hint
    assert refused.value.exit_status is ExitStatus.REFUSED
    assert probe.disk.calls == 0
    assert probe.world.host.calls["prepared"] == 0
    probe.assert_failed_and_clean(RunStatus.REFUSED)


def test_a_file_system_whose_snapshot_cannot_be_mounted_is_refused_where_that_is_read(probe: ProbeWorld) -> None:
    probe.world.filesystem = "ext3"
    for run_id, request in (("p1", replace(SMALL, reads=True)), ("p2", replace(SMALL, while_copying=True))):
        with pytest.raises(Refused, match="ext3: backupd can only mount snapshots of xfs and ext4"):
            probe.take(request, run_id=run_id)
    assert probe.disk.calls == 0
    probe.take(SMALL, run_id="p3")


def test_a_pv_of_another_group_is_refused(probe: ProbeWorld) -> None:
    with pytest.raises(Refused, match="is not a PV of"):
        probe.take(replace(SMALL, cow_on=("/dev/sdz",)))
    assert probe.disk.calls == 0


def test_a_thin_volume_has_the_chunks_of_its_pool(probe: ProbeWorld) -> None:
    volume = probe.world.host.volume
    pool = ThinPool("pool", "u", 64 << 10, volume.size, 4 << 20, volume.segments)
    probe.world.host.volume = replace(volume, pool=pool)
    with pytest.raises(UsageError, match="thin"):
        probe.take(replace(SMALL, chunk_sizes=(4096,)))
    assert probe.disk.calls == 0


@pytest.mark.parametrize(
    ("size", "passive", "extents"),
    [(AUTO, False, 3), (AUTO, True, 20), (SnapshotSize(percent_of_origin=20.0), False, 20)],
)
def test_of_the_groups_last_tenth_a_probe_takes_no_more_than_it_needs_unless_it_is_asked_to(
    probe: ProbeWorld, size: SnapshotSize | Auto, passive: bool, extents: int
) -> None:
    """20 of 170 extents are free: a thin pool of the group may have to grow by 17 of them."""
    probe.snapshot = SnapshotConfig(chunk_size=4 << 10, size=size)
    probe.world.host.free_by_pv = {"/dev/sde": 20}
    assert probe.take(replace(SMALL, passive=passive)).settings.cow_size == extents * (4 << 20)


def test_a_pool_that_is_too_full_or_would_be_is_refused(probe: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup refuses it, too: every volume of a full pool stands still, or fails."""
    size = probe.world.host.volume.size
    full, brink = size * 95 // 100, size * 9 // 10 - 4096
    for run_id, used, request in (("p0", full, replace(SMALL, passive=True)), ("p1", brink, SMALL)):
        probe.world.host.volume = thin_volume(used=used)
        with pytest.raises(
            Refused, match=r"thin pool labvg/pool is 9\d% full.*; the limit of a probe without a job is 90%"
        ) as refused:
            probe.take(request, run_id=run_id)
        assert "lvextend --size +SIZE labvg/pool" in refused.value.hint
        assert ("--file-size" in refused.value.hint) is (used == brink)
        assert "limits.max_cow_fill" in refused.value.hint
    of_job = replace(probe.subject, job="nightly")
    monkeypatch.setattr(ProbeWorld, "subject", of_job)
    with pytest.raises(Refused, match=r"; limits\.max_cow_fill of job nightly is 90%"):
        probe.take(SMALL, run_id="p3")
    assert probe.disk.calls == 0
    assert probe.world.host.calls["prepared"] == 0
    probe.world.host.volume = thin_volume(used=size * 89 // 100)
    probe.take(SMALL, run_id="p2")


@pytest.mark.parametrize("passive", [False, True])
def test_a_pool_that_fills_while_a_probe_is_made_ends_it(probe: ProbeWorld, passive: bool) -> None:
    probe.world.host.volume = thin_volume(used=probe.world.host.volume.size * 85 // 100)
    probe.world.at["host.usage"] = lambda: probe.world.host.write(20 << 20)
    with pytest.raises(GaveUp, match=r"thin pool labvg/pool is 9\d% full, the limit is 90%: the probe has stopped"):
        probe.take(replace(SMALL, passive=passive))
    probe.assert_failed_and_clean()


def test_a_pool_whose_metadata_fills_while_a_probe_is_made_ends_it(probe: ProbeWorld) -> None:
    probe.world.host.volume = thin_volume()
    probe.world.at["host.usage"] = lambda: probe.world.host.fill_metadata(0.92)
    with pytest.raises(GaveUp, match="the metadata of thin pool labvg/pool is 92% full, the limit is 90%"):
        probe.take(SMALL)
    probe.assert_failed_and_clean()


def test_pages_about_a_probe_can_be_found_by_its_folder(probe: ProbeWorld) -> None:
    """The probe's file lies on the volume itself, where its chunks are copied on write."""
    seen: list[Path] = []
    probe.during = lambda: seen.extend(probe.world.mount_root.glob(".backupd-probe-p1/test_file.0"))
    probe.take(replace(SMALL, repeat=1))
    assert seen


class Writing:
    """Counters that let somebody write before each look."""

    def __init__(self, counters: Counters, write: Callable[[], None]) -> None:
        self.counters, self.write = counters, write

    def disk(self, device: DeviceNumber) -> DiskCounters:
        self.write()
        return self.counters.disk(device)

    def processors(self) -> ProcessorTimes:
        return self.counters.processors()

    def number_of(self, path: Path) -> DeviceNumber:
        return self.counters.number_of(path)
