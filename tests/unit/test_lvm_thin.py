"""Snapshots of thin volumes: when there is room for one, what takes and confirms it, and when its pool gives out."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backupd.lvm import Mark, devicemapper, report, thin
from backupd.lvm.devicemapper import MappedDevice, TableLine
from backupd.lvm.snapshots import LvmSnapshots
from backupd.policy.snapshot_plan import free_bytes, plan_snapshot
from backupd.vocabulary.errors import SnapshotError, SnapshotVoid, UnexpectedOutput
from backupd.vocabulary.volumes import (
    CowUsage,
    DeviceNumber,
    Layout,
    PvsGone,
    Snapshot,
    SnapshotPlan,
    ThinPool,
    Volume,
    VolumeGroup,
)
from tests.fakes.lvm_host import thin_volume
from tests.fakes.target import MACHINE

DATA = Path(__file__).parent.parent / "data" / "lvm"
ANSWERS: dict[str, str] = json.loads((DATA / "devicemapper.json").read_text())
MIB = 1 << 20
NO_EXTENTS = VolumeGroup("labvg", 4 * MIB, 0, {"/dev/sda": 0})


def answer(name: str) -> MappedDevice:
    return devicemapper.parse_table(bytes.fromhex(ANSWERS[name]))


def recorded(name: str, volume: str = "thin") -> Volume:
    """A volume of a report that LVM 2.03.16 printed."""
    return next(v for v in report.parse_volumes((DATA / f"{name}.json").read_text()) if v.name == volume)


def pool_of(volume: Volume) -> ThinPool:
    assert volume.pool is not None
    return volume.pool


# --- what is reported ------------------------------------------------------------------------------------------------


def test_thin_volume_lies_on_disks_as_its_pool_does() -> None:
    found = recorded("volumes_thin")
    assert [segment.kind for segment in found.segments] == ["thin"]
    assert [segment.kind for segment in found.physical_segments] == ["striped", "linear"]
    assert (found.layout, found.stripes, found.stripe_size) == (Layout.MIXED, 3, 65536)
    assert found.devices == ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd", "/dev/ubde")


def test_pool_is_told_with_its_size_and_how_full_it_is() -> None:
    pool = pool_of(recorded("volumes_thin"))
    assert (pool.name, pool.chunk_size, pool.size, pool.metadata_size) == ("pool", 65536, 116 * MIB, 4 * MIB)
    assert pool.used == pytest.approx(20 * MIB, abs=pool.size / 10000)
    assert pool.metadata_fill == pytest.approx(114 / 1024, abs=0.0001)


def test_classic_volume_beside_a_pool_has_none() -> None:
    assert recorded("volumes_thin", "data").pool is None


def test_thin_snapshots_are_no_classic_ones_and_ours_are_known_by_their_tags() -> None:
    assert recorded("volumes_thin").snapshots == ()
    tagged = {lv.name: lv.mark for lv in report.parse_tagged((DATA / "volumes_thin.json").read_text())}
    assert (tagged["backupd-r1"], tagged["thinsnap"], tagged["thin"]) == (MARK, None, None)


def test_thin_snapshots_of_a_volume_are_named_active_or_not() -> None:
    found = recorded("volumes_thin_foreign", "t")
    assert (found.thin_snapshots, found.snapshots) == (("tsnap",), ())
    assert recorded("volumes_thin").thin_snapshots == ("backupd-r1", "thinsnap")


def test_pool_tells_what_becomes_of_writes_when_it_is_full() -> None:
    text = (DATA / "volumes_thin_foreign.json").read_text()
    for word in ("queue", "error"):
        pool = pool_of(next(v for v in report.parse_volumes(text.replace('"queue"', f'"{word}"')) if v.name == "t"))
        assert pool.when_full == word


def test_pool_that_is_out_of_room_forbids_a_snapshot_of_each_of_its_volumes() -> None:
    assert recorded("volumes_thin_full").conditions == ("pool pool: out_of_data",)
    assert recorded("volumes_thin_full", "data").conditions == ()


def test_pool_whose_fill_nobody_knows_counts_as_full() -> None:
    text = (DATA / "volumes_thin.json").read_text().replace('"data_percent":"17.24"', '"data_percent":""')
    assert pool_of(next(v for v in report.parse_volumes(text) if v.name == "thin")).free == 0


def test_fill_is_no_part_of_what_a_pool_is() -> None:
    assert recorded("volumes_thin") == replace(recorded("volumes_thin"), pool=thin_copy(used=1))


def thin_copy(*, used: int) -> ThinPool:
    return replace(pool_of(recorded("volumes_thin")), used=used)


# --- when there is room ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    percent_of_origin: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Settings:
    size: Size
    chunk_size: int = 16 << 10
    pvs: tuple[str, ...] = ()
    stripes: int = 1
    pvs_gone: PvsGone = PvsGone.REFUSE


def plan(volume: Volume, size: Size | None = None, *, pvs: tuple[str, ...] = ()) -> SnapshotPlan:
    return plan_snapshot(volume, NO_EXTENTS, "r1", Settings(size or Size(percent_of_origin=20), pvs=pvs))


def test_stripes_are_the_pools() -> None:
    with pytest.raises(SnapshotError, match="have the stripes of that pool") as caught:
        plan_snapshot(thin_volume(), NO_EXTENTS, "r1", Settings(Size(percent_of_origin=20), stripes=2))
    assert caught.value.hint == "omit snapshot.stripes"


def test_thin_snapshot_takes_no_extents_and_the_pools_chunk_size() -> None:
    volume = thin_volume()
    made = plan(volume)
    assert (made.name, made.extents, made.pvs) == ("backupd-r1", 0, ())
    assert (made.size, made.chunk_size) == (pool_of(volume).size, 64 << 10)


def test_room_that_is_asked_for_must_be_free_in_the_pool() -> None:
    almost = thin_volume(used=480 * MIB)
    assert plan(almost, Size(bytes=120 * MIB)).extents == 0
    with pytest.raises(SnapshotError, match=r"thin pool labvg/pool: need 121\.0 MiB, have 120\.0 MiB") as caught:
        plan(almost, Size(bytes=121 * MIB))
    assert "lvextend --size +SIZE labvg/pool" in caught.value.hint


def test_no_more_room_is_needed_than_the_whole_origin() -> None:
    assert plan(thin_volume(used=0), Size(bytes=1 << 50)).extents == 0


@pytest.mark.parametrize(("mebibytes", "refused"), [(25, False), (26, True)])
def test_pool_with_little_metadata_left_is_refused(mebibytes: int, refused: bool) -> None:
    volume = thin_volume(metadata_used=mebibytes * MIB)  # of 32
    if not refused:
        assert plan(volume).extents == 0
        return
    with pytest.raises(SnapshotError, match="metadata of thin pool labvg/pool is 81% full") as caught:
        plan(volume)
    assert "--poolmetadatasize" in caught.value.hint


def test_thin_snapshot_cannot_lie_on_chosen_disks() -> None:
    with pytest.raises(SnapshotError, match="is thin") as caught:
        plan(thin_volume(), pvs=("/dev/sda",))
    assert caught.value.hint == "omit snapshot.pvs"


def test_free_bytes_are_those_of_the_pool_or_of_the_group() -> None:
    group = VolumeGroup("labvg", 4 * MIB, 10, {"/dev/sda": 7, "/dev/sdb": 3})
    volume = thin_volume(used=480 * MIB)
    assert free_bytes(volume, group) == 120 * MIB
    assert free_bytes(replace(volume, pool=None), group) == 40 * MIB
    assert free_bytes(replace(volume, pool=None), group, ("/dev/sdb",)) == 12 * MIB


# --- what takes and confirms it --------------------------------------------------------------------------------------

PLAN = plan(
    replace(thin_volume(), uuid=recorded("volumes_thin").uuid, pool=recorded("volumes_thin").pool), Size(bytes=MIB)
)
MARK = Mark(MACHINE, PLAN.run_id)
ORIGIN, SNAPSHOT = answer("thin_table"), answer("thin_snapshot_table")
PREFIX = ORIGIN.uuid[:36]
POOL_UUID = answer("pool").uuid


def test_line_is_tagged_waits_for_nobody_and_says_no_size() -> None:
    argv = thin.line_argv(PLAN, MARK)
    assert argv[-1] == "labvg/data"
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--addtag"] == [*MARK.tags]
    assert "global/wait_for_locks=0" in argv[argv.index("--config") + 1]
    assert {"-L", "-l", "--size", "--extents"}.isdisjoint(argv)  # with a size it would be a classic one


def test_nothing_is_made_before_the_line_and_the_rehearsal_is_the_line_without_effect() -> None:
    assert thin.preparing(PLAN, MARK) == []
    assert [word for word in thin.line_argv(PLAN, MARK, rehearsal=True) if word != "--test"] == thin.line_argv(
        PLAN, MARK
    )


def kernel(
    monkeypatch: pytest.MonkeyPatch,
    *,
    snapshot: MappedDevice | None = SNAPSHOT,
    origin: MappedDevice | None = ORIGIN,
    pool: MappedDevice | None = None,
) -> None:
    """A kernel with these devices; the statuses are recorded ones where nothing else is given."""
    status = replace(answer("thin"), uuid=SNAPSHOT.uuid)
    shown = {
        (ORIGIN.uuid, True): origin,
        (SNAPSHOT.uuid, False): snapshot and status,
        (POOL_UUID, False): pool or answer("pool"),
    }
    monkeypatch.setattr(devicemapper, "by_name", lambda name, table: snapshot)
    monkeypatch.setattr(devicemapper, "by_uuid", lambda uuid, table=False: shown[(uuid, table)])


def test_snapshot_is_confirmed_by_its_live_table_beside_its_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch)
    snapshot = thin.confirmed(PLAN, PREFIX)
    assert snapshot is not None
    assert (snapshot.uuid, snapshot.device) == (SNAPSHOT.uuid, SNAPSHOT.device)
    assert (snapshot.size, snapshot.chunk_size) == (116 * MIB, 64 << 10)


def table(device: MappedDevice, kind: str, words: str) -> MappedDevice:
    return replace(device, targets=(TableLine(kind, words),))


@pytest.mark.parametrize(
    ("snapshot", "origin"),
    [
        pytest.param(None, ORIGIN, id="no device"),
        pytest.param(SNAPSHOT, None, id="no origin"),
        pytest.param(replace(SNAPSHOT, suspended=True), ORIGIN, id="snapshot suspended"),
        pytest.param(SNAPSHOT, replace(ORIGIN, suspended=True), id="origin suspended"),
        pytest.param(table(SNAPSHOT, "snapshot", "254:1 254:2 P 128"), ORIGIN, id="classic"),
        pytest.param(table(SNAPSHOT, "thin", "254:9 3"), ORIGIN, id="of another pool"),
        pytest.param(table(SNAPSHOT, "thin", "254:3 1"), ORIGIN, id="the origin itself"),
        pytest.param(SNAPSHOT, table(ORIGIN, "snapshot-origin", "254:3"), id="origin no thin volume"),
        pytest.param(replace(SNAPSHOT, uuid="LVM-" + "o" * 64), ORIGIN, id="of another volume group"),
    ],
)
def test_nothing_less_than_a_live_snapshot_in_the_same_pool_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, snapshot: MappedDevice | None, origin: MappedDevice | None
) -> None:
    kernel(monkeypatch, snapshot=snapshot, origin=origin)
    assert thin.confirmed(PLAN, PREFIX) is None


# --- how full it is --------------------------------------------------------------------------------------------------

TAKEN = Snapshot(PLAN.origin, PLAN.name, SNAPSHOT.uuid, "r1", Path("/dev/x"), DeviceNumber(254, 6), 116 * MIB, 64 << 10)


def pool_with(status: str) -> MappedDevice:
    return table(answer("pool"), "thin-pool", status)


def test_usage_is_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch)
    usage = LvmSnapshots(MACHINE).require_intact(TAKEN)
    assert usage == CowUsage(True, 20 * MIB, 116 * MIB, 0, "active", 114 / 1024)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("4 123/1024 1856/1856 - out_of_data_space no_discard_passdown queue_if_no_space - 256 ", "pool out_of_data"),
        ("4 123/1024 320/1856 - ro no_discard_passdown queue_if_no_space needs_check 256 ", "pool ro"),
        ("4 973/1024 320/1856 - rw no_discard_passdown queue_if_no_space - 256 ", "pool metadata 95% full"),
        ("Fail", "pool Fail"),
        ("Error", "pool Error"),
    ],
)
def test_pool_that_gives_out_ends_the_run(monkeypatch: pytest.MonkeyPatch, status: str, state: str) -> None:
    kernel(monkeypatch, pool=pool_with(status))
    with pytest.raises(SnapshotVoid, match=state) as caught:
        LvmSnapshots(MACHINE).require_intact(TAKEN)
    assert "lvextend" in caught.value.hint


def test_pool_that_was_full_is_told_so_in_the_recorded_answer() -> None:
    usage = devicemapper.pool_usage(answer("pool_full"), 64 << 10)
    assert (usage.intact, usage.used, usage.total) == (False, 116 * MIB, 116 * MIB)


def test_snapshot_or_pool_that_is_gone_or_became_something_else_is_not_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, snapshot=None)
    assert thin.usage(TAKEN).state == "gone"
    kernel(monkeypatch, pool=table(answer("pool"), "linear", "8:0 0"))
    assert thin.usage(TAKEN).state == "pool linear"
    assert devicemapper.pool_usage(None, 4096).state == "pool gone"
    failed = replace(answer("thin"), targets=(TableLine("thin", "Fail"),))
    monkeypatch.setattr(devicemapper, "by_uuid", lambda uuid: failed)
    assert thin.usage(TAKEN).state == "thin Fail"


@pytest.mark.parametrize("status", ["", "1 2 3", "1 a/b 1/2 - rw", "1 0/0 1/2 - rw"])
def test_status_of_a_pool_of_unknown_form_is_shown(status: str) -> None:
    with pytest.raises(UnexpectedOutput, match=f"could not be parsed: {status}"):
        devicemapper.pool_usage(pool_with(status), 4096)
