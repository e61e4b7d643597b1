"""A bench from its first look to its row in the catalogue, over fakes: what it finds, leaves and refuses."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from backupd.operations.measure.bench_steps import BenchTelling
from backupd.vocabulary.benches import BenchRequest, Cell, DiskSample, PublishedTable
from backupd.vocabulary.errors import Busy, Cancelled, ExitStatus, ProbeError, Refused, SnapshotError, UsageError
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.scratch_layouts import KIB, MIB, Medium, Operation
from tests.story.bench_world import ON_DISKS, SHORT, SMALL, BenchWorld
from tests.story.world import World


@pytest.fixture
def bench(world: World) -> BenchWorld:
    return BenchWorld(world)


@pytest.fixture
def on_disks(world: World) -> BenchWorld:
    return BenchWorld.with_disks(world)


def test_striping_pays_for_large_records_and_for_many_writers(bench: BenchWorld) -> None:
    found = bench.take()
    large, many, one = (
        Cell(Operation.WRITE, MIB),
        Cell(Operation.RANDOM_WRITE, 16 * KIB, 6),
        Cell(Operation.RANDOM_WRITE, 16 * KIB),
    )

    def gain(cell: Cell) -> float:
        linear, striped = found.find("linear", cell), found.find("striped-3x64k", cell)
        assert linear is not None
        assert striped is not None
        return striped.bytes_per_second / linear.bytes_per_second

    assert [layout.name for layout in found.layouts] == ["linear", "striped-2x64k", "striped-3x64k"]
    assert gain(large) > 2.3
    assert gain(many) > 2.3
    assert gain(one) == pytest.approx(1.0, abs=0.05)


def test_every_load_that_was_planned_is_measured_on_its_layout_as_often_as_asked(bench: BenchWorld) -> None:
    plan, found = bench.plan(), bench.take()
    assert [(cell.layout, cell.cell) for cell in found.cells] == [
        (volume.layout.name, cell) for volume in plan.volumes for cell in volume.cells
    ]
    assert {cell.repeats for cell in found.cells} == {2}


@pytest.mark.parametrize("file_size", [16 * MIB, 512 * MIB])
def test_no_more_of_the_group_is_taken_than_was_told(bench: BenchWorld, file_size: int) -> None:
    request = replace(SHORT, file_size=file_size)
    room = bench.tools.snapshots.group("labvg")
    free = []
    bench.during = lambda: free.append(bench.tools.snapshots.group("labvg").free_extents)
    bench.take(request)
    taken = (room.free_extents - min(free)) * room.extent_size
    assert bench.plan(request).volume_size < taken <= bench.plan(request).taken


def test_each_round_has_every_load_once(bench: BenchWorld) -> None:
    bench.take()
    on_linear = [cell for layout, cell in bench.loads.cells if layout == "linear"]
    assert on_linear[: len(on_linear) // 2] == on_linear[len(on_linear) // 2 :]
    assert len(set(on_linear)) == len(on_linear) // 2


def test_the_disks_shares_add_up_to_what_the_loads_moved(bench: BenchWorld) -> None:
    for cell in bench.take().cells:
        assert sum(cell.shares.values()) == pytest.approx(1.0, abs=0.02)
        busy = {disk for disk, share in cell.shares.items() if share}
        assert len(busy) == int(cell.layout[len("striped-")]) if cell.layout != "linear" else busy == {"/dev/sdb"}


def test_a_rewritten_record_counts_once(bench: BenchWorld) -> None:
    for cell in bench.take().cells:
        assert cell.bytes_per_second == pytest.approx(cell.iops * cell.record)


def test_the_catalogue_keeps_what_was_found_and_nothing_is_left(bench: BenchWorld) -> None:
    found = bench.take()
    record = bench.record()
    assert (record.status, record.bench) == (RunStatus.SUCCESS, found)
    assert bench.world.left() == []
    with bench.world.catalogue() as catalogue:
        assert catalogue.runs() == []  # it is no backup


def test_what_a_layout_means_for_backups_is_a_probe_of_its_own(bench: BenchWorld) -> None:
    found = bench.take()
    assert [(one.layout, one.probe_run_id, one.penalty) for one in found.snapshots] == [
        ("linear", "b1-1", 4.0),
        ("striped-2x64k", "b1-2", 4.0),
        ("striped-3x64k", "b1-3", 4.0),
    ]
    linear, _, widest = found.snapshots
    assert (linear.origin_read, linear.snapshot_read) == (100.0 * MIB, 25.0 * MIB)
    assert widest.snapshot_read == 75.0 * MIB
    with bench.world.catalogue() as catalogue:
        probe = catalogue.probe("b1-3")
        assert probe.measurement is not None
        assert probe.measurement.volume.name == "labvg/backupd-b1-striped-3x64k"
        assert probe.measurement.volume.stripes == 3


def test_without_snapshots_there_are_no_probes(bench: BenchWorld) -> None:
    assert bench.take(replace(SMALL, snapshots=False)).snapshots == ()
    with bench.world.catalogue() as catalogue:
        assert catalogue.probes() == []


def test_the_device_is_measured_while_it_has_no_file_system(bench: BenchWorld) -> None:
    formatted: list[bool] = []
    bench.during = lambda: formatted.append(any(one.filesystem for one in bench.host.scratch.values()))
    request = replace(SMALL, tables=(PublishedTable.E3,), raw=True, repeat=1, snapshots=False, widths=(2,))
    found = bench.take(request)
    assert [cell.medium for cell in found.cells] == 2 * [Medium.RAW, Medium.RAW, Medium.FILE, Medium.FILE]
    assert formatted == 2 * [False, False, True, True]
    assert found.host.fio == "3.33"


def test_one_scratch_volume_is_there_at_a_time_and_the_server_s_is_not_touched(bench: BenchWorld) -> None:
    before, there = bench.host.volume, set[tuple[str, ...]]()
    bench.during = lambda: there.add(tuple(bench.host.scratch))
    bench.take()
    assert there == {("backupd-b1-linear",), ("backupd-b1-striped-2x64k",), ("backupd-b1-striped-3x64k",)}
    assert bench.host.volume == before


def test_a_reader_is_told_what_the_figures_depend_on(bench: BenchWorld) -> None:
    found = bench.take()
    assert found.notes == (
        "load average at the start: 0.5",
        "16 MiB of data, 2 GiB of RAM: caches are bypassed (O_DIRECT), except those of the disks themselves",
    )
    assert (found.settings.vg, found.settings.filesystem, found.settings.tables) == ("labvg", "xfs", ("e2", "e3", "e4"))


def test_somebody_else_s_requests_are_seen_and_said(bench: BenchWorld) -> None:
    bench.during = lambda: bench.loads.move("/dev/sdc", written=50 * MIB)
    notes = bench.take().notes
    assert [note for note in notes if "something else used them" in note] == [notes[-1]]


def test_the_disks_are_watched_all_the_time_and_every_sample_says_what_was_done(
    bench: BenchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.load.disk_watch._SHORTEST_SECONDS", 1e-9)
    told: list[DiskSample] = []
    steps: list[str] = []
    found = bench.take(telling=BenchTelling(step=steps.append, disks=told.append))
    assert list(found.samples) == told[: len(found.samples)]
    assert {sample.layout for sample in found.samples if sample.layout} == {layout.name for layout in found.layouts}
    write = next(one for one in found.samples if one.step == "write of 1 MiB, 1 thread, round 2 of 2")
    assert write.layout == "linear"
    assert write.written["/dev/sdb"] > 0
    assert steps[:4] == [
        "linear: creating the volume",
        "linear: creating its xfs",
        "linear: writing the test file",
        "linear: write of 1 MiB, 1 thread, round 1 of 2",
    ]
    assert "linear: probe: round 1: reads without a snapshot" in steps
    assert steps[-1] == "striped-3x64k: removing the volume"


# --- on named disks --------------------------------------------------------------------------------------------------


def test_named_disks_carry_a_group_and_then_an_array_and_are_empty_afterwards(on_disks: BenchWorld) -> None:
    on_them: set[tuple[str, ...]] = set()
    on_disks.during = lambda: on_them.add(on_disks.disks.contents("/dev/sdy"))
    found = on_disks.take(ON_DISKS)
    assert [layout.name for layout in found.layouts] == ["striped-2x64k", "raid0-2x64k"]
    assert on_them == {("LVM2_member",), ("linux_raid_member",)}
    assert {cell.layout for cell in found.cells} == {"striped-2x64k", "raid0-2x64k"}
    assert [one.layout for one in found.snapshots] == ["striped-2x64k"]
    assert "no snapshots of RAID-0: it is not a logical volume" in found.notes
    assert (found.settings.vg, found.settings.disks, found.host.mdadm) == ("", ("/dev/sdx", "/dev/sdy"), "4.2")
    assert on_disks.disks.contents("/dev/sdx") == on_disks.disks.contents("/dev/sdy") == ()
    assert on_disks.world.left() == []


def test_disks_that_another_bench_has_are_busy(on_disks: BenchWorld) -> None:
    agreed = on_disks.plan(ON_DISKS)
    with on_disks.tools.claims.disks(("/dev/sdy",), "b0"), pytest.raises(Busy, match="run b0"):
        on_disks.take(ON_DISKS, agreed=agreed)
    on_disks.assert_failed_and_clean(RunStatus.BUSY)


# --- what is refused has touched nothing -----------------------------------------------------------------------------


def loaded(bench: BenchWorld) -> None:
    bench.load_average = 9.0


def no_extents(bench: BenchWorld) -> None:
    bench.host.free_by_pv = dict.fromkeys(bench.host.free_by_pv, 0)


def one_pv(bench: BenchWorld) -> None:
    bench.host.free_by_pv = {"/dev/sdb": 200}


def no_sysbench(bench: BenchWorld) -> None:
    bench.missing = "sysbench"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (loaded, "load average is 9.0, the limit is 8"),
        (no_extents, "striping needs two: 75 free extents are needed on each, and there are: 0 on /dev/sdb"),
        (one_pv, "striping needs two"),
        (no_sysbench, "sysbench is not installed"),
    ],
)
def test_what_is_refused_has_touched_nothing(
    bench: BenchWorld, spoil: Callable[[BenchWorld], None], words: str
) -> None:
    request = replace(SMALL, pvs=(), max_load=8.0)
    agreed = bench.plan(request)
    spoil(bench)
    for attempt in (lambda: bench.plan(request), lambda: bench.take(request, agreed=agreed)):
        with pytest.raises(Refused, match=words) as refused:
            attempt()
        assert refused.value.hint
        assert refused.value.exit_status is ExitStatus.REFUSED
    assert bench.loads.calls == 0
    assert bench.host.calls["create_scratch"] == 0
    bench.assert_failed_and_clean(RunStatus.REFUSED)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(SMALL, vg="nope"), "no volume group nope"),
        (replace(SMALL, pvs=("/dev/sdb", "/dev/sdz")), "/dev/sdz: not a usable PV of labvg"),
        (replace(SMALL, raw=True), "fio is not installed"),
        (replace(ON_DISKS, array_disks=("/dev/sdx", "/dev/sdq")), "/dev/sdq does not exist"),
        (replace(ON_DISKS, array_disks=("/dev/sdx", "/dev/held")), "/dev/held is not empty: it has ext4"),
        (replace(ON_DISKS, array_disks=("/dev/sdx", "/dev/full")), "/dev/full is not empty: it has data"),
        (replace(ON_DISKS, array_disks=("/dev/sdx", "/dev/alias")), "/dev/sdx is given twice"),
    ],
)
def test_what_this_host_has_not_is_refused(bench: BenchWorld, request_: BenchRequest, words: str) -> None:
    bench.missing = "fio"
    bench.disks.sizes["/dev/full"] = 1 << 30
    bench.disks.leftovers.add("/dev/full")
    bench.disks.sizes["/dev/held"], bench.disks.held["/dev/held"] = 1 << 30, "ext4"
    bench.disks.aliases["/dev/alias"] = "/dev/sdx"
    with pytest.raises(Refused, match=words):
        bench.plan(request_)
    assert bench.world.left() == []


def test_an_array_needs_mdadm_before_anything_is_touched(on_disks: BenchWorld) -> None:
    on_disks.missing = "mdadm"
    with pytest.raises(Refused, match="mdadm is not installed") as refused:
        on_disks.plan(ON_DISKS)
    assert refused.value.hint == "apt-get install mdadm"


def test_what_no_host_has_is_a_fault_of_usage(bench: BenchWorld) -> None:
    with pytest.raises(UsageError, match="is not a multiple of a record of"):
        bench.plan(replace(SMALL, file_size=MIB + 512))
    assert bench.host.calls["group"] == 0


def test_a_plan_that_is_no_longer_the_one_that_was_agreed_to_is_not_carried_out(bench: BenchWorld) -> None:
    request = replace(SMALL, pvs=())
    agreed = bench.plan(request)
    bench.host.free_by_pv["/dev/sdc"] = 10
    with pytest.raises(Refused, match="the plan would be different now"):
        bench.take(request, agreed=agreed)
    bench.assert_failed_and_clean(RunStatus.REFUSED)
    assert bench.host.calls["create_scratch"] == 0


def test_a_foreign_volume_of_our_name_is_refused_and_left(bench: BenchWorld) -> None:
    bench.host.hidden.add("backupd-b1-striped-3x64k")
    with pytest.raises(Refused, match="striped-3x64k already exists"):
        bench.take()
    bench.assert_failed_and_clean(RunStatus.REFUSED)
    assert bench.host.calls["create_scratch"] == 0


def test_a_group_that_another_run_has_is_busy(bench: BenchWorld) -> None:
    with bench.tools.claims.volume_group("labvg", "r1"), pytest.raises(Busy, match="labvg is held by run r1"):
        bench.take()
    bench.assert_failed_and_clean(RunStatus.BUSY)


def test_while_a_bench_measures_its_group_is_claimed(bench: BenchWorld) -> None:
    holders: set[str | None] = set()
    bench.during = lambda: holders.add(bench.tools.claims.holder_of_volume_group("labvg"))
    bench.take()
    assert [str(holder).startswith("run b1 ") for holder in holders] == [True]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_load_that_fails_is_the_bench_s_failure(bench: BenchWorld) -> None:
    bench.loads.fail_at_call = 30
    with pytest.raises(ProbeError, match="call 30") as failed:
        bench.take()
    assert failed.value.exit_status is ExitStatus.PROBE
    assert failed.value.hint
    bench.assert_failed_and_clean()


def test_a_probe_that_fails_is_too_and_has_a_row_of_its_own(bench: BenchWorld) -> None:
    bench.probed.fail_at_call = 3
    with pytest.raises(ProbeError, match="call 3"):
        bench.take()
    bench.assert_failed_and_clean()
    with bench.world.catalogue() as catalogue:
        assert catalogue.probe("b1-1").status is RunStatus.FAILED


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", range(1, 13))
@pytest.mark.parametrize("which", ["loads", "probe"])
def test_a_bench_that_fails_at_any_call_leaves_nothing(bench: BenchWorld, which: str, call: int) -> None:
    disk = bench.loads if which == "loads" else bench.probed
    disk.fail_at_call = call
    try:
        bench.take(SHORT)
    except ProbeError:
        bench.assert_failed_and_clean()
    else:
        assert disk.calls < call
        assert bench.record().status is RunStatus.SUCCESS
    assert bench.world.left() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize(
    "verb", ["group", "require_unused", "create_scratch", "format", "mount_scratch", "prepared", "create", "mount"]
)
def test_a_host_that_fails_at_any_verb_is_left_as_it_was(
    bench: BenchWorld, verb: str, call: int, after_effect: bool
) -> None:
    agreed = bench.plan(SHORT)
    bench.host.fail(verb, at_call=bench.host.calls[verb] + call, after_effect=after_effect)
    with pytest.raises((SnapshotError, Refused)):
        bench.take(SHORT, agreed=agreed)
    assert bench.record().bench is None
    assert bench.world.left() == []


@pytest.mark.parametrize("verb", ["require_distinct", "require_empty", "make_group", "make_array"])
def test_disks_that_fail_at_any_verb_are_left_as_they_were(on_disks: BenchWorld, verb: str) -> None:
    agreed = on_disks.plan(ON_DISKS)
    on_disks.disks.fails = verb
    with pytest.raises((SnapshotError, Refused), match=verb):
        on_disks.take(ON_DISKS, agreed=agreed)
    assert on_disks.disks.contents("/dev/sdx") == ()
    on_disks.assert_failed_and_clean(on_disks.record().status)


@pytest.mark.parametrize("where", ["in a load's window", "in a probe's window"])
def test_a_bench_that_is_cancelled_in_mid_window_leaves_nothing(bench: BenchWorld, where: str) -> None:
    def cancel() -> None:
        if where == "in a load's window" or bench.host.lvs:
            raise Cancelled("cancelled by SIGINT")

    bench.during = cancel
    with pytest.raises(Cancelled):
        bench.take()
    bench.assert_failed_and_clean(RunStatus.CANCELLED)


def test_a_disk_that_goes_away_ends_the_bench(bench: BenchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.during = lambda: setattr(bench.loads, "names", ("/dev/sdb",))
    with pytest.raises(ProbeError, match="no device 8:32"):
        bench.take()
    bench.assert_failed_and_clean()


def test_what_cannot_be_removed_is_named_and_wants_attention(bench: BenchWorld) -> None:
    """The figures are good; a volume that is mounted cannot be removed either, and the row of both stays."""
    bench.host.fail("unmount", at_call=2)
    found = bench.take(replace(SHORT, snapshots=False))
    record = bench.record()
    assert (record.status, record.bench) == (RunStatus.ATTENTION, found)
    with bench.world.catalogue() as catalogue:
        said = catalogue.run("b1").attention
    assert len(said) == 2
    assert "unmount failed" in said[0]
    assert "contains a filesystem in use" in said[1]
    assert bench.world.left() != []
    bench.recover()
    assert bench.world.left() == []
