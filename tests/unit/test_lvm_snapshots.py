"""`LvmSnapshots` with programs that print what LVM printed: what it makes of it, and what it never does."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.lvm import Mark, classic, devicemapper, thin
from backupd.lvm.devicemapper import MappedDevice, TableLine
from backupd.lvm.removal import chosen_removal_argv, remove_argv
from backupd.lvm.snapshots import LvmSnapshots, reported
from backupd.vocabulary.errors import ExitStatus, GroupBusy, SnapshotError, SnapshotVoid
from backupd.vocabulary.volumes import CowUsage, DeviceNumber, Snapshot, SnapshotPlan
from tests.fakes.ledger import Ledger
from tests.fakes.lvm_host import striped_volume
from tests.fakes.target import MACHINE

DATA = Path(__file__).parent.parent / "data" / "lvm"
UUID = "LVM-K1Loo7mKEsouKbvovxqfmlvNH37dii97i4zQp6WvfeXlNoSYZUIoEGTDHeuyboEq"
# Of the group and of its volume `data` in both_snapshots.json.
BOTH_UUIDS = "UvHFbC9needXAgRjLd3QLWkBK0EadFw63NuH4gKxypySMHmbigvVg8GJmxrC0KCu"
MARK = Mark(MACHINE, "r1")
PLAN = SnapshotPlan(striped_volume(), "backupd-r1", "r1", 25, 100 << 20, 64 << 10, ("/dev/sde",))


class Programs:
    """LVM's commands as scripts in a folder that is searched first; each call of `lvremove` is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.removed = folder / "removed"
        self.told = folder / "told"  # the shell
        self.active = folder / "active"  # there while the COW area has a device

    def report(self, program: str, name: str) -> None:
        self.script(program, f'cat "{DATA / name}.json"')

    def lvremove(self, script: str = "", *, chooses: bool = True) -> None:
        """It finds the tags that it is to select by, or not; an LV that it is given by name alone it takes anyway."""
        nothing = "" if chooses else 'case "$*" in *--select*) exit 0 ;; esac'
        done = 'echo "  Logical volume \\"${@##*/}\\" successfully removed."'
        self.script("lvremove", f'{nothing}\necho "$@" >> "{self.removed}"\n{script}\n{done}')

    def script(self, program: str, text: str) -> None:
        path = self.folder / program
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def shell(self, lvconvert: str, *, lvcreate: str = "", lvchange: str = "") -> None:
        """The `lvm` shell: what it does at each command, which it notes; by itself it makes a COW area as it should."""
        made = f"touch '{self.active}'; echo '  Logical volume \"backupd-r1\" created.'"
        self.script(
            "lvm",
            f"""echo started >> '{self.told}'
while read -r word rest; do case $word in lv*) echo "$word $rest" >> '{self.told}' ;; esac; case $word in
lvcreate) {lvcreate or made} ;;
lvchange) {lvchange or f"rm '{self.active}'"} ;;
lvconvert) {lvconvert} ;;
*) echo "  No such command '$word'.  Try 'help'." ;; esac; done""",
        )

    def calls(self) -> list[str]:
        return self.removed.read_text().splitlines() if self.removed.exists() else []


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    programs = Programs(folder)
    monkeypatch.setattr(
        devicemapper, "by_name", lambda name, table=False: COW_AREA if programs.active.exists() else None
    )
    return programs


def sysfs_with(tmp_path: Path, uuid: str, name: str = "labvg-data") -> Path:
    folder = tmp_path / "sys" / "dev" / "block" / "254:0" / "dm"
    folder.mkdir(parents=True)
    (folder / "uuid").write_text(f"{uuid}\n")
    (folder / "name").write_text(f"{name}\n")
    return tmp_path / "sys"


def test_volume_is_found_by_the_uuid_of_its_device(programs: Programs, tmp_path: Path) -> None:
    programs.report("lvs", "volumes_striped")
    volume = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, UUID)).volume_at(DeviceNumber(254, 0))
    assert (volume.full_name, volume.uuid.replace("-", "")) == ("labvg/data", UUID[36:])


