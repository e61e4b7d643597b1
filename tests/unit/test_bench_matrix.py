"""What a bench will do, before it does it: layouts, loads, room, cost, and what it refuses."""

from dataclasses import replace

import pytest

from backupd.cli import quantities
from backupd.policy.bench_cost import PROBE_FILE_SIZE
from backupd.policy.bench_plan import Disks, bench_plan_of, group_disks, whole_disks
from backupd.policy.bench_request import require_sound
from backupd.policy.snapshot_plan import complete_cow_bytes
from backupd.vocabulary.benches import LEAST_SIZE, BenchRequest, Cell, PublishedTable
from backupd.vocabulary.errors import BackupdError, Refused, UsageError
from backupd.vocabulary.scratch_layouts import KIB, MIB, LayoutKind, Medium, Operation
from backupd.vocabulary.volumes import VolumeGroup

EXTENT = 4 * MIB
GROUP = Disks("vg0", EXTENT, {"/dev/c": 200, "/dev/a": 200, "/dev/b": 200})
WHOLE = whole_disks({"/dev/x": 1 << 30, "/dev/y": 1 << 30}, 512)
IN_GROUP = BenchRequest(vg="vg0", file_size=256 * MIB)
ON_DISKS = BenchRequest(array_disks=("/dev/x", "/dev/y"), file_size=256 * MIB)


def names(request: BenchRequest, disks: Disks = GROUP) -> list[str]:
    return [volume.layout.name for volume in bench_plan_of(request, disks).volumes]


def cells(request: BenchRequest, layout: str, disks: Disks = GROUP) -> tuple[Cell, ...]:
    [found] = [volume.cells for volume in bench_plan_of(request, disks).volumes if volume.layout.name == layout]
    return found


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_linear_comes_first_and_then_ever_more_stripes_over_the_disks_in_the_order_of_their_names() -> None:
    plan = bench_plan_of(IN_GROUP, GROUP)
    assert plan.disks == ("/dev/a", "/dev/b", "/dev/c")
    assert [(volume.layout.name, volume.layout.disks) for volume in plan.volumes] == [
        ("linear", ("/dev/a",)),
        ("striped-2x64k", ("/dev/a", "/dev/b")),
        ("striped-3x64k", ("/dev/a", "/dev/b", "/dev/c")),
    ]


def test_named_disks_keep_their_order() -> None:
    plan = bench_plan_of(replace(IN_GROUP, pvs=("/dev/c", "/dev/a")), GROUP)
    assert [volume.layout.disks for volume in plan.volumes] == [("/dev/c",), ("/dev/c", "/dev/a")]


def test_a_disk_that_cannot_hold_a_whole_volume_is_used_only_when_it_is_named() -> None:
    group = replace(GROUP, free_by_disk={"/dev/a": 200, "/dev/b": 200, "/dev/c": 60})
    assert bench_plan_of(IN_GROUP, group).disks == ("/dev/a", "/dev/b")
    assert bench_plan_of(replace(IN_GROUP, pvs=("/dev/a", "/dev/b", "/dev/c")), group).disks[-1] == "/dev/c"


def test_widths_and_stripe_sizes_that_are_asked_for_are_all_combined() -> None:
    request = replace(IN_GROUP, widths=(3,), stripe_sizes=(256 * KIB, 64 * KIB))
    assert names(request) == ["linear", "striped-3x64k", "striped-3x256k"]


def test_named_disks_get_an_lv_and_an_array_of_all_of_them() -> None:
    plan = bench_plan_of(replace(ON_DISKS, stripe_sizes=(64 * KIB, 128 * KIB)), WHOLE)
    assert plan.vg == ""
    assert [(volume.layout.name, volume.size > 0) for volume in plan.volumes] == [
        ("striped-2x64k", True),
        ("raid0-2x64k", False),
        ("striped-2x128k", True),
        ("raid0-2x128k", False),
    ]


# --- loads -----------------------------------------------------------------------------------------------------------


def test_the_usual_tables_need_ten_loads_of_the_two_that_are_compared_by_writers_and_none_twice() -> None:
    """The layouts between linear and the widest get those of E2 and E3 alone."""
    small, large = 16 * KIB, MIB
    expected = (
        Cell(Operation.WRITE, large),
        Cell(Operation.REWRITE, large),
        Cell(Operation.READ, large),
        Cell(Operation.RANDOM_READ, small),
        Cell(Operation.WRITE, small, 1),
        Cell(Operation.WRITE, small, 2),
        Cell(Operation.WRITE, small, 6),
        Cell(Operation.RANDOM_WRITE, small, 1),
        Cell(Operation.RANDOM_WRITE, small, 2),
        Cell(Operation.RANDOM_WRITE, small, 6),
    )
    assert [volume.cells for volume in bench_plan_of(IN_GROUP, GROUP).volumes] == [expected, expected[:4], expected]


