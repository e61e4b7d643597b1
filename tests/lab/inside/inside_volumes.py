"""`backupd volumes` beside what LVM made: whole outputs, on the lab's four disks; and a run of a volume that is mixed.

The figures are those of a lab of 5000 rows, whose disks have 471 extents of 4 MiB, of which `data` takes 342 on three.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.inside.host import GATE_OFF, SITE, Host, tool
from tests.lab.inside.inside_layouts import proven
from tests.lab.inside.places import volume

GROUP = SITE.volume_group
B, C, D, E = ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd", "/dev/ubde")
_UNWATCHED = ("--yes", "--config", "activation/monitoring=0")


def lvm(program: str, *words: str) -> None:
    tool(program, *_UNWATCHED, *words)


def told(host: Host, *words: str) -> str:
    return host.backupd("volumes", *words).stdout


def volumes_of(host: Host, group: str = GROUP) -> dict[str, dict[str, Any]]:
    """Each volume of the group by its name, as the document tells it."""
    groups = host.backupd("volumes", "--json").document["groups"]
    found = next(one for one in groups if one["name"] == group)
    return {one["name"]: one for one in found["volumes"]}


def lies_on(told_volume: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """Each segment: its kind, and the extents of each stripe or leg as LVM's commands take them."""
    return [
        (
            segment["kind"],
            [
                [f"{one['pv']}:{one['first']}-{one['first'] + one['count'] - 1}" for one in place]
                for place in segment["places"]
            ],
        )
        for segment in told_volume["segments"]
    ]


@contextmanager
def mixed_volume() -> Iterator[None]:
    """`own`: 2 stripes, then linear, then a further set of stripes; the first set's disks against their order."""
    with volume("own", "--stripes", "2", "--stripesize", "32k", "--extents", "6", GROUP, D, C):
        lvm("lvextend", "--stripes", "1", "--extents", "+5", f"{GROUP}/own", E)
        lvm("lvextend", "--stripes", "2", "--stripesize", "32k", "--extents", "+4", f"{GROUP}/own", B, D)
        yield


MIXED = """\
labvg: 7.4 GiB on 4 PVs, 3.3 GiB free, extents of 4.0 MiB, 2 volumes

PV            SIZE  EXTENTS  FREE
/dev/ubdb  1.8 GiB      471   127  508.0 MiB
/dev/ubdc  1.8 GiB      471   126  504.0 MiB
/dev/ubdd  1.8 GiB      471   124  496.0 MiB
/dev/ubde  1.8 GiB      471   466    1.8 GiB

   VOLUME      SIZE  LAYOUT  EXTENTS  SEGMENT                ON PVS
B  own     60.0 MiB  mixed   0-5      2 stripes of 32.0 KiB  /dev/ubdd:342-344 /dev/ubdc:342-344
                             6-10     linear                 /dev/ubde:0-4
                             11-14    2 stripes of 32.0 KiB  /dev/ubdb:342-343 /dev/ubdd:345-346

ubdb |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB...................|
ubdc |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB...................|
ubdd |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB...................|
ubde |B........................................................................|
. free, a column is 25.8 MiB

B  own: 15 extents, mixed
   |0-5 2 stripes of 32.0 KiB   |6-10 linear   |11-14 2 stripes of 32.0 KiB  |
   |ubdd:342-344 ---------------|ubde:0-4 -----|ubdb:342-343 ----------------|
   |ubdc:342-344 ---------------|              |ubdd:345-346 ----------------|

labvg/own  room  3.3 GiB for snapshots in the group, by PV as above
"""


def test_mixed_volume_is_told_segment_by_segment(host: Host) -> None:
    with mixed_volume():
        assert told(host, f"{GROUP}/own") == MIXED
        assert lies_on(volumes_of(host)["own"]) == [
            ("striped", [[f"{D}:342-344"], [f"{C}:342-344"]]),
            ("linear", [[f"{E}:0-4"]]),
            ("striped", [[f"{B}:342-343"], [f"{D}:345-346"]]),
        ]


