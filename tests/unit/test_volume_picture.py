"""Volume groups as tables and pictures: whole texts, of what LVM 2.03.16 reported."""

from dataclasses import replace

import pytest

from backupd.operations.measure.volume_survey import only
from backupd.report.volume_picture import group_picture, volume_picture
from backupd.report.volume_table import survey_text
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.extents import (
    Occupied,
    PhysicalVolume,
    PlacedGroup,
    PlacedSegment,
    PlacedVolume,
    Stretch,
    Survey,
    VolumeKind,
)
from backupd.vocabulary.volumes import VolumeGroup
from tests.fakes.lvm_host import striped_volume
from tests.fakes.surveyed import DATADIR, SurveyedHost, recorded
from tests.unit.test_volume_survey import job

STATES = ("mixed", "snapshots", "raid", "thin", "cache", "writecache", "partial", "pvmove", "foreign", "unused")


def group(state: str) -> PlacedGroup:
    return next(one for one in recorded(state).groups if one.room.name == "labvg")


def volume(state: str, name: str) -> PlacedVolume:
    return next(one for one in group(state).volumes if one.volume.name == name)


def disk(*pieces: tuple[int, str], name: str = "/dev/sdb") -> PhysicalVolume:
    """A PV with these runs of extents one after the other; an empty name is free."""
    occupied, first = [], 0
    for count, owner in pieces:
        occupied.append(Occupied(first, count, owner))
        first += count
    free = sum(count for count, owner in pieces if not owner)
    return PhysicalVolume(name, first << 22, first, free, True, False, tuple(occupied))


def drawn(*pvs: PhysicalVolume, volumes: tuple[str, ...], width: int = 40) -> list[str]:
    made = tuple(
        PlacedVolume(replace(striped_volume(), name=name), VolumeKind.VOLUME, True, False, ()) for name in volumes
    )
    return group_picture(PlacedGroup(VolumeGroup("vg", 4 << 20, 0), False, pvs, made), width=width).splitlines()


# --- disks ------------------------------------------------------------------------------------------------------------


def test_each_disk_is_a_bar_from_its_first_extent_to_its_last() -> None:
    assert group_picture(group("mixed"), width=60) == (
        "ubdb │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB··············│\n"
        "ubdc │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB··············│\n"
        "ubdd │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB··············│\n"
        "ubde │AB···················································│\n"
        "· free, a column is 35.5 MiB"
    )


def test_picture_in_ascii_says_the_same() -> None:
    plain = group_picture(group("thin"), width=60, ascii_only=True)
    assert plain.isascii()
    likeness = str.maketrans({"│": "|", "·": "."})
    assert plain == group_picture(group("thin"), width=60).translate(likeness)


def test_bar_is_as_long_as_its_disk_is_large_beside_the_largest() -> None:
    small, large = disk((25, "a"), (25, ""), name="/dev/s"), disk((100, "b"), name="/dev/l")
    assert drawn(small, large, volumes=("a", "b"), width=36) == [
        "s │AAAAAAAA········│",
        "l │BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB│",
        "· free, a column is 12.5 MiB",
    ]


def test_volume_of_one_extent_has_its_letter_and_the_one_before_keeps_its_own() -> None:
    bar = drawn(disk((1000, "a"), (1, "b"), (999, "")), volumes=("a", "b"))[0]
    assert bar == f"sdb │{'A' * 17}B{'·' * 16}│"


def test_volume_of_one_extent_between_others_has_its_letter_too() -> None:
    bar = drawn(disk((1000, "a"), (1, "b"), (999, "c")), volumes=("a", "b", "c"))[0]
    assert bar == f"sdb │{'A' * 17}B{'C' * 16}│"


def test_full_disk_has_no_free_column_and_an_empty_one_no_other() -> None:
    full, empty = drawn(disk((10, "a")), disk((10, ""), name="/dev/sdc"), volumes=("a",))[:2]
    assert full == f"sdb │{'A' * 34}│"
    assert empty == f"sdc │{'·' * 34}│"


def test_volumes_beyond_the_alphabets_share_a_sign() -> None:
    names = tuple(f"v{number:02}" for number in range(54))
    bar = drawn(disk(*((1, name) for name in names)), volumes=names, width=60)[0]
    assert bar == "sdb │ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz##│"