def test_volume_and_its_group_are_one_question(programs: Programs, tmp_path: Path) -> None:
    programs.report("lvm", "both_snapshots")
    for program in ("lvs", "vgs"):
        programs.script(program, "echo 'a second scan of all disks' >&2; exit 5")
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, "LVM-" + BOTH_UUIDS))
    volume, group = snapshots.volume_and_group_at(DeviceNumber(254, 0))
    assert (volume.full_name, volume.snapshots) == ("labvg/data", ("backupd-r1",))
    assert (group.name, group.closed) == ("labvg", ("/dev/ubde",))


def test_device_of_a_group_that_lvm_does_not_report_is_an_error(programs: Programs, tmp_path: Path) -> None:
    programs.report("lvm", "both_nothing")
    with pytest.raises(SnapshotError, match="LVM reports no volume with uuid") as caught:
        LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, UUID)).volume_and_group_at(DeviceNumber(254, 0))
    assert "lvmdevices" in caught.value.hint


@pytest.mark.parametrize("uuid", ["CRYPT-LUKS2-0123-data", f"{UUID}-real", "LVM-short", ""])
def test_layer_between_file_system_and_volume_is_refused(tmp_path: Path, uuid: str) -> None:
    with pytest.raises(SnapshotError, match="not on LVM") as caught:
        LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, uuid)).volume_at(DeviceNumber(254, 0))
    assert "directly on a logical volume" in caught.value.hint


def test_volume_that_lvm_does_not_report_is_an_error(programs: Programs, tmp_path: Path) -> None:
    programs.report("lvs", "volumes_nothing")
    with pytest.raises(SnapshotError, match="LVM reports no volume with uuid"):
        LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, UUID)).volume_at(DeviceNumber(254, 0))


def test_failure_of_lvm_is_told_with_what_to_do(programs: Programs) -> None:
    programs.script("vgs", 'echo "  Can\'t get lock for labvg." >&2; exit 5')
    with pytest.raises(GroupBusy, match="Can't get lock") as caught:
        LvmSnapshots(MACHINE).group("labvg")
    assert "another LVM command" in caught.value.hint
    assert caught.value.exit_status is ExitStatus.SNAPSHOT


@pytest.mark.parametrize(
    ("name", "vg"),
    [("labvg-data", "labvg"), ("my--vg-the--data", "my-vg"), ("vg---lv", "vg-"), ("a----b-c", "a--b")],
)
def test_the_group_of_a_device_is_asked_for_by_its_name(programs: Programs, tmp_path: Path, name: str, vg: str) -> None:
    """No other group is, which another command may have locked."""
    programs.script("lvs", f"""for last; do :; done; [ "$last" = '{vg}' ] && cat '{DATA / "volumes_striped.json"}'""")
    sysfs = sysfs_with(tmp_path, UUID, name)
    assert LvmSnapshots(MACHINE, sysfs=sysfs).volume_at(DeviceNumber(254, 0)).full_name == "labvg/data"


def test_device_that_somebody_has_renamed_is_an_error(programs: Programs, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="device 254:0 does not have the name that LVM gave it"):
        LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, UUID, "mine")).volume_at(DeviceNumber(254, 0))


def test_group_that_lvm_does_not_know_is_none(programs: Programs) -> None:
    """As LVM 2.03.16 says it of a group that it is given by name."""
    unknown = "echo '  Volume group \"labvg\" not found' >&2; echo '  Cannot process volume group labvg' >&2; exit 5"
    programs.script("lvs", unknown)
    programs.script("vgs", unknown)
    with pytest.raises(SnapshotError, match="no volume group labvg"):
        LvmSnapshots(MACHINE).group("labvg")
    with pytest.raises(SnapshotError, match="no active logical volume labvg/data"):
        LvmSnapshots(MACHINE).volume("labvg", "data")


def test_a_tag_is_no_group(programs: Programs) -> None:
    programs.report("vgs", "group_four")
    programs.report("lvs", "volumes_striped")
    with pytest.raises(SnapshotError, match="no volume group @fast"):
        LvmSnapshots(MACHINE).group("@fast")
    with pytest.raises(SnapshotError, match="no active logical volume @fast/data"):
        LvmSnapshots(MACHINE).volume("@fast", "data")


