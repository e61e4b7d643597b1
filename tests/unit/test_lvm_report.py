"""What LVM's reports are understood to say; every report here was printed by LVM 2.03.16."""

import json
from pathlib import Path

import pytest

from backupd.lvm import Mark, fullreport, report, run_of_tags
from backupd.vocabulary.errors import UnexpectedOutput
from backupd.vocabulary.volumes import DeviceNumber, Layout, Volume
from tests.fakes.target import MACHINE

DATA = Path(__file__).parent.parent / "data" / "lvm"


def recorded(name: str) -> str:
    return (DATA / f"{name}.json").read_text()


def volume(state: str, name: str = "data") -> Volume:
    return next(v for v in report.parse_volumes(recorded(f"volumes_{state}")) if v.name == name)


def test_striped_volume_is_told_with_its_stripes_and_disks() -> None:
    found = volume("striped")
    assert (found.layout, found.stripes, found.stripe_size) == (Layout.STRIPED, 3, 65536)
    assert found.devices == ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd")
    assert (found.full_name, found.path, found.device) == ("labvg/data", Path("/dev/labvg/data"), DeviceNumber(254, 0))
    assert (found.size, found.snapshots, found.conditions, found.tags) == (629145600, (), (), frozenset())


def test_volume_that_was_extended_onto_one_disk_is_mixed() -> None:
    found = volume("mixed")
    assert (found.layout, found.stripes, found.stripe_size) == (Layout.MIXED, 3, 65536)
    assert [(s.kind, s.stripes, s.size) for s in found.segments] == [
        ("striped", 3, 629145600),
        ("linear", 1, 104857600),
    ]
    assert found.devices[-1] == "/dev/ubde"


def test_snapshots_of_an_origin_are_named_ours_and_others() -> None:
    assert volume("snapshots").snapshots == ("backupd-r1", "foreign")
    assert volume("snapshots", "backupd-r1").tags == {"backupd", f"backupd.machine={MACHINE}", "backupd.run=r1"}
    assert volume("snapshots", "foreign").snapshots == ()


def test_what_lvm_says_within_a_report_is_no_part_of_it() -> None:
    """Seen after a power cut in the middle of a change: what the PVs have differs until the group is changed again."""
    first, second, *others = recorded("volumes_striped").splitlines()
    told = "\n".join(["  Retrying metadata scan.", first, second, "  Retrying metadata scan.", *others])
    assert report.parse_volumes(told) == report.parse_volumes(recorded("volumes_striped"))
    assert report.sections_of(told) == report.sections_of(recorded("volumes_striped")) != []
    with pytest.raises(UnexpectedOutput):
        report.parse_volumes("  Retrying metadata scan.\n")


@pytest.mark.parametrize(
    ("state", "name", "condition"),
    [
        ("merging", "lin", "merging"),
        ("pvmove", "lin", "pvmove"),
        ("raid", "r1", "resync (18.84 %)"),
        ("suspended", "data", "suspended"),
        ("partial", "data", "partial"),
    ],
)
def test_what_forbids_a_snapshot_is_a_condition(state: str, name: str, condition: str) -> None:
    assert volume(state, name).conditions == (condition,)


def test_neighbour_of_a_moving_volume_has_no_condition() -> None:
    assert volume("pvmove", "data").conditions == ()


def test_disks_of_hidden_volumes_are_those_of_the_volume_above() -> None:
    assert volume("raid", "r1").devices == ("/dev/ubdb", "/dev/ubdc")
    assert volume("pvmove", "lin").devices == ("/dev/ubde", "/dev/ubdb")


def test_legs_of_a_mirror_are_no_stripes() -> None:
    found = volume("raid", "r1")
    assert (found.layout, found.stripes, found.segments[0].kind) == (Layout.LINEAR, 1, "raid1")


def test_raid1_that_is_in_sync_has_no_condition() -> None:
    found = volume("raid1_synced", "r1")
    assert (found.conditions, found.devices) == ((), ("/dev/ubdb", "/dev/ubdc"))