def test_long_name_of_a_disk_is_cut() -> None:
    name = "/dev/mapper/36001405d28e5d898829148da3c8b4a1e-part1"
    lines = drawn(disk((10, "a"), name=name), volumes=("a",), width=80)
    assert lines[0].startswith("mapper/36001405d28e… │AAA")
    assert all(len(line) <= 80 for line in lines)


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_segments_stand_in_line_and_stripes_below_one_another() -> None:
    assert volume_picture(volume("mixed", "own"), "B") == (
        "B  own: 15 extents, mixed\n"
        "   │0-5 2 stripes of 32.0 KiB   │6-10 linear   │11-14 2 stripes of 32.0 KiB  │\n"
        "   │ubdd:342-344 ───────────────│ubde:10-14 ───│ubdb:342-343 ────────────────│\n"
        "   │ubdc:342-344 ───────────────│              │ubdd:345-346 ────────────────│"
    )


def test_segments_that_have_no_room_beside_one_another_go_on_below() -> None:
    assert volume_picture(volume("mixed", "own"), "B", width=50, ascii_only=True) == (
        "B  own: 15 extents, mixed\n"
        "   |0-5 2 stripes of 32.0 KiB    |6-10 linear   |\n"
        "   |ubdd:342-344 ----------------|ubde:10-14 ---|\n"
        "   |ubdc:342-344 ----------------|\n"
        "   |11-14 2 stripes of 32.0 KiB                  |\n"
        "   |ubdb:342-343 --------------------------------|\n"
        "   |ubdd:345-346 --------------------------------|"
    )


def test_legs_of_a_raid1_stand_below_one_another_with_their_pieces() -> None:
    assert volume_picture(volume("raid", "mirror"), "E", width=60) == (
        "E  mirror: 8 extents, linear\n"
        "   │0-7 raid1, 2 legs                                      │\n"
        "   │ubdc:343-346+ubdc:349-352 ─────────────────────────────│\n"
        "   │ubdd:343-350 ──────────────────────────────────────────│"
    )


def test_thin_volume_lies_in_its_pool() -> None:
    assert volume_picture(volume("thin", "thin"), "E") == "E  thin: 25 extents, mixed, in pool pool"


def test_volume_of_more_segments_than_lines_can_hold_is_drawn_whole() -> None:
    segments = tuple(
        PlacedSegment(number, 1, "linear", 1, 0, ((Stretch("/dev/sdb", 2 * number, 1),),)) for number in range(40)
    )
    placed = PlacedVolume(striped_volume(), VolumeKind.VOLUME, True, False, segments)
    lines = volume_picture(placed, "A").splitlines()
    assert sum(line.count(" linear") for line in lines) == 40
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [20, 40, 79, 80, 200])
@pytest.mark.parametrize("state", STATES)
def test_no_picture_is_wider_than_it_may_be(state: str, width: int, ascii_only: bool) -> None:
    for one in recorded(state).groups:
        text = group_picture(one, width=width, ascii_only=ascii_only)
        for placed in one.volumes:
            text += "\n" + volume_picture(placed, "A", width=width, ascii_only=ascii_only)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or not ascii_only


# --- all of it --------------------------------------------------------------------------------------------------------

MIXED = """\
labvg: 7.4 GiB on 4 PVs, 3.3 GiB free, extents of 4.0 MiB, 2 volumes

PV            SIZE  EXTENTS  FREE
/dev/ubdb  1.8 GiB      471   127  508.0 MiB
/dev/ubdc  1.8 GiB      471   126  504.0 MiB
/dev/ubdd  1.8 GiB      471   124  496.0 MiB
/dev/ubde  1.8 GiB      471   456    1.8 GiB

   VOLUME      SIZE  LAYOUT  EXTENTS    SEGMENT                ON PVS
A  data     4.0 GiB  mixed   0-1025     3 stripes of 64.0 KiB  /dev/ubdb:0-341 /dev/ubdc:0-341 /dev/ubdd:0-341
                             1026-1035  linear                 /dev/ubde:0-9
B  own     60.0 MiB  mixed   0-5        2 stripes of 32.0 KiB  /dev/ubdd:342-344 /dev/ubdc:342-344
                             6-10       linear                 /dev/ubde:10-14
                             11-14      2 stripes of 32.0 KiB  /dev/ubdb:342-343 /dev/ubdd:345-346

ubdb │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB···················│
ubdc │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB···················│
ubdd │AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB···················│
ubde │AAB······································································│
· free, a column is 25.8 MiB

A  data: 1036 extents, mixed
   │0-1025 3 stripes of 64.0 KiB                            │1026-1035 linear │
   │ubdb:0-341 ─────────────────────────────────────────────│ubde:0-9 ────────│
   │ubdc:0-341 ─────────────────────────────────────────────│
   │ubdd:0-341 ─────────────────────────────────────────────│

B  own: 15 extents, mixed
   │0-5 2 stripes of 32.0 KiB   │6-10 linear   │11-14 2 stripes of 32.0 KiB  │
   │ubdd:342-344 ───────────────│ubde:10-14 ───│ubdb:342-343 ────────────────│
   │ubdc:342-344 ───────────────│              │ubdd:345-346 ────────────────│

labvg/data  used    mounted on /srv/mysql (xfs)
            server  the data directory of host db1
            job     nightly: its snapshot of 832.0 MiB fits
            room    3.3 GiB for snapshots in the group, by PV as above
labvg/own   room    3.3 GiB for snapshots in the group, by PV as above

HOST  JOBS    ITS DATA
db2   weekly  unknown: db2 does not answer
"""