def test_group_that_another_command_has_for_a_moment_is_waited_for_while_a_snapshot_fills(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._GROUP_PAUSE_SECONDS", 0.0)
    held = f"""touch '{tmp_path}/asked'; echo "  Can't get lock for labvg." >&2; exit 5"""
    busy = f"[ -e '{tmp_path}/asked' ] || {{ {held}; }}"
    programs.script("vgs", f"{busy}; cat '{DATA / 'group_four.json'}'")
    assert LvmSnapshots(MACHINE).group("labvg", promptly=True).name == "labvg"
    (tmp_path / "asked").unlink()
    programs.script("lvs", f"{busy}; cat '{DATA / 'volumes_snapshots.json'}'")
    programs.script("lvextend", f"touch '{tmp_path}/extended'")
    snapshot = Snapshot(PLAN.origin, PLAN.name, UUID, "r1", Path("/dev/x"), DeviceNumber(254, 1), 1 << 20, 64 << 10)
    LvmSnapshots(MACHINE).extend(snapshot, 1)
    assert (tmp_path / "extended").exists()


def test_report_of_lvm_that_hangs_ends_with_where_to_look(programs: Programs) -> None:
    programs.script("pvs", "exec sleep 60")
    with pytest.raises(SnapshotError, match=r"pvs did not end within 0\.2 s") as caught:
        reported(["pvs"], within_seconds=0.2)
    assert "dmsetup info" in caught.value.hint


def test_ours_are_those_with_all_three_tags(programs: Programs) -> None:
    programs.report("lvs", "volumes_snapshots")
    assert LvmSnapshots(MACHINE).ours() == (("labvg", "backupd-r1", "r1"),)


def test_snapshot_of_ours_is_removed_by_one_command_that_looks_at_its_tags_itself(programs: Programs) -> None:
    programs.script("lvs", "echo 'no second command while the snapshot costs the server' >&2; exit 5")
    programs.lvremove()
    LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert programs.calls() == [" ".join(chosen_removal_argv("labvg", "backupd-r1", MARK)[1:])]


def test_removal_is_of_what_bears_the_tags_of_the_run_and_no_others_and_has_no_snapshots() -> None:
    *_, option, selection, name = chosen_removal_argv("labvg", "backupd-r1", MARK)
    assert (option, name) == ("--select", "labvg/backupd-r1")
    tags = f'["backupd","backupd.machine={MACHINE}","backupd.run=r1"]'
    assert selection == f'lv_tags={tags} && lv_role!="origin"'


def test_run_id_that_would_end_the_quotes_selects_nothing() -> None:
    with pytest.raises(SnapshotError, match="no tag of run"):
        chosen_removal_argv("labvg", "data", Mark(MACHINE, 'r"] || lv_name="data'))


def test_lvm_that_does_not_say_what_it_did_is_looked_after(programs: Programs) -> None:
    programs.report("lvs", "volumes_nothing")
    programs.lvremove("exit 0")
    LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert len(programs.calls()) == 1


def test_snapshot_of_ours_that_somebody_has_tagged_too_is_looked_at_and_removed(programs: Programs) -> None:
    programs.report("lvs", "volumes_snapshots")
    programs.lvremove(chooses=False)
    LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert programs.calls() == [" ".join(remove_argv("labvg", "backupd-r1")[1:])]


@pytest.mark.parametrize(("name", "run_id"), [("foreign", "r1"), ("data", "r1"), ("backupd-r1", "r2")])
def test_what_is_not_that_runs_is_never_given_to_lvremove(programs: Programs, name: str, run_id: str) -> None:
    programs.report("lvs", "volumes_snapshots")
    programs.lvremove(chooses=False)
    with pytest.raises(SnapshotError, match="not removed"):
        LvmSnapshots(MACHINE).remove("labvg", name, run_id)
    assert programs.calls() == []


def scratch_volume(programs: Programs, *snapshots: str) -> None:
    """`labvg/data` is a scratch volume of run r1 that has these snapshots of those recorded."""
    recorded = json.loads((DATA / "volumes_snapshots.json").read_text())
    segments = {row["lv_name"]: row for row in recorded["report"][0]["seg"]}
    segments["data"]["lv_tags"] = f"backupd,backupd.machine={MACHINE},backupd.run=r1"
    segments["backupd-r1"]["lv_tags"] = f"backupd,backupd.machine={MACHINE},backupd.run=r1-1"
    file = programs.folder / "lvs.json"
    file.write_text(json.dumps({"report": [{"seg": [segments[name] for name in ("data", *snapshots)]}]}))
    programs.script("lvs", f'cat "{file}"')


def test_scratch_volume_is_removed_with_the_snapshot_that_a_dead_probe_left(programs: Programs) -> None:
    scratch_volume(programs, "backupd-r1")
    programs.lvremove(chooses=False)
    LvmSnapshots(MACHINE).remove("labvg", "data", "r1")
    assert [call.split()[-1] for call in programs.calls()] == ["labvg/data"]


def test_scratch_volume_that_somebody_has_a_snapshot_of_is_never_given_to_lvremove(programs: Programs) -> None:
    scratch_volume(programs, "backupd-r1", "foreign")
    programs.lvremove(chooses=False)
    with pytest.raises(SnapshotError, match="it has a snapshot: foreign") as caught:
        LvmSnapshots(MACHINE).remove("labvg", "data", "r1")
    assert "lvremove labvg/foreign" in caught.value.hint
    assert programs.calls() == []


@pytest.mark.parametrize("said", ['Failed to find logical volume "labvg/backupd-r1"', 'Volume group "labvg" not found'])
def test_snapshot_that_is_gone_is_not_removed_again(programs: Programs, said: str) -> None:
    programs.report("lvs", "volumes_nothing")
    programs.lvremove(f"echo '  {said}' >&2; exit 5")
    LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert len(programs.calls()) == 1


@pytest.mark.parametrize("script", ["echo '  Volume group \"labvg\" not found' >&2; exit 5", "exit 0"])
def test_snapshot_that_only_lvm_does_not_see_is_not_called_removed(
    programs: Programs, tmp_path: Path, script: str
) -> None:
    """As while no path leads to its disks: LVM knows of no such group then, and the kernel keeps its devices."""
    device = tmp_path / "sys" / "block" / "dm-3" / "dm"
    device.mkdir(parents=True)
    (device / "name").write_text("labvg-backupd--r1\n")
    programs.report("lvs", "volumes_nothing")
    programs.lvremove(script)
    snapshots = LvmSnapshots(MACHINE, sysfs=tmp_path / "sys")
    with pytest.raises(SnapshotError, match="the kernel still has its device") as caught:
        snapshots.remove("labvg", "backupd-r1", "r1")
    assert "backupd recover" in caught.value.hint
    (device / "name").unlink()
    snapshots.remove("labvg", "backupd-r1", "r1")


def test_busy_snapshot_is_tried_again_and_then_told(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._BUSY_PAUSE_SECONDS", 0.0)
    programs.report("lvs", "volumes_snapshots")
    programs.lvremove("echo '  Logical volume labvg/backupd-r1 in use.' >&2; exit 5")
    with pytest.raises(SnapshotError, match="in use") as caught:
        LvmSnapshots(MACHINE, busy_patience_seconds=1.0).remove("labvg", "backupd-r1", "r1")
    assert len(programs.calls()) > 1
    assert "see what uses it: lsof" in caught.value.hint


def test_snapshot_that_was_busy_for_a_moment_is_removed(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._BUSY_PAUSE_SECONDS", 0.0)
    programs.report("lvs", "volumes_snapshots")
    programs.lvremove(f'[ "$(wc -l < "{programs.removed}")" -gt 1 ] || {{ echo " in use" >&2; exit 5; }}')
    LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert len(programs.calls()) == 2


def test_failure_that_does_not_pass_is_not_repeated(programs: Programs) -> None:
    programs.report("lvs", "volumes_snapshots")
    programs.lvremove("echo '  Cannot process volume group labvg' >&2; exit 5")
    with pytest.raises(SnapshotError, match="Cannot process"):
        LvmSnapshots(MACHINE).remove("labvg", "backupd-r1", "r1")
    assert len(programs.calls()) == 1


def refused(tmp_path: Path) -> SnapshotError:
    """What `prepared` says, which LVM or the kernel does not let go on."""
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID))
    with (
        pytest.raises(SnapshotError, match="cannot create a snapshot of labvg/data") as caught,
        snapshots.prepared(PLAN),
    ):
        pytest.fail("prepared although LVM refused")
    return caught.value


def test_cow_area_is_made_by_the_shell_that_is_needed_anyway(programs: Programs, tmp_path: Path) -> None:
    programs.shell(OBEDIENT_LVCONVERT)
    with LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID)).prepared(PLAN):
        said = programs.told.read_text().splitlines()
    assert [line.split()[0] for line in said] == ["started", "lvcreate", "lvchange", "lvconvert"]
    assert "--test" in said[-1]