@pytest.mark.parametrize(
    ("state", "kind", "layout", "devices", "before", "mebibytes"),
    [
        ("cache", "cache", Layout.STRIPED, ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd"), "/dev/ubde", 64),
        ("cachevol", "cache", Layout.STRIPED, ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd"), "/dev/ubde", 64),
        ("writecache", "writecache", Layout.LINEAR, ("/dev/ubde",), "/dev/ubdb", 64),
    ],
)
def test_cached_volume_lies_on_disks_as_what_is_cached_does(
    state: str, kind: str, layout: Layout, devices: tuple[str, ...], before: str, mebibytes: int
) -> None:
    found = volume(state, "c")
    assert found.cache is not None
    assert (found.cache.kind, found.cache.devices, found.cache.size >> 20) == (kind, (before,), mebibytes)
    assert (found.layout, found.devices) == (layout, (*devices, before))
    assert not {segment.kind for segment in found.segments} & {"cache", "writecache"}


@pytest.mark.parametrize("dirty", ["0.00", "37.50"])
def test_dirty_share_of_a_cache_is_no_resync(dirty: str) -> None:
    text = recorded("volumes_cachevol").replace('"sync_percent":"0.00"', f'"sync_percent":"{dirty}"')
    assert next(v for v in report.parse_volumes(text) if v.name == "c").conditions == ()


def test_what_is_wrong_beneath_a_cache_is_wrong_with_the_volume() -> None:
    """A raid1 beneath would say its resync in the same column of its own row."""
    part = '"lv_name":"[c_corig]"'
    rows = recorded("volumes_cachevol").splitlines()
    beneath = next(row for row in rows if part in row)
    text = "\n".join(rows).replace(beneath, beneath.replace('"sync_percent":""', '"sync_percent":"12.00"'))
    assert next(v for v in report.parse_volumes(text) if v.name == "c").conditions == ("resync (12.00 %)",)


def test_hidden_and_inactive_volumes_are_not_reported() -> None:
    assert {v.name for v in report.parse_volumes(recorded("volumes_inactive"))} == {"data", "lin"}


def test_group_without_volumes_has_none() -> None:
    assert report.parse_volumes(recorded("volumes_nothing")) == ()


def test_only_a_volume_with_all_three_tags_is_a_run_s() -> None:
    tagged = {lv.name: lv.mark for lv in report.parse_tagged(recorded("volumes_snapshots"))}
    assert tagged == {"backupd-r1": Mark(MACHINE, "r1"), "data": None, "foreign": None}


def test_what_goes_with_its_origin_is_told_with_it_and_a_thin_snapshot_does_not() -> None:
    classic = {lv.name: lv.origin for lv in report.parse_tagged(recorded("volumes_snapshots"))}
    assert classic == {"backupd-r1": "data", "data": "", "foreign": "data"}
    assert {lv.origin for lv in report.parse_tagged(recorded("volumes_thin"))} == {""}


@pytest.mark.parametrize(
    "tags",
    [
        {"backupd"},
        {"backupd.machine=a", "backupd.run=r1"},
        {"backupd", "backupd.run=r1"},
        {"backupd", "backupd.machine=a"},
        {"backupd", "backupd.machine=a", "backupd.run=r1", "backupd.run=r2"},
        {"backupd", "backupd.machine=a", "backupd.machine=b", "backupd.run=r1"},
    ],
)
def test_half_tagged_volume_is_nobody_s(tags: set[str]) -> None:
    assert report.TaggedVolume("vg", "lv", frozenset(tags)).mark is None


def test_a_volume_of_another_machine_is_no_run_s_of_ours() -> None:
    tags = frozenset(Mark("a-00000000", "r1").tags)
    assert (run_of_tags(tags, "a-00000000"), run_of_tags(tags, "b-00000000")) == ("r1", None)


def test_inactive_volumes_count_when_looking_for_tags() -> None:
    assert "r1" in {lv.name for lv in report.parse_tagged(recorded("volumes_inactive"))}


def test_group_tells_free_extents_per_disk() -> None:
    group = report.parse_group(recorded("group_four"))
    assert group is not None
    assert (group.name, group.extent_size, group.free_extents) == ("labvg", 4 << 20, 3 * 205 + 255)
    assert group.free_on(("/dev/ubde",)) == 255
    assert group.spare_on(("/dev/ubde",)) == 255
    assert group.spare_on(()) == group.free_extents - group.all_extents // 10


def test_extents_of_a_disk_that_takes_no_allocations_are_not_free() -> None:
    group = report.parse_group(recorded("group_unallocatable"))
    assert group is not None
    assert "/dev/ubdb" not in group.free_by_pv
    assert group.closed == ("/dev/ubdb",)
    assert group.free_extents == 2 * 205 + 230


def test_each_pv_has_its_uuid() -> None:
    group = report.parse_group(recorded("group_four"))
    assert group is not None
    assert group.pv_uuids["/dev/ubde"] == "O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFmI0"
    assert (set(group.pv_uuids), group.missing) == (set(group.free_by_pv), ())


def test_the_mark_of_a_scratch_disk_is_a_uuid() -> None:
    mark = "backup-d0QS-l5la-b!6e-647d-65##-######"
    group = report.parse_group(recorded("group_four").replace("O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFmI0", mark))
    assert group is not None
    assert group.pv_uuids["/dev/ubde"] == mark


def test_pvs_whose_disks_are_not_found_have_no_path_but_their_uuids() -> None:
    """LVM calls each of them `[unknown]` (2.03.16: tests/data/lvm/full_partial.json)."""
    document = json.loads(recorded("group_four"))
    lost = document["report"][0]["vg"][2:]
    for row in lost:
        row.update(pv_name="[unknown]", pv_missing="1")
    group = report.parse_group(json.dumps(document))
    assert group is not None
    assert group.missing == tuple(row["pv_uuid"] for row in lost)
    assert set(group.pv_uuids) == set(group.free_by_pv) == {"/dev/ubdb", "/dev/ubdc"}


@pytest.mark.parametrize(
    "uuid", ["", "O5Rs9KoGLuJT7M9XX6rgdTSYYk8RFmI0", 'O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFm\\"]', "a b"]
)
def test_a_uuid_that_is_none_is_not_understood(uuid: str) -> None:
    with pytest.raises(UnexpectedOutput, match="is not the uuid of a PV"):
        report.parse_group(recorded("group_four").replace("O5Rs9K-oGLu-JT7M-9XX6-rgdT-SYYk-8RFmI0", uuid))


def test_a_group_that_hosts_share_says_by_which_locks() -> None:
    """As LVM 2.03.16 tells it of each PV; `""` of a group that is one host's."""
    text = recorded("group_four").replace('"vg_extent_size"', '"vg_lock_type":"sanlock", "vg_extent_size"')
    for said, lock_type in ((text, "sanlock"), (recorded("group_four"), "")):
        group = report.parse_group(said)
        assert group is not None
        assert group.lock_type == lock_type


def test_unknown_group_is_none() -> None:
    assert report.parse_group('{"report": [{"vg": []}]}') is None
    assert report.parse_group(report.NOTHING) is None
    assert report.parse_both(report.NOTHING) == ((), None)
    assert not report.parse_volumes(report.NOTHING)
    assert not report.parse_tagged(report.NOTHING)


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"report": [{}]}', '{"report": [{"seg": [{"vg_name": "v"}]}]}']
)
def test_report_that_is_not_understood_is_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        report.parse_volumes(text)
    assert (text or "(empty)") in caught.value.message


