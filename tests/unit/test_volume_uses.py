"""Who uses a block device, by what the kernel shows of a made-up host."""

from pathlib import Path

import pytest

from backupd.lvm.mounting import mount_of
from backupd.lvm.uses import holders, parse_swaps, uses
from backupd.vocabulary.extents import Use, UseKind
from backupd.vocabulary.volumes import DeviceNumber

VOLUME = DeviceNumber(254, 0)
GROUP = "ldi0jniO83qgIk8PN9o53Txfh4Dmv8pj"
OTHER = "XVj7zzPXAddgL22ai8g2o2lGebePjLZT"


def device(sysfs: Path, number: str, *, uuid: str = "", holds: tuple[str, ...] = ()) -> Path:
    folder = sysfs / "dev" / "block" / number
    (folder / "dm").mkdir(parents=True)
    (folder / "dm" / "uuid").write_text(f"{uuid}\n")
    for name in holds:
        (folder / "holders" / name).mkdir(parents=True)
    return folder


def named(folder: Path, holder: str, name: str, uuid: str) -> None:
    (folder / "holders" / holder / "dm").mkdir()
    (folder / "holders" / holder / "dm" / "name").write_text(f"{name}\n")
    (folder / "holders" / holder / "dm" / "uuid").write_text(f"{uuid}\n")


def test_swap_devices_are_read_below_the_heading() -> None:
    heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    assert parse_swaps(heading) == ()
    text = f"{heading}/dev/dm-3                partition\t4194300\t\t0\t\t-2\n/swap\\040file file 1 0 -3\n"
    assert parse_swaps(text) == (Path("/dev/dm-3"), Path("/swap file"))


def test_device_on_a_volume_is_its_holder_by_name(tmp_path: Path) -> None:
    folder = device(tmp_path, "254:0", uuid=f"LVM-{GROUP}{'a' * 32}", holds=("dm-5", "md127"))
    named(folder, "dm-5", "crypt_data", "CRYPT-LUKS2-0123-crypt_data")
    assert list(holders(VOLUME, sysfs=tmp_path)) == ["crypt_data", "md127"]


def test_what_lvm_lays_on_its_own_volume_is_no_holder_but_another_group_s_is(tmp_path: Path) -> None:
    folder = device(tmp_path, "254:0", uuid=f"LVM-{GROUP}{'a' * 32}-real", holds=("dm-1", "dm-2"))
    named(folder, "dm-1", "labvg-snap", f"LVM-{GROUP}{'b' * 32}")
    named(folder, "dm-2", "inner-lv", f"LVM-{OTHER}{'b' * 32}")
    assert list(holders(VOLUME, sysfs=tmp_path)) == ["inner-lv"]


def test_device_that_is_gone_has_no_holders(tmp_path: Path) -> None:
    assert list(holders(VOLUME, sysfs=tmp_path)) == []


def test_mounts_of_this_machine_are_uses() -> None:
    proc = mount_of(Path("/proc/self"))
    assert Use(UseKind.MOUNT, "/proc", "proc") in uses()(proc.device)


@pytest.mark.parametrize("number", [DeviceNumber(-1, -1), DeviceNumber(4000, 1)])
def test_device_that_nobody_uses_has_none(number: DeviceNumber) -> None:
    assert uses()(number) == ()