def test_refusal_of_the_cow_area_comes_before_anything_is_locked(programs: Programs, tmp_path: Path) -> None:
    short = 'Volume group "labvg" has insufficient free space (40 extents): 512 required.'
    programs.shell(OBEDIENT_LVCONVERT, lvcreate=f"echo '  WARNING: noise'; echo '  {short}'")
    error = refused(tmp_path)
    assert error.message.endswith(f": {short}")
    assert "vgextend" in error.hint
    assert len(programs.told.read_text().splitlines()) == 2  # nothing was asked after it


def test_cow_area_that_stays_active_is_refused_before_anything_is_locked(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._GROUP_SECONDS_BEFORE_LOCK", 0.0)
    programs.shell(OBEDIENT_LVCONVERT, lvchange="echo '  Logical volume labvg/backupd-r1 in use.'")
    error = refused(tmp_path)
    assert error.message.endswith(": Logical volume labvg/backupd-r1 in use.")
    assert "see what uses it: lsof" in error.hint


def test_cow_area_that_udev_has_open_for_a_moment_is_waited_for(programs: Programs, tmp_path: Path) -> None:
    again = f"[ $(grep -c ^lvchange '{programs.told}') -gt 1 ]"
    busy = "echo '  Logical volume labvg/backupd-r1 in use.'"
    programs.shell(OBEDIENT_LVCONVERT, lvchange=f"if {again}; then rm '{programs.active}'; else {busy}; fi")
    with LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID)).prepared(PLAN):
        assert programs.told.read_text().split().count("lvchange") == 2


