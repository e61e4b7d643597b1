"""What a disk says of the run that has it, and what LVM and mdadm are told so that it says so."""

import re
from pathlib import Path
from uuid import UUID

import pytest

from backupd.lvm import Mark, scratch_name
from backupd.lvm.disk_marks import (
    Superblock,
    array_uuid,
    parse_superblock,
    pv_uuid,
    require_markable,
    run_of_pv,
)
from backupd.lvm.report import LabelledDisk, dashed, parse_labels
from backupd.lvm.scratch_arrays import create_argv, ours
from backupd.lvm.scratch_groups import group_argv, pv_argv, run_of
from backupd.lvm.version import parse_mdadm_version
from backupd.vocabulary.errors import Refused, UnexpectedOutput
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, ScratchLayout
from tests.fakes.target import MACHINE

RUN = "20261122-005204-ab12"
DISKS = ("/dev/ubdg", "/dev/ubdh")
MARK = Mark(MACHINE, RUN)
LONGEST = "x" * 20
DEVICE = UUID("88092bbd-128f-0c70-eb33-e10d1db22378")

# The head of the superblock that mdadm 4.2 wrote in the lab, with the uuid and the name that it was told.
WRITTEN = bytes.fromhex(
    "fc4e2ba9010000000000000000000000123456781234567812345678123456786261636b7570642d32303236313132322d"
    "3030353230342d6162313200000000bb3d026b000000000000000001000000000000000000000080000000020000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000800000000000000f80f000000000008"
    "00000000000000000000000000"
    "0000000000000000"
    "88092bbd128f0c70eb33e10d1db22378"
)
# What LVM 2.03.16 reported there: a group without tags, ours, and a disk that was marked for a group never made.
REPORT = """
  {"report": [{"pv": [
    {"pv_name":"/dev/ubdb", "pv_uuid":"lsR2eq-0RYc-QmIn-I18H-YxnS-CO6j-fChiqE", "vg_name":"labvg", "vg_tags":""},
    {"pv_name":"/dev/ubdg", "pv_uuid":"backup-d0RA-rf20-2611-22!0-0520-4!ab12", "vg_name":"x",
     "vg_tags":"backupd,backupd.machine=db1-0a1b2c3d,backupd.run=another"},
    {"pv_name":"/dev/ubdh", "pv_uuid":"backup-d1RA-rf20-2611-22!0-0520-4!ab12", "vg_name":"", "vg_tags":""}
  ]}]}
"""


@pytest.mark.parametrize("run_id", [RUN, LONGEST, "r", "7", "lab-1f", "a-"])
def test_a_pv_names_its_run(run_id: str) -> None:
    for place in (0, 1, 61):
        uuid = dashed(pv_uuid(Mark(MACHINE, run_id), place))
        assert re.fullmatch(r"[0-9A-Za-z!#]{6}(-[0-9A-Za-z!#]{4}){5}-[0-9A-Za-z!#]{6}", uuid)
        assert (run_of_pv(uuid, MACHINE), run_of_pv(uuid, "db2-0a1b2c3d")) == (run_id, None)


def test_no_two_disks_of_a_run_have_the_same_uuid() -> None:
    assert len({pv_uuid(MARK, place) for place in range(62)}) == 62


@pytest.mark.parametrize(
    "uuid",
    ["", "backupd", "lsR2eq-0RYc-QmIn-I18H-YxnS-CO6j-fChiqE", "backup-d0RA-rf##-####-####-####-######", "BACKUP" * 6],
)
def test_no_other_pv_is_taken_for_ours(uuid: str) -> None:
    assert run_of_pv(uuid, MACHINE) is None


@pytest.mark.parametrize("run_id", ["", LONGEST + "x", "a_b", "a.b", "-a", "a b", "ä"])
def test_a_run_whose_id_does_not_fit_onto_a_disk_is_refused(run_id: str) -> None:
    with pytest.raises(
        Refused, match="is not a valid disk label, so a dead run's disks could not be found again"
    ) as refused:
        require_markable(run_id, DISKS)
    assert "at most 20 letters" in refused.value.hint


def test_more_disks_than_a_mark_can_count_are_refused() -> None:
    with pytest.raises(Refused, match="63 disks are too many"):
        require_markable(RUN, DISKS[:1] * 63)


def test_what_mdadm_wrote_is_read() -> None:
    found = parse_superblock(WRITTEN)
    assert found == Superblock(UUID("12345678-1234-5678-1234-567812345678"), f"backupd-{RUN}", DEVICE)
    assert found.run_of(MACHINE) is None, "the uuid is not the one that follows from the run's id"


def test_an_array_names_its_run_by_name_and_uuid() -> None:
    assert Superblock(array_uuid(MARK), scratch_name(RUN), DEVICE).run_of(MACHINE) == RUN
    longest = Superblock(array_uuid(Mark(MACHINE, LONGEST)), scratch_name(LONGEST), DEVICE)
    assert (longest.run_of(MACHINE), len(longest.name) <= 32) == (LONGEST, True)
    assert longest.run_of("db2-0a1b2c3d") is None, "another machine's"
    assert Superblock(array_uuid(MARK), f"host:{scratch_name(RUN)}", DEVICE).run_of(MACHINE) is None
    assert Superblock(array_uuid(MARK), RUN, DEVICE).run_of(MACHINE) is None
    assert Superblock(array_uuid(Mark(MACHINE, "another")), scratch_name(RUN), DEVICE).run_of(MACHINE) is None