def test_what_lies_on_each_extent_is_what_device_mapper_maps(host: Host) -> None:
    """The kernel's table of the volume, in sectors behind each PV's first MiB, says the same as the document."""
    with mixed_volume():
        found = volumes_of(host)["own"]
        table = [line.split() for line in tool("dmsetup", "table", f"{GROUP}-own").splitlines()]
    extent, first_mebibyte = 8192, 2048  # sectors
    numbers = {pv: f"{os.major(Path(pv).stat().st_rdev)}:{os.minor(Path(pv).stat().st_rdev)}" for pv in (B, C, D, E)}
    mapped = []
    for segment in found["segments"]:
        stripes = [
            word
            for (one,) in segment["places"]
            for word in (numbers[one["pv"]], str(first_mebibyte + one["first"] * extent))
        ]
        ahead = ["striped", str(segment["stripes"]), "64"] if segment["stripes"] > 1 else ["linear"]
        mapped.append([str(segment["first"] * extent), str(segment["count"] * extent), *ahead, *stripes])
    assert table == mapped


def test_every_kind_of_volume_is_told_with_what_serves_it(host: Host) -> None:
    tool("modprobe", "--all", "dm-raid", "raid1", "dm-cache", "dm-cache-smq", "dm-thin-pool")
    with (
        volume("between", "--extents", "1", GROUP, E),
        volume("mirror", "--type", "raid1", "--mirrors", "1", "--extents", "4", GROUP, C, D),
        volume("warm", "--stripes", "2", "--extents", "8", GROUP, C, D),
        volume("pool", "--type", "thin-pool", "--stripes", "2", "--extents", "8", GROUP, B, C),
    ):
        lvm("lvcreate", "--type", "cache-pool", "--name", "fast", "--size", "24m", GROUP, B)
        lvm("lvconvert", "--type", "cache", "--cachepool", f"{GROUP}/fast", f"{GROUP}/warm")
        lvm("lvcreate", "--virtualsize", "100m", "--thinpool", f"{GROUP}/pool", "--name", "thin")
        lvm("lvcreate", "--snapshot", "--name", "thin_snapshot", f"{GROUP}/thin")
        lvm("lvcreate", "--snapshot", "--extents", "2", "--name", "kept", f"{GROUP}/between", E)
        lvm("lvchange", "--activate", "n", f"{GROUP}/mirror")
        found = volumes_of(host)
        spare = tool("lvs", "--noheadings", "--options", "lv_name", "--all", "--select", "lv_name=lvol0_pmspare")
    assert spare.strip() == "[lvol0_pmspare]"
    assert {
        name: (one["kind"], one["layout"], one["active"], one["origin"], [part["name"] for part in one["parts"]])
        for name, one in found.items()
    } == {
        "between": ("volume", "linear", True, None, []),
        "data": ("volume", "striped", True, None, []),
        "kept": ("snapshot", "linear", True, "between", []),
        "mirror": (
            *("volume", "linear", False, None),
            ["mirror_rimage_0", "mirror_rimage_1", "mirror_rmeta_0", "mirror_rmeta_1"],
        ),
        "pool": ("pool", "striped", True, None, ["pool_tdata", "pool_tmeta"]),
        "thin": ("thin volume", "striped", True, None, []),
        "thin_snapshot": ("thin snapshot", "striped", False, "thin", []),
        "warm": (
            *("volume", "striped", True, None),
            ["warm_corig", "fast_cpool", "fast_cpool_cdata", "fast_cpool_cmeta"],
        ),
    }
    assert lies_on(found["mirror"]) == [("raid1", [[f"{C}:343-346"], [f"{D}:343-346"]])]
    assert [one["name"] for one in found["between"]["snapshots"]] == ["kept"]
    assert [one["name"] for one in found["thin"]["snapshots"]] == ["thin_snapshot"]
    assert found["warm"]["cache"] == {"kind": "cache", "size": 6 * (4 << 20), "pvs": [B]}


FOREIGN = """\
foreign: 63.0 MiB on 1 PV, 63.0 MiB free, extents of 1.0 MiB, 0 volumes

PV            SIZE  EXTENTS  FREE
{loop}  63.0 MiB       63    63  63.0 MiB

{name} |........................................................................|
. free, a column is 896.0 KiB
"""


def test_group_of_somebody_else_s_without_volumes(host: Host) -> None:
    with second_group() as loop:
        text = told(host, "foreign")
        document = host.backupd("volumes", "foreign", "--json").document
    assert text.split() == FOREIGN.format(loop=loop, name=loop.removeprefix("/dev/")).split()
    assert [group["name"] for group in document["groups"]] == ["foreign"]
    assert document["groups"][0]["volumes"] == []