def test_the_device_itself_is_measured_before_there_is_a_file_system() -> None:
    media = [cell.medium for cell in cells(replace(IN_GROUP, raw=True, tables=(PublishedTable.E3,)), "linear")]
    assert media == [Medium.RAW, Medium.RAW, Medium.FILE, Medium.FILE]


def test_threads_that_are_asked_for_are_those_of_e4_and_the_most_of_them_is_that_of_e5() -> None:
    request = replace(IN_GROUP, tables=(PublishedTable.E4, PublishedTable.E5), threads=(8, 4), records=(MIB,))
    found = cells(request, "linear")
    assert {cell.threads for cell in found if cell.record == 16 * KIB} == {4, 8}
    assert {cell.threads for cell in found if cell.record == MIB} == {8}


def test_record_sizes_are_compared_on_linear_and_on_the_widest_alone() -> None:
    request = replace(IN_GROUP, tables=(PublishedTable.E5,), stripe_sizes=(64 * KIB, 256 * KIB))
    assert names(request) == ["linear", "striped-3x64k", "striped-3x256k"]
    assert len(cells(request, "linear")) == 4 * len(request.records)


def test_an_array_is_compared_by_record_sizes() -> None:
    for layout in ("striped-2x64k", "raid0-2x64k"):
        assert [cell.record for cell in cells(ON_DISKS, layout, WHOLE)[::4]] == list(ON_DISKS.records)


def test_records_that_the_disks_do_not_take_are_left_out_and_that_is_said() -> None:
    plan = bench_plan_of(replace(IN_GROUP, tables=(PublishedTable.E5,)), replace(GROUP, sector_size=4096))
    assert min(cell.record for volume in plan.volumes for cell in volume.cells) == 8 * KIB
    assert plan.notes == ("records of 1 KiB are skipped: direct I/O on these disks needs multiples of 4096 bytes",)
    with pytest.raises(Refused, match="nothing is left to measure"):
        bench_plan_of(replace(IN_GROUP, tables=(PublishedTable.E5,), records=(KIB,)), replace(GROUP, sector_size=4096))


# --- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filesystem", list(LEAST_SIZE))
@pytest.mark.parametrize("file_size", [MIB, 16 * MIB, 256 * MIB, 8 << 30])
def test_every_volume_has_whole_extents_on_each_stripe_and_room_for_its_files(filesystem: str, file_size: int) -> None:
    request = replace(IN_GROUP, filesystem=filesystem, file_size=file_size)
    disks = replace(GROUP, free_by_disk=dict.fromkeys(("/dev/a", "/dev/b", "/dev/c", "/dev/d", "/dev/e"), 1 << 20))
    plan = bench_plan_of(request, disks)
    for volume in plan.volumes:
        assert volume.size % (volume.layout.width * EXTENT) == 0
        assert volume.size >= LEAST_SIZE[filesystem]
        assert volume.size * 0.95 > file_size + PROBE_FILE_SIZE + 64 * MIB
        assert volume.size <= plan.volume_size


@pytest.mark.parametrize("chunk_size", [4 * KIB, 64 * KIB, 512 * KIB])
def test_where_snapshots_are_planned_a_probe_has_the_room_that_it_asks_for(chunk_size: int) -> None:
    """It wants twice what it fills. An LV over all of the named disks may leave nothing for that."""
    planned = set()
    for extents in range(51, 70):
        disks = Disks("", EXTENT, dict.fromkeys(ON_DISKS.array_disks, extents))
        plan = bench_plan_of(ON_DISKS, disks)
        planned.add(plan.snapshots)
        left = 2 * extents * EXTENT - plan.volume_size
        assert not plan.snapshots or left >= 2 * complete_cow_bytes(PROBE_FILE_SIZE, chunk_size)
    assert planned == {True, False}


def test_without_room_beside_a_volume_snapshots_are_left_out_and_that_is_said() -> None:
    plan = bench_plan_of(ON_DISKS, Disks("", EXTENT, dict.fromkeys(ON_DISKS.array_disks, 52)))
    assert plan.notes == (
        "snapshots are skipped: next to the largest scratch volume 2 extents are free for one, 18 are needed",
    )


def test_no_snapshots_are_made_where_none_were_asked_for() -> None:
    plan = bench_plan_of(replace(IN_GROUP, snapshots=False), GROUP)
    assert (plan.snapshots, plan.notes) == (False, ())
    assert plan.volume_size < bench_plan_of(IN_GROUP, GROUP).volume_size


