"""What LVM's one report of everything is understood to say; every report here was printed by LVM 2.03.16."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.lvm import empty_disks, fullreport, report
from backupd.lvm.fullreport import parse_landscape
from backupd.lvm.refusals import LOOK
from backupd.vocabulary.errors import SnapshotError, UnexpectedOutput
from backupd.vocabulary.extents import HiddenVolume, Landscape, Occupied, PlacedGroup, PlacedVolume, VolumeKind
from backupd.vocabulary.volumes import Layout, Volume

DATA = Path(__file__).parent.parent / "data" / "lvm"
STATES = sorted(path.stem.removeprefix("full_") for path in DATA.glob("full_*.json"))


def recorded(state: str) -> str:
    return (DATA / f"full_{state}.json").read_text()


def landscape(state: str) -> Landscape:
    return parse_landscape(recorded(state))


def group(state: str) -> PlacedGroup:
    return next(one for one in landscape(state).groups if one.room.name == "labvg")


def volume(state: str, name: str) -> PlacedVolume:
    return next(one for one in group(state).volumes if one.volume.name == name)


def lies_on(one: PlacedVolume | HiddenVolume) -> list[tuple[int, int, str, int, list[str]]]:
    """First and last extent, type, stripes, and where each stripe or leg lies."""
    return [
        (part.first, part.last, part.kind, part.stripes, ["+".join(map(str, place)) for place in part.places])
        for part in one.segments
    ]


def parts(one: PlacedVolume) -> dict[str, tuple[str, list[str]]]:
    """What each hidden LV is, and the extents that it lies on."""
    return {
        part.name: (part.role, [str(piece) for segment in part.segments for place in segment.places for piece in place])
        for part in one.parts
    }


# --- what must not be taken for a report ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"report": [{"vg": [{}], "pv": [], "seg": []}]}'])
def test_report_that_is_not_understood_is_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        parse_landscape(text)
    assert (text or "(empty)") in caught.value.message


def test_range_that_is_no_range_is_not_understood() -> None:
    with pytest.raises(UnexpectedOutput, match="could not be parsed"):
        parse_landscape(recorded("striped").replace("/dev/ubdb:0-341", "/dev/ubdb"))


def test_host_without_lvm_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("backupd.host.process._environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(SnapshotError, match="LVM could not report: program not found: lvm") as caught:
        fullreport.landscape()
    assert caught.value.hint == "install the package that has lvm"


@pytest.mark.parametrize("asked", [fullreport.landscape, empty_disks.physical_volumes])
def test_a_report_that_lvm_does_not_give_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: Callable[[], object]
) -> None:
    for name in ("lvm", "pvs"):
        (tmp_path / name).write_text("#!/bin/sh\necho sorry >&2\nexit 5\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("backupd.host.process._environment", lambda: {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    with pytest.raises(SnapshotError, match=r"LVM could not report: .* ended with status 5: sorry") as caught:
        asked()
    assert caught.value.hint == LOOK


def test_host_without_groups_has_none() -> None:
    assert parse_landscape('{"report": []}') == Landscape(())


# --- how volumes lie --------------------------------------------------------------------------------------------------


def test_segments_of_a_mixed_volume_are_told_in_order_with_the_extents_of_each_stripe() -> None:
    assert lies_on(volume("mixed", "own")) == [
        (0, 5, "striped", 2, ["/dev/ubdd:342-344", "/dev/ubdc:342-344"]),  # as it was made, not as disks are named
        (6, 10, "linear", 1, ["/dev/ubde:10-14"]),
        (11, 14, "striped", 2, ["/dev/ubdb:342-343", "/dev/ubdd:345-346"]),
    ]
    assert [segment.stripe_size for segment in volume("mixed", "own").segments] == [32 << 10, 0, 32 << 10]
    assert volume("mixed", "own").extents == 15


def test_segments_are_in_order_whatever_the_report_s() -> None:
    document = json.loads(recorded("mixed"))
    for section in document["report"]:
        for rows in section.values():
            rows.reverse()
    turned = parse_landscape(json.dumps(document)).groups[0]
    assert turned.volumes == group("mixed").volumes


def test_legs_of_a_raid1_are_followed_to_their_disks_piece_by_piece() -> None:
    mirror = volume("raid", "mirror")
    assert lies_on(mirror) == [(0, 7, "raid1", 1, ["/dev/ubdc:343-346+/dev/ubdc:349-352", "/dev/ubdd:343-350"])]
    assert parts(mirror) == {
        "mirror_rimage_0": ("raid image", ["/dev/ubdc:343-346", "/dev/ubdc:349-352"]),
        "mirror_rimage_1": ("raid image", ["/dev/ubdd:343-350"]),
        "mirror_rmeta_0": ("raid metadata", ["/dev/ubdc:342-342"]),
        "mirror_rmeta_1": ("raid metadata", ["/dev/ubdd:342-342"]),
    }


def test_pool_lies_as_its_data_does_and_its_volumes_lie_nowhere_else() -> None:
    pool, thin = volume("thin", "pool"), volume("thin", "thin")
    assert (pool.kind, thin.kind) == (VolumeKind.POOL, VolumeKind.THIN_VOLUME)
    assert lies_on(pool) == [
        (0, 15, "striped", 2, ["/dev/ubdb:343-350", "/dev/ubdc:342-349"]),
        (16, 18, "linear", 1, ["/dev/ubde:10-12"]),
    ]
    assert parts(pool) == {
        "pool_tdata": ("thin pool data", ["/dev/ubdb:343-350", "/dev/ubdc:342-349", "/dev/ubde:10-12"]),
        "pool_tmeta": ("thin pool metadata", ["/dev/ubdc:350-350"]),
    }
    assert lies_on(thin) == [(0, 24, "thin", 1, [])]
    assert (pool.volume.layout, thin.volume.layout) == (Layout.MIXED, Layout.MIXED)


@pytest.mark.parametrize(
    ("state", "segments", "serving"),
    [
        (
            "cache",
            [(0, 7, "striped", 2, ["/dev/ubdc:342-345", "/dev/ubdd:342-345"])],
            {
                "warm_corig": ("cache origin", ["/dev/ubdc:342-345", "/dev/ubdd:342-345"]),
                "fast_cpool": ("cache", ["/dev/ubdb:346-351"]),
                "fast_cpool_cdata": ("cache pool data", ["/dev/ubdb:346-351"]),
                "fast_cpool_cmeta": ("cache pool metadata", ["/dev/ubdb:344-345"]),
            },
        ),
        (
            "writecache",
            [(0, 7, "linear", 1, ["/dev/ubde:18-25"])],
            {
                "warm_wcorig": ("writecache origin", ["/dev/ubde:18-25"]),
                "fast_cvol": ("cache", ["/dev/ubdb:342-347"]),
            },
        ),
    ],
)
def test_cached_volume_lies_as_what_is_cached_and_has_its_cache_as_a_part(
    state: str, segments: object, serving: object
) -> None:
    warm = volume(state, "warm")
    assert (lies_on(warm), parts(warm)) == (segments, serving)


def test_volume_on_the_move_lies_on_both_disks() -> None:
    data = volume("pvmove", "data")
    assert lies_on(data)[0][4] == ["/dev/ubdb:0-341", "/dev/ubdc:0-341", "/dev/ubdd:0-341+/dev/ubde:0-341"]
    assert (list(parts(data)), data.volume.conditions) == (["pvmove0"], ("pvmove",))


def in_order(one: Volume) -> Volume:
    """LVM names snapshots in an order of its own."""
    return replace(one, snapshots=tuple(sorted(one.snapshots)), thin_snapshots=tuple(sorted(one.thin_snapshots)))


@pytest.mark.parametrize("state", STATES)
def test_volumes_are_those_that_a_run_sees(state: str) -> None:
    """Both reports have the same rows; a run sees those that are active only."""
    for one in landscape(state).groups:
        told = {in_order(placed.volume) for placed in one.volumes if placed.active}
        rows = next(
            section["seg"]
            for section in json.loads(recorded(state))["report"]
            if section.get("vg") and section["vg"][0]["vg_name"] == one.room.name
        )
        assert told == set(map(in_order, report.parse_volumes(json.dumps({"report": [{"seg": rows}]}))))


@pytest.mark.parametrize("state", STATES)
def test_every_extent_of_every_disk_is_told_once(state: str) -> None:
    for one in landscape(state).groups:
        for pv in one.pvs:
            ends = [piece.first + piece.count for piece in pv.occupied]
            assert [piece.first for piece in pv.occupied] == [0, *ends[:-1]]
            assert ends[-1] == pv.extents
            assert sum(piece.count for piece in pv.occupied if not (piece.volume or piece.part)) == pv.free


@pytest.mark.parametrize("state", STATES)
def test_what_lies_on_disks_is_what_segments_and_parts_say(state: str) -> None:
    """From the other side: each volume's extents, by the PVs' own list."""
    for one in landscape(state).groups:
        for placed in one.volumes:
            said = {
                (piece.pv, extent)
                for segments in (placed.segments, *(part.segments for part in placed.parts))
                for segment in segments
                for place in segment.places
                for piece in place
                for extent in range(piece.first, piece.last + 1)
            }
            found = {
                (pv.name, extent)
                for pv in one.pvs
                for piece in pv.occupied
                if piece.volume == placed.volume.name
                for extent in range(piece.first, piece.first + piece.count)
            }
            assert said == found


# --- what else is told ------------------------------------------------------------------------------------------------


def test_inactive_volume_is_told_and_marked() -> None:
    found = {one.volume.name: one.active for one in group("thin_inactive").volumes}
    assert found == {
        "backupd-r2": False,
        "data": True,
        "idle": False,
        "pool": False,
        "thin": False,
        "thin_snap": False,
    }


def test_fill_of_a_pool_that_is_not_active_is_unknown_and_counts_as_full() -> None:
    pool = volume("thin_inactive", "thin").volume.pool
    assert pool is not None
    assert pool.free == 0


def test_snapshots_are_told_with_their_origin() -> None:
    kinds = {one.volume.name: (one.kind, one.origin) for one in group("snapshots").volumes}
    assert kinds["backupd-r1"] == kinds["theirs"] == (VolumeKind.SNAPSHOT, "own")
    assert kinds["own"] == (VolumeKind.VOLUME, "")
    assert volume("thin", "thin_snap").kind is VolumeKind.THIN_SNAPSHOT
    assert volume("thin", "thin_snap").origin == "thin"
    assert volume("cache", "warm").origin == ""  # LVM names what is cached there


def test_spare_of_a_pool_s_metadata_is_the_group_s() -> None:
    assert [part.name for part in group("thin").spares] == ["lvol0_pmspare"]
    assert Occupied(342, 1, "", "lvol0_pmspare") in group("thin").pvs[0].occupied


def test_unattached_cache_pool_is_a_volume_of_its_own() -> None:
    fast = volume("cachepool", "fast")
    assert (fast.kind, fast.active, list(parts(fast))) == (VolumeKind.POOL, False, ["fast_cdata", "fast_cmeta"])


def test_group_without_volumes_and_disk_without_group() -> None:
    foreign, labvg = landscape("foreign").groups
    assert (foreign.room.name, foreign.room.extent_size, foreign.room.free_extents) == ("foreign", 1 << 20, 63)
    assert foreign.volumes == ()
    assert labvg.room.name == "labvg"
    (unused,) = landscape("unused").unused
    assert (unused.name, unused.size, unused.extents) == ("/dev/loop0", 64 << 20, 0)


def test_exported_group_is_told_so() -> None:
    assert [(one.room.name, one.exported) for one in landscape("exported").groups] == [
        ("foreign", True),
        ("labvg", False),
    ]


def test_disk_that_takes_no_allocations_has_free_extents_and_no_room() -> None:
    last = group("raid").pvs[-1]
    assert (last.name, last.free, last.allocatable) == ("/dev/ubde", 458, False)
    assert "/dev/ubde" not in group("raid").room.free_by_pv


def test_missing_disk_is_told_and_its_extents_are_the_volume_s_still() -> None:
    found = group("partial")
    assert [(pv.name, pv.missing) for pv in found.pvs][-1] == ("[unknown]", True)
    assert lies_on(found.volumes[0])[0][4] == ["/dev/ubdb:0-341", "/dev/ubdc:0-341", "[unknown]:0-341"]
    assert found.volumes[0].volume.conditions == ("partial",)