@contextmanager
def second_group() -> Iterator[str]:
    """`foreign`, on a loop device that LVM is told to look at as well."""
    configuration = SITE.lvm_system / "lvmlocal.conf"
    before = configuration.read_text()
    with tempfile.NamedTemporaryFile() as image:
        os.truncate(image.fileno(), 64 << 20)
        loop = tool("losetup", "--find", "--show", image.name).strip()
        try:
            configuration.write_text(before.replace("[ ", f'[ "a|^{loop}$|", '))
            lvm("vgcreate", "--physicalextentsize", "1m", "foreign", loop)
            yield loop
            lvm("vgremove", "foreign")
        finally:
            configuration.write_text(before)
            tool("losetup", "--detach", loop)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_unknown_names_are_told_with_those_there_are(host: Host) -> None:
    ended = host.backupd("volumes", "nosuch", expect=2)
    assert ended.stderr.endswith("error: no volume group 'nosuch'\nhint: there are: labvg\n")
    ended = host.backupd("volumes", f"{GROUP}/nosuch", expect=2)
    assert ended.stderr.endswith("error: no logical volume labvg/nosuch\nhint: labvg has: data\n")


# --- a run ------------------------------------------------------------------------------------------------------------

EXTENDED = """\
labvg: 7.4 GiB on 4 PVs, 3.3 GiB free, extents of 4.0 MiB, 1 volume

PV            SIZE  EXTENTS  FREE
/dev/ubdb  1.8 GiB      471   125  500.0 MiB
/dev/ubdc  1.8 GiB      471   125  500.0 MiB
/dev/ubdd  1.8 GiB      471   129  516.0 MiB
/dev/ubde  1.8 GiB      471   461    1.8 GiB

   VOLUME     SIZE  LAYOUT  EXTENTS    SEGMENT                ON PVS
A  data    4.1 GiB  mixed   0-1025     3 stripes of 64.0 KiB  /dev/ubdb:0-341 /dev/ubdc:0-341 /dev/ubdd:0-341
                            1026-1035  linear                 /dev/ubde:0-9
                            1036-1043  2 stripes of 64.0 KiB  /dev/ubdb:342-345 /dev/ubdc:342-345

ubdb |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA...................|
ubdc |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA...................|
ubdd |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA....................|
ubde |AA.......................................................................|
. free, a column is 25.8 MiB

A  data: 1044 extents, mixed
"""
DATA_FACTS = """
labvg/data  used    mounted on /srv/mysql (xfs)
            server  the data directory of host lab
            job     nightly: its snapshot of 836.0 MiB fits
            room    3.3 GiB for snapshots in the group, by PV as above
"""


def test_run_and_proof_of_a_volume_that_was_extended_onto_another_disk_and_then_onto_more(host: Host) -> None:
    lvm("lvextend", "--stripes", "1", "--extents", "+10", f"{GROUP}/data", E)
    lvm("lvextend", "--stripes", "2", "--stripesize", "64k", "--extents", "+8", f"{GROUP}/data", B, C)
    tool("xfs_growfs", str(SITE.mount_point))
    text = told(host)
    assert text.startswith(EXTENDED)
    assert text.endswith(DATA_FACTS)
    checked = host.backupd("check", "nightly", "--json", changes=GATE_OFF).document["findings"]
    layout = next(finding for finding in checked if finding["name"] == "layout")
    assert layout["level"] == "ok"
    assert layout["detail"] == "labvg/data is mixed, 3 stripes of 64.0 KiB (3 segments)"
    document = proven(host, GATE_OFF)
    assert document["snapshot"]["layout"] == "mixed"
    assert (document["snapshot"]["stripes"], document["snapshot"]["stripe_size"]) == (3, 65536)


def test_data_of_a_server_that_does_not_answer_is_where_the_last_run_saw_it(host: Host) -> None:
    silent = {"hosts.lab.socket": "/run/mysqld/nobody.sock"}
    before = host.backupd("volumes", "--json", changes=silent).document
    data = next(one for one in before["groups"][0]["volumes"] if one["name"] == "data")
    assert data["hosts"] == [{"name": "lab", "known_from": "last run"}]
    assert [(job["name"], job["known_from"], job["fits"]) for job in data["jobs"]] == [("nightly", "last run", True)]
    fresh = {**silent, "catalogue.path": "/var/lib/backupd/none.sqlite"}
    unknown = host.backupd("volumes", "--json", changes=fresh).document
    assert [(one["name"], one["jobs"], one["known"]) for one in unknown["elsewhere"]] == [("lab", ["nightly"], False)]
    assert not Path("/var/lib/backupd/none.sqlite").exists()