def test_of_an_array_there_are_no_snapshots_and_that_is_said() -> None:
    plan = bench_plan_of(ON_DISKS, WHOLE)
    assert plan.snapshots
    assert plan.notes == ("no snapshots of RAID-0: it is not a logical volume",)


def test_a_volume_group_tells_its_free_extents() -> None:
    assert group_disks(VolumeGroup("vg0", EXTENT, 600, GROUP.free_by_disk), 512) == replace(GROUP, spare=600)


# --- cost ------------------------------------------------------------------------------------------------------------


def test_the_bill_of_a_usual_bench() -> None:
    """Ten loads, four and ten, three times each; on each layout a file, and five windows of a probe."""
    plan = bench_plan_of(IN_GROUP, GROUP)
    files = 256 * MIB / 150e6 * (1 + 1 / 2 + 1 / 3)
    assert plan.seconds == pytest.approx(3 * (6 + 8 + 5) + 3 * 24 * 1.3 + files)
    assert plan.seconds == pytest.approx(sum(volume.seconds for volume in plan.volumes))
    windows = 3 * 150_000_000 * (8 * 1 + 2 * 2 + 8 * 3)  # eight of the ten write, two of the four
    probes = 3 * PROBE_FILE_SIZE + 2 * 150_000_000 * (1 + 2 + 3)
    assert plan.written == 3 * 256 * MIB + windows + probes


def test_longer_windows_and_more_repeats_cost_more() -> None:
    usual = bench_plan_of(IN_GROUP, GROUP)
    for request in (replace(IN_GROUP, seconds=2.0), replace(IN_GROUP, repeat=4), replace(IN_GROUP, raw=True)):
        plan = bench_plan_of(request, GROUP)
        assert plan.seconds > usual.seconds
        assert plan.written > usual.written


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (BenchRequest(), "give a volume group or disks"),
        (replace(ON_DISKS, vg="vg0"), "give a volume group or disks"),
        (replace(ON_DISKS, pvs=("/dev/a",)), "--pvs needs a volume group, and --md uses none"),
        (replace(IN_GROUP, overwrite_leftovers=True), "--overwrite-leftovers belongs to --md"),
        (BenchRequest(array_disks=("/dev/x",)), "one disk only: /dev/x"),
        (BenchRequest(array_disks=("/dev/x", "/dev/x")), "--md names /dev/x twice"),
        (replace(IN_GROUP, pvs=("/dev/a", "/dev/b", "/dev/a")), "--pvs names /dev/a twice"),
        (replace(IN_GROUP, filesystem="btrfs"), "no 'btrfs'"),
        (replace(IN_GROUP, file_size=0), "--size 0 B is not a multiple"),
        (replace(IN_GROUP, file_size=MIB + 512), "--size 1049088 B is not a multiple of a record of 1 MiB"),
        (replace(IN_GROUP, tables=(PublishedTable.E5,), file_size=8 * MIB), "not a multiple of a record of 16 MiB"),
        (
            replace(IN_GROUP, tables=(PublishedTable.E5,), records=(48 * KIB, MIB)),
            "not a multiple of a record of 48 KiB",
        ),
        (replace(IN_GROUP, records=(256,)), "--records: 256 bytes is not a valid block size"),
        (replace(IN_GROUP, records=(1000,)), "--records: 1000 bytes is not a valid block size"),
        (replace(IN_GROUP, stripe_sizes=(2 * KIB,)), "--stripe-sizes: 2 KiB is not a stripe size that LVM accepts"),
        (replace(IN_GROUP, stripe_sizes=(96 * KIB,)), "--stripe-sizes: 96 KiB is not a stripe size that LVM accepts"),
        (replace(IN_GROUP, stripe_sizes=(8 * MIB,)), "--stripe-sizes: 8 MiB is larger than an extent"),
        (replace(IN_GROUP, stripe_sizes=()), "--stripe-sizes is empty"),
        (replace(IN_GROUP, widths=(1, 2)), "--widths are 2 or more"),
        (replace(IN_GROUP, widths=(4,)), "--widths: no 4 stripes on 3 disks"),
        (replace(IN_GROUP, threads=(0,)), "--threads are 1 or more"),
        (replace(IN_GROUP, seconds=0.0), "--seconds is above 0"),
        (replace(IN_GROUP, seconds=float("nan")), "--seconds is above 0"),
        (replace(IN_GROUP, repeat=0), "--repeat 1 or more"),
        (replace(IN_GROUP, raw=True, tables=(PublishedTable.E4,)), "--raw measures table e3"),
    ],
)
def test_what_cannot_be_asked_for_is_a_fault_of_usage(request_: BenchRequest, words: str) -> None:
    with pytest.raises(UsageError, match=words) as fault:
        bench_plan_of(request_, GROUP)
    assert fault.value.hint