def test_line_that_is_too_long_for_the_shell_is_a_program_of_its_own(programs: Programs, tmp_path: Path) -> None:
    many = replace(PLAN, pvs=tuple(f"/dev/sd{number}" for number in range(60)))
    programs.shell(OBEDIENT_LVCONVERT)
    programs.script("lvcreate", f'echo "$#" > "{tmp_path}/words"; touch "{programs.active}"')
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID))
    ledger = Ledger()
    with snapshots.prepared(many, ledger):
        assert ledger.told == ["lvm", "lvcreate"]
        assert [program for _, program, _ in ledger.alive] == ["lvm"]
        assert int((tmp_path / "words").read_text()) > 64
        assert "lvcreate" not in programs.told.read_text()
    programs.script("lvcreate", "echo '  no such PV' >&2; exit 5")
    with (
        pytest.raises(SnapshotError, match=r"cannot create a snapshot of labvg/data: .*no such PV"),
        snapshots.prepared(many),
    ):
        pytest.fail("prepared although LVM refused")


def test_lvm_that_does_not_answer_before_the_lock_is_not_waited_for_without_end(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._REPORT_SECONDS", 0.2)
    monkeypatch.setattr("backupd.host.process._PARTING_SECONDS", 0.2)
    goes_on = tmp_path / "goes on"
    programs.shell(OBEDIENT_LVCONVERT, lvcreate=f"until [ -e '{goes_on}' ]; do sleep 0.05; done")
    error = refused(tmp_path)  # at all: LVM itself never ends
    assert "LVM has not answered within 0.2 s: lvcreate" in error.message
    assert "dmsetup info" in error.hint
    goes_on.touch()


def test_refusal_in_the_rehearsal_comes_before_anything_is_locked(programs: Programs, tmp_path: Path) -> None:
    programs.shell("echo '  snapshot: Required device-mapper target(s) not detected in your kernel.'")
    error = refused(tmp_path)
    assert "not detected" in error.message
    assert "modprobe" in error.hint


def test_group_that_another_command_has_while_the_cow_area_is_made_is_waited_for(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._GROUP_PAUSE_SECONDS", 0.0)
    held = 'echo "  Can\'t get lock for labvg."'
    again = f"[ $(grep -c ^$word '{programs.told}') -gt 2 ]"
    programs.shell(
        OBEDIENT_LVCONVERT,
        lvcreate=f"if {again}; then touch '{programs.active}'; echo ' created.'; else {held}; fi",
        lvchange=f"if {again}; then rm '{programs.active}'; else {held}; fi",
    )
    with LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID)).prepared(PLAN):
        said = programs.told.read_text().split()
    assert (said.count("lvcreate"), said.count("lvchange"), said.count("lvconvert")) == (3, 3, 1)