@pytest.mark.parametrize("data", [b"", b"\0" * 4096, WRITTEN[:183], b"\0" + WRITTEN, WRITTEN[:4] + b"\2" + WRITTEN[5:]])
def test_a_disk_without_such_a_superblock_says_nothing(data: bytes) -> None:
    assert parse_superblock(data) is None


def test_a_pv_in_a_group_is_whose_the_group_is_and_one_in_none_whose_it_says() -> None:
    stranger, another, ours = parse_labels(REPORT)
    assert (stranger.vg, run_of(stranger, MACHINE)) == ("labvg", None)
    assert (another.vg_tags, run_of(another, MACHINE)) == (frozenset(Mark(MACHINE, "another").tags), "another")
    assert (ours.path, run_of(ours, MACHINE)) == ("/dev/ubdh", RUN)
    taken = LabelledDisk(ours.path, ours.uuid, "theirs", frozenset())
    assert run_of(taken, MACHINE) is None, "somebody has made a group of it since"
    assert (run_of(another, "db2-0a1b2c3d"), run_of(ours, "db2-0a1b2c3d")) == (None, None)


@pytest.mark.parametrize("report", ["", "{}", '{"report": [{"pv": [{"pv_name": "/dev/a"}]}]}'])
def test_a_report_that_is_not_understood_is_shown(report: str) -> None:
    with pytest.raises(UnexpectedOutput, match="could not be parsed"):
        parse_labels(report)


def test_lvm_is_told_whose_disk_it_is_before_there_is_a_group_and_asked_to_overwrite_nothing() -> None:
    label, group = pv_argv(DISKS[1], MARK, 1), group_argv("vg", DISKS, MARK)
    assert label[label.index("--uuid") + 1] == "backup-d1RA-rf20-2611-22!0-0520-4!ab12"
    assert group[-5:] == [f"backupd.run={RUN}", "--", "vg", *DISKS]
    assert not {"--yes", "-y", "--force", "-f"} & {*label, *group}


def test_mdadm_is_told_name_and_uuid_that_tell_whose_the_array_is() -> None:
    layout = ScratchLayout(LayoutKind.RAID0, DISKS, stripe_size=64 * KIB)
    argv = create_argv(scratch_name(RUN), layout, MARK)
    assert f"--name={scratch_name(RUN)}" in argv
    uuid = next(word.removeprefix("--uuid=") for word in argv if word.startswith("--uuid="))
    assert UUID(uuid.replace(":", "")) == array_uuid(MARK)
    assert {"--chunk=64", "--raid-devices=2", "--level=0", "--metadata=1.2"} <= set(argv)


def test_mdadms_version_is_read_and_what_is_none_is_shown() -> None:
    assert parse_mdadm_version("mdadm - v4.2 - 2021-12-30 - Debian 4.2-5\n") == "4.2"
    with pytest.raises(UnexpectedOutput, match="no mdadm"):
        parse_mdadm_version("no mdadm\n")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two paths to each of two disks, sd* and nbd*; an array that may lie on either; a volume; an empty drive."""
    for name, size in (("sda", 99), ("sdb", 99), ("nbd0", 99), ("nbd1", 99), ("md127", 198), ("dm-0", 99), ("sr0", 0)):
        (tmp_path / "block" / name).mkdir(parents=True)
        (tmp_path / "block" / name / "size").write_text(f"{size}\n")
    (tmp_path / "block" / "dm-0" / "dm").mkdir()
    (tmp_path / "block" / "dm-0" / "dm" / "uuid").write_text("LVM-x\n")
    (tmp_path / "block" / "md127" / "md").mkdir()
    return tmp_path


def reader(path: Path) -> Superblock | None:
    """Of the first disk by both paths, of the second one by both, and of nothing else."""
    members = {"sda": 1, "nbd0": 1, "sdb": 2, "nbd1": 2, "dm-0": 1}
    number = members.get(path.name)
    return Superblock(array_uuid(MARK), scratch_name(RUN), UUID(int=number)) if number else None


def paths(sysfs: Path) -> list[Path]:
    return [member.disk.path for member in ours(MACHINE, sysfs=sysfs, read=reader)]


def test_a_disk_of_two_paths_is_one_member_and_the_path_is_the_one_that_the_array_lies_on(sysfs: Path) -> None:
    assert len(ours(MACHINE, sysfs=sysfs, read=reader)) == 2
    for name in ("nbd0", "nbd1"):
        (sysfs / "block" / name / "holders" / "md127").mkdir(parents=True)
    assert [member.disk.path for member in ours(MACHINE, sysfs=sysfs, read=reader)] == [
        Path("/dev/nbd0"),
        Path("/dev/nbd1"),
    ]
    for name in ("nbd0", "nbd1"):
        (sysfs / "block" / name / "holders" / "md127").rmdir()
    for name in ("sda", "sdb"):
        (sysfs / "block" / name / "holders" / "md127").mkdir(parents=True)
    assert [member.disk.path for member in ours(MACHINE, sysfs=sysfs, read=reader)] == [
        Path("/dev/sda"),
        Path("/dev/sdb"),
    ]


def test_a_disk_under_another_layer_is_no_member_and_one_that_would_make_us_wait_is_not_read(sysfs: Path) -> None:
    (sysfs / "block" / "sda" / "holders" / "dm-1").mkdir(parents=True)
    (sysfs / "block" / "sdb" / "dm").mkdir()
    (sysfs / "block" / "sdb" / "dm" / "suspended").write_text("1\n")
    read: list[str] = []

    def noting(path: Path) -> Superblock | None:
        read.append(path.name)
        raise OSError(123, "No medium found")

    assert ours(MACHINE, sysfs=sysfs, read=noting) == ()
    assert read == ["md127", "nbd0", "nbd1"]