def test_whole_text_of_a_host_with_mixed_volumes() -> None:
    found = SurveyedHost("mixed", {"db1": DATADIR, "db2": ServerError("db2 does not answer")}).survey(
        job(), job("weekly", "db2")
    )
    assert survey_text(found) + "\n" == MIXED


@pytest.mark.parametrize(
    ("state", "name", "facts"),
    [
        (
            "snapshots",
            "labvg/own",
            "labvg/own  snapshot  backupd-r1 (backupd, run r1)\n"
            "           snapshot  theirs\n"
            "           room      3.2 GiB for snapshots in the group, by PV as above",
        ),
        ("snapshots", "labvg/backupd-r1", "labvg/backupd-r1  state  snapshot of own (backupd, run r1)"),
        (
            "snapshots",
            "labvg/idle",
            "labvg/idle  state  not active\n            room   3.2 GiB for snapshots in the group, by PV as above",
        ),
        ("thin", "labvg/pool", "labvg/pool  state  pool"),
        (
            "thin",
            "labvg/thin_snap",
            "labvg/thin_snap  state  thin snapshot of thin\n"
            "                 state  not active\n"
            "                 room   76.0 MiB for snapshots in pool labvg/pool",
        ),
        (
            "partial",
            "labvg/data",
            "labvg/data  state  partial\n"
            "            used   mounted on /srv/mysql (xfs)\n"
            "            room   2.7 GiB for snapshots in the group, by PV as above",
        ),
    ],
)
def test_facts_of_a_volume(state: str, name: str, facts: str) -> None:
    text = survey_text(only(SurveyedHost(state).survey(), name))
    assert text.rpartition("\n\n")[2] == facts


def test_hidden_volumes_stand_below_those_that_they_serve() -> None:
    text = survey_text(only(SurveyedHost("thin").survey(), "labvg/pool"))
    table = text.split("\n\n")[2]
    assert table == (
        "   VOLUME              SIZE  LAYOUT              EXTENTS  SEGMENT                ON PVS\n"
        "D  pool            76.0 MiB  mixed               0-15     2 stripes of 64.0 KiB  "
        "/dev/ubdb:343-350 /dev/ubdc:342-349\n"
        "                                                 16-18    linear                 /dev/ubde:10-12\n"
        "     [pool_tdata]  76.0 MiB  thin pool data      0-15     2 stripes of 64.0 KiB  "
        "/dev/ubdb:343-350 /dev/ubdc:342-349\n"
        "                                                 16-18    linear                 /dev/ubde:10-12\n"
        "     [pool_tmeta]   4.0 MiB  thin pool metadata  0-0      linear                 /dev/ubdc:350-350"
    )


def test_job_whose_snapshot_does_not_fit_is_told_why_and_what_to_do() -> None:
    found = SurveyedHost("mixed", {"db1": DATADIR}).survey(job(pvs=("/dev/ubdb",)))
    lines = [line.strip() for line in survey_text(found).splitlines()]
    refusal = "not enough free extents on /dev/ubdb of labvg: need 208, have 127"
    assert f"job     nightly: its snapshot does not fit: {refusal}" in lines
    assert any(
        line.startswith("hint: lower snapshot.size (now auto: 20%, or what past runs have filled)") for line in lines
    )


def test_group_and_disk_with_a_flaw_are_told_so() -> None:
    assert "EXPORTED" in survey_text(SurveyedHost("exported").survey()).splitlines()[0]
    assert "/dev/ubde  1.8 GiB      471   458    1.8 GiB  not allocatable" in survey_text(SurveyedHost("raid").survey())
    assert "[unknown]  1.8 GiB      471   129  516.0 MiB  MISSING" in survey_text(SurveyedHost("partial").survey())


def test_disks_of_no_group_are_told_and_a_host_without_groups() -> None:
    text = survey_text(SurveyedHost("unused").survey())
    assert text.rpartition("\n\n")[2] == "PVS OF NO GROUP  SIZE\n/dev/loop0       64.0 MiB"
    assert survey_text(Survey(())) == "no volume groups"


@pytest.mark.parametrize("state", STATES)
def test_whole_text_in_ascii_is_ascii(state: str) -> None:
    assert survey_text(SurveyedHost(state).survey(job()), ascii_only=True).isascii()