def test_origin_whose_device_is_another_volume_now_is_refused(tmp_path: Path) -> None:
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, UUID))
    with pytest.raises(SnapshotError, match="no longer labvg/data"), snapshots.prepared(PLAN):
        pytest.fail("prepared for another volume")


VG_PREFIX = UUID[:36]
ORIGIN_UUID = VG_PREFIX + PLAN.origin.uuid.replace("-", "")
SNAPSHOT_UUID = VG_PREFIX + "n" * 32
OBEDIENT_LVCONVERT = """[ "${rest#--test}" != "$rest" ] || { sleep 0.2; touch "${0%/*}/ended"; }
           echo '  Logical volume labvg/backupd-r1 converted to snapshot.'"""


def mapped(uuid: str, kind: str, words: str, *, suspended: bool = False) -> MappedDevice:
    return MappedDevice("name", uuid, DeviceNumber(254, 3), suspended, (TableLine(kind, words),))


COW_AREA = mapped(SNAPSHOT_UUID, "linear", "8:16 2048")
LIVE = mapped(SNAPSHOT_UUID, "snapshot", "254:1 254:2 P 128")
COW_STATUS = mapped(SNAPSHOT_UUID, "snapshot", "256/204800 256")
LIVE_ORIGIN = mapped(ORIGIN_UUID, "snapshot-origin", "254:1")


def taken(
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs,
    snapshots: LvmSnapshots,
    snapshot: MappedDevice | None,
    origin: MappedDevice,
) -> Snapshot:
    """What `create` makes of a kernel that shows these two devices once it is prepared."""
    shown = {(ORIGIN_UUID, True): origin, (SNAPSHOT_UUID, False): COW_STATUS}
    monkeypatch.setattr(devicemapper, "by_uuid", lambda uuid, table=False: shown.get((uuid, table)))
    with snapshots.prepared(PLAN) as creator:
        named = {"labvg-backupd--r1": snapshot}
        monkeypatch.setattr(devicemapper, "by_name", lambda name, table: named.get(name))
        return creator.create()


def test_snapshot_is_confirmed_before_lvm_has_tidied_up_and_the_block_waits_for_that(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.shell(OBEDIENT_LVCONVERT)
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID))
    snapshot = taken(monkeypatch, programs, snapshots, LIVE, LIVE_ORIGIN)
    assert (snapshot.uuid, snapshot.device, snapshot.size) == (SNAPSHOT_UUID, DeviceNumber(254, 3), 204800 * 512)
    assert snapshot.path == Path("/dev/labvg/backupd-r1")
    assert (programs.folder / "ended").exists()


