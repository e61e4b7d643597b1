"""What a job's names of PVs mean today: paths change hands, uuids do not."""

from dataclasses import replace

import pytest

from backupd.policy.named_pvs import NamedPvs, named_pvs
from tests.fakes.lvm_host import LvmHost, pv_uuid

B, C, E = (pv_uuid(f"/dev/sd{letter}") for letter in "bce")


@pytest.fixture
def host() -> LvmHost:
    return LvmHost()


def test_a_uuid_is_the_path_that_its_pv_has_today(host: LvmHost) -> None:
    assert named_pvs((E, "/dev/sdb"), host.group()) == NamedPvs(("/dev/sde", "/dev/sdb"))
    host.pv_uuids |= {"/dev/sdb": E, "/dev/sde": B}  # the kernel found them the other way round
    assert named_pvs((E,), host.group()) == NamedPvs(("/dev/sdb",))
    assert named_pvs(("/dev/sde",), host.group()) == NamedPvs(("/dev/sde",))  # whichever disk that is


def test_one_pv_named_twice_is_one(host: LvmHost) -> None:
    assert named_pvs((E, "/dev/sde", E), host.group()) == NamedPvs(("/dev/sde",))
    assert named_pvs((), host.group()) == NamedPvs(())


def test_a_pv_goes_by_every_path_that_leads_to_it(host: LvmHost) -> None:
    """As in a configuration that names `/dev/disk/by-id/…`, where LVM says `/dev/sde`."""
    by_id = "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"
    group = replace(host.group(), same_device=lambda *paths: paths == (by_id, "/dev/sde"))
    assert named_pvs((by_id, "/dev/sdb"), group) == NamedPvs(("/dev/sde", "/dev/sdb"))
    assert named_pvs(("/dev/disk/by-id/other",), group).gone == ("/dev/disk/by-id/other is not a PV of labvg",)
    closed = replace(group, closed=("/dev/sde",), free_by_pv={"/dev/sdb": 1})
    assert named_pvs((by_id,), closed).gone == (f"{by_id} (/dev/sde) takes no new extents",)


def test_another_disk_with_the_same_path_is_another_pv(host: LvmHost) -> None:
    host.replace_disk("/dev/sde")
    assert named_pvs((C, E), host.group()) == NamedPvs(("/dev/sdc",), (f"{E} is not a PV of labvg",))


def test_a_path_of_no_pv_of_the_group_is_gone_too(host: LvmHost) -> None:
    assert named_pvs(("/dev/sdz",), host.group()).gone == ("/dev/sdz is not a PV of labvg",)


def test_a_pv_whose_disk_is_not_found_is_missing(host: LvmHost) -> None:
    del host.free_by_pv["/dev/sde"]
    host.missing.add(E)
    assert named_pvs((E,), host.group()).gone == (f"{E} is missing from labvg",)


def test_a_closed_pv_is_told_as_what_it_is(host: LvmHost) -> None:
    host.closed.add("/dev/sde")
    gone = named_pvs((E, "/dev/sde"), host.group()).gone
    assert gone == (f"{E} (/dev/sde) takes no new extents", "/dev/sde takes no new extents")


def test_a_uuid_that_two_devices_claim_is_neither(host: LvmHost) -> None:
    host.pv_uuids["/dev/sdb"] = E
    assert named_pvs((E,), host.group()).gone == (f"{E} is the uuid of /dev/sdb and of /dev/sde",)