def test_size_that_is_no_number_is_not_understood() -> None:
    with pytest.raises(UnexpectedOutput, match="600m"):
        report.parse_volumes(recorded("volumes_striped").replace('"629145600"', '"600m"'))


def test_uuid_gets_its_dashes() -> None:
    assert report.dashed("zdbTBFyrzeGUu3WmMdZtYo3HSgBwPoje") == "zdbTBF-yrze-GUu3-WmMd-ZtYo-3HSg-BwPoje"


# --- volumes and group in one report ----------------------------------------------------------------------------------


def test_one_report_says_what_two_say_of_the_group_that_was_chosen() -> None:
    """The host had another group, and a PV of none; all three were recorded at once."""
    volumes, group = report.parse_both(recorded("both_snapshots"))
    assert volumes == tuple(reversed(report.parse_volumes(recorded("both_volumes"))))  # in an order of its own
    assert group == report.parse_group(recorded("both_group"))
    assert [volume.name for volume in volumes] == ["data", "backupd-r1"]


def test_group_that_is_not_there_has_neither_volumes_nor_room() -> None:
    assert report.parse_both(recorded("both_nothing")) == ((), None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"report": [{"vg": [{}], "pv": []}]}'])
def test_one_report_that_is_not_understood_is_shown(text: str) -> None:
    with pytest.raises(UnexpectedOutput) as caught:
        report.parse_both(text)
    assert (text or "(empty)") in caught.value.message


@pytest.mark.parametrize("argv", [report.volumes_argv(vg="vg"), report.group_argv("vg"), report.both_argv("vg")])
def test_a_group_is_named_and_not_selected(argv: list[str]) -> None:
    """To select one, LVM locks every group of the host, and waits for whoever has another one (2.03.16)."""
    assert argv[-1] == "vg"
    assert not {"-S", "--select"} & set(argv)


# --- what an lvm.conf may change --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        report.volumes_argv(),
        report.at_once(report.volumes_argv(vg="labvg")),
        report.group_argv("labvg"),
        report.both_argv("labvg"),
        report.labels_argv(),
        fullreport.report_argv(),
    ],
)
def test_a_report_has_every_field_in_its_own_form_whatever_lvm_conf_says(argv: list[str]) -> None:
    assert argv.count("--config") == 1  # LVM takes no second one
    said = argv[argv.index("--config") + 1].split()
    assert {"report/compact_output=0", 'report/list_item_separator=","', "report/mark_hidden_devices=1"} <= set(said)
    assert {"report/prefixes=0", "log/command_names=0", 'log/prefix=""', "log/report_command_log=0"} <= set(said)


def test_a_report_that_is_asked_for_promptly_waits_for_no_other_command() -> None:
    argv = report.at_once(report.group_argv("labvg"))
    assert "global/wait_for_locks=0" in argv[argv.index("--config") + 1].split()