@pytest.mark.parametrize(
    ("snapshot", "origin"),
    [
        pytest.param(None, LIVE_ORIGIN, id="no device"),
        pytest.param(mapped(SNAPSHOT_UUID, "linear", "8:16 2048"), LIVE_ORIGIN, id="COW area activated to be cleared"),
        pytest.param(LIVE, mapped(ORIGIN_UUID, "striped", "3 128 8:16 0"), id="tables loaded, origin not yet switched"),
        pytest.param(LIVE, mapped(ORIGIN_UUID, "snapshot-origin", "254:1", suspended=True), id="origin suspended"),
        pytest.param(mapped(SNAPSHOT_UUID, "snapshot", "254:1", suspended=True), LIVE_ORIGIN, id="snapshot suspended"),
        pytest.param(mapped(SNAPSHOT_UUID, "snapshot", "254:9 254:2 P 128"), LIVE_ORIGIN, id="of another origin"),
        pytest.param(mapped(f"{SNAPSHOT_UUID}-cow", "snapshot", "254:1 x"), LIVE_ORIGIN, id="internal layer"),
        pytest.param(mapped("LVM-" + "o" * 64, "snapshot", "254:1 254:2"), LIVE_ORIGIN, id="of another volume group"),
    ],
)
def test_nothing_less_than_a_live_snapshot_is_confirmed(
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: MappedDevice | None,
    origin: MappedDevice,
) -> None:
    programs.shell(OBEDIENT_LVCONVERT)
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID))
    with pytest.raises(SnapshotError, match="cannot create a snapshot of labvg/data"):
        taken(monkeypatch, programs, snapshots, snapshot, origin)


def test_slow_lvm_costs_no_more_than_the_deadline_and_is_left_to_finish(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.shell(OBEDIENT_LVCONVERT)
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID), create_deadline_seconds=0.0)
    with pytest.raises(SnapshotError, match="did not appear within 0 s"):
        taken(monkeypatch, programs, snapshots, None, LIVE_ORIGIN)
    assert (programs.folder / "ended").exists()


def lvconvert_that_finds_the_group_held(times: int) -> str:
    """`lvs` of somebody else has it each time the line comes, rehearsed or not, that many times."""
    return f"""echo x >> "${{0%/*}}/asked"
           if [ $(wc -l < "${{0%/*}}/asked") -le {times} ]
           then echo "  Can't get lock for labvg."; echo '  Cannot process volume group labvg'
           else echo '  Logical volume labvg/backupd-r1 converted to snapshot.'; touch "${{0%/*}}/converted"; fi"""


@pytest.mark.parametrize("times", [1, 4])
def test_group_that_another_command_has_for_a_moment_is_waited_for(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr("backupd.lvm.snapshots._GROUP_PAUSE_SECONDS", 0.0)
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID))
    monkeypatch.setattr(devicemapper, "by_uuid", lambda uuid, table=False: LIVE_ORIGIN if table else COW_STATUS)
    converted = programs.folder / "converted"
    monkeypatch.setattr(devicemapper, "by_name", lambda name, table=False: LIVE if converted.exists() else None)
    programs.shell(lvconvert_that_finds_the_group_held(times))
    with snapshots.prepared(PLAN) as creator:  # the rehearsal comes first, and waits
        assert (programs.folder / "asked").read_text().count("x") == times + 1
        (programs.folder / "asked").write_text("")
        converted.unlink()
        assert creator.create().uuid == SNAPSHOT_UUID
    assert (programs.folder / "asked").read_text().count("x") == times + 1