@pytest.mark.parametrize("records", [(KIB, 16 * MIB), (48 * KIB, MIB)])
def test_the_size_that_is_proposed_can_be_asked_for(records: tuple[int, ...]) -> None:
    request = replace(IN_GROUP, tables=(PublishedTable.E2, PublishedTable.E5), records=records, file_size=MIB)
    with pytest.raises(UsageError, match="is not a multiple of a record of") as fault:
        require_sound(request)
    option, word = fault.value.hint.split()[-2:]
    require_sound(replace(request, file_size=quantities.size(option, word)))


def test_an_array_has_all_of_its_disks() -> None:
    three = whole_disks(dict.fromkeys(("/dev/x", "/dev/y", "/dev/z"), 1 << 30), 512)
    request = replace(ON_DISKS, array_disks=("/dev/x", "/dev/y", "/dev/z"))
    with pytest.raises(UsageError, match="no 2 stripes on 3 disks"):
        bench_plan_of(replace(request, widths=(2,)), three)
    assert {volume.layout.width for volume in bench_plan_of(request, three).volumes} == {3}


def group_of(**free: int) -> Disks:
    return Disks("vg0", EXTENT, {f"/dev/{name}": extents for name, extents in free.items()})


@pytest.mark.parametrize(
    ("pvs", "disks", "words"),
    [
        ((), group_of(), "vg0 has room for a scratch volume on none of its PVs.* there are: none"),
        ((), group_of(a=0, b=0), "on none of its PVs.*: 101 free extents .* 0 on /dev/a, 0 on /dev/b"),
        ((), group_of(a=300), "on /dev/a, and striping needs two: 101 free extents .* 300 on /dev/a"),
        ((), group_of(a=300, b=100), "on /dev/a, and striping needs two"),
        (("/dev/a",), GROUP, "one PV only: /dev/a; striping needs two"),
        (("/dev/a", "/dev/q"), GROUP, "/dev/q: not a usable PV of vg0"),
        (("/dev/a", "/dev/b"), group_of(a=100, b=300), "on /dev/a: the linear scratch volume needs 101, have 100"),
        (("/dev/a", "/dev/b"), group_of(a=300, b=50), "on /dev/b: the striped-2x64k scratch volume needs 51, have 50"),
    ],
)
def test_what_this_host_has_no_room_for_is_refused(pvs: tuple[str, ...], disks: Disks, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        bench_plan_of(replace(IN_GROUP, pvs=pvs), disks)
    assert refused.value.hint


@pytest.mark.parametrize(("whole", "told"), [(500, False), (4000, True)])
def test_a_plan_says_so_when_it_takes_of_a_groups_last_tenth(whole: int, told: bool) -> None:
    group = VolumeGroup("vg0", EXTENT, 500, {"/dev/a": 250, "/dev/b": 250}, all_extents=whole)
    notes = bench_plan_of(IN_GROUP, group_disks(group, 512)).notes
    assert ("it takes extents of the last tenth of vg0" in " ".join(notes)) is told


def test_pvs_are_named_by_any_path_or_by_uuid() -> None:
    group = VolumeGroup(
        *("vg0", EXTENT, 400, {"/dev/a": 200, "/dev/b": 200}),
        pv_uuids={"/dev/b": "uuid"},
        same_device=lambda *paths: paths == ("/dev/disk/by-id/wwn-a", "/dev/a"),
    )
    disks = group_disks(group, 512, names=("/dev/disk/by-id/wwn-a", "/dev/a", "uuid"))
    assert bench_plan_of(replace(IN_GROUP, pvs=("/dev/disk/by-id/wwn-a", "uuid")), disks).disks == ("/dev/a", "/dev/b")
    with pytest.raises(Refused, match="--pvs names /dev/a twice"):
        bench_plan_of(replace(IN_GROUP, pvs=("/dev/disk/by-id/wwn-a", "/dev/a")), disks)


def test_disks_that_are_too_small_are_refused() -> None:
    with pytest.raises(
        BackupdError, match="/dev/y is too small: striped-2x64k needs 204 MiB of it, 96 MiB can be used"
    ):
        bench_plan_of(ON_DISKS, whole_disks({"/dev/x": 1 << 30, "/dev/y": 100 * MIB}, 512))


def test_every_kind_of_layout_is_planned_somewhere() -> None:
    planned = [*bench_plan_of(IN_GROUP, GROUP).volumes, *bench_plan_of(ON_DISKS, WHOLE).volumes]
    assert {volume.layout.kind for volume in planned} == set(LayoutKind)