def test_group_that_another_command_keeps_ends_the_run_soon(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.shell(OBEDIENT_LVCONVERT.replace("touch", 'echo "  Can\'t get lock for labvg."; false; touch'))
    snapshots = LvmSnapshots(MACHINE, sysfs=sysfs_with(tmp_path, ORIGIN_UUID), group_patience_seconds=0.0)
    with pytest.raises(GroupBusy, match="Can't get lock") as caught:
        taken(monkeypatch, programs, snapshots, None, LIVE_ORIGIN)
    assert "another LVM command has locked the volume group; see" in caught.value.hint


def test_cow_area_is_tagged_from_its_first_instant_and_lies_where_it_was_planned() -> None:
    argv = classic.preparing(PLAN, MARK)[0].argv
    assert argv[-2:] == ["labvg", "/dev/sde"]
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--addtag"] == [*MARK.tags]
    assert "-Zy" in argv  # an old header would be taken for a snapshot's


def test_striped_cow_area_has_stripes_of_a_chunk_each_on_its_pvs() -> None:
    over = ("/dev/sdb", "/dev/sde")
    made, _ = classic.preparing(replace(PLAN, extents=26, pvs=(), striped_over=over), MARK)
    asked = ["-l", "26", "--stripes", "2", "--stripesize", "64k", "-n", "backupd-r1", "labvg", *over]
    assert made.argv[-len(asked) :] == asked
    assert "--stripes" not in classic.preparing(PLAN, MARK)[0].argv


def test_extension_says_how_many_stripes_or_lvm_would_go_on_as_before() -> None:
    snapshot = Snapshot(PLAN.origin, PLAN.name, UUID, "r1", Path("/dev/x"), DeviceNumber(254, 1), 1 << 20, 64 << 10)
    linear = classic.extending_argv(snapshot, 3, (), stripes=1)
    assert linear[-5:] == ["-l", "+3", "--stripes", "1", "labvg/backupd-r1"]
    striped = classic.extending_argv(snapshot, 4, ("/dev/sdb", "/dev/sde"), stripes=2)
    assert striped[-7:-2] == ["--stripes", "2", "--stripesize", "64k", "labvg/backupd-r1"]


def test_line_under_the_lock_does_not_wait_without_end() -> None:
    argv = classic.line_argv(PLAN, MARK)
    assert argv[-2:] == ["labvg/data", "labvg/backupd-r1"]
    assert "global/wait_for_locks=0" in argv[argv.index("--config") + 1]
    assert "--test" not in argv


def test_rehearsal_is_the_same_line_without_effect() -> None:
    assert [word for word in classic.line_argv(PLAN, MARK, rehearsal=True) if word != "--test"] == classic.line_argv(
        PLAN, MARK
    )


def test_no_event_daemon_is_started_by_a_removal() -> None:
    assert "activation/monitoring=0" in settings(remove_argv("vg", "s"))
    assert "activation/monitoring=0" in settings(chosen_removal_argv("vg", "s", MARK))


def test_what_lvm_has_done_is_heard_although_its_configuration_silences_it() -> None:
    made, deactivated = classic.preparing(PLAN, MARK)
    commands = [made.argv, deactivated.argv, remove_argv("vg", "s"), chosen_removal_argv("vg", "s", MARK)]
    commands += [method.line_argv(PLAN, MARK, rehearsal=True) for method in (classic, thin)]
    assert all("log/silent=0" in settings(argv) for argv in commands)


def test_a_removal_does_not_die_of_a_log_of_commands_and_no_line_of_the_shell_loses_its_settings() -> None:
    """LVM 2.03.16 with `log/report_command_log=1` in its configuration: `--select` ends by SIGSEGV. Its shell says that
    the option "is not allowed here", and ignores all others beside it."""
    made, deactivated = classic.preparing(PLAN, MARK)
    told = [made.argv, deactivated.argv, *(method.line_argv(PLAN, MARK) for method in (classic, thin))]
    assert "log/report_command_log=0" in settings(chosen_removal_argv("vg", "s", MARK))
    assert all("report_command_log" not in word for argv in told for word in settings(argv))


def settings(argv: list[str]) -> list[str]:
    return argv[argv.index("--config") + 1].split()


@pytest.mark.parametrize("state", ["Invalid", "gone"])
def test_lost_snapshot_is_void(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(devicemapper, "by_uuid", lambda uuid: None)
    monkeypatch.setattr(devicemapper, "cow_usage", lambda device: CowUsage(intact=False, state=state))
    snapshot = Snapshot(PLAN.origin, PLAN.name, "LVM-x", "r1", Path("/dev/x"), DeviceNumber(254, 3), 1, 4096)
    with pytest.raises(SnapshotVoid, match=state) as caught:
        LvmSnapshots(MACHINE).require_intact(snapshot)
    assert "snapshot.size" in caught.value.hint
