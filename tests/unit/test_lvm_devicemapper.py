"""What the kernel's answers are understood to say; the bytes were recorded from kernel 6.1."""

import json
from pathlib import Path

import pytest

from backupd.lvm import devicemapper
from backupd.lvm.devicemapper import MappedDevice, TableLine
from backupd.vocabulary.errors import UnexpectedOutput
from backupd.vocabulary.volumes import CowUsage, DeviceNumber

ANSWERS: dict[str, str] = json.loads((Path(__file__).parent.parent / "data" / "lvm" / "devicemapper.json").read_text())


def answer(name: str) -> MappedDevice:
    return devicemapper.parse_table(bytes.fromhex(ANSWERS[name]))


def snapshot_with(status: str, kind: str = "snapshot") -> MappedDevice:
    return MappedDevice("vg-s", "LVM-x", DeviceNumber(254, 3), False, (TableLine(kind, status),))


def test_live_snapshot_is_read_with_its_fill() -> None:
    snapshot = answer("snapshot")
    assert (snapshot.name, snapshot.device, snapshot.suspended) == ("labvg-backupd--r1", DeviceNumber(254, 3), False)
    assert devicemapper.cow_usage(snapshot) == CowUsage(True, 256 * 512, 204800 * 512, 256 * 512)


def test_tables_of_snapshot_and_origin_name_the_same_device_beneath() -> None:
    assert answer("snapshot_table").only == TableLine("snapshot", "254:1 254:2 P 128")
    assert answer("origin_table").only == TableLine("snapshot-origin", "254:1")


def test_suspended_device_says_so() -> None:
    assert answer("origin_suspended").suspended
    assert not answer("origin_table").suspended


def test_table_of_several_lines_is_read_whole_and_has_no_only_target() -> None:
    mixed = answer("mixed")
    assert [target.kind for target in mixed.targets] == ["striped", "linear"]
    assert mixed.targets[1].words == "98:64 2048"
    assert mixed.only is None


def test_overflown_snapshot_is_not_intact() -> None:
    assert devicemapper.cow_usage(answer("snapshot_invalid")) == CowUsage(intact=False, state="Invalid")


@pytest.mark.parametrize("word", ["Invalid", "Overflow", "Merge failed", "Unknown"])
def test_words_of_the_kernel_for_a_lost_snapshot(word: str) -> None:
    assert devicemapper.cow_usage(snapshot_with(word)) == CowUsage(intact=False, state=word)


def test_device_that_is_gone_or_became_something_else_is_not_intact() -> None:
    assert devicemapper.cow_usage(None).state == "gone"
    assert devicemapper.cow_usage(answer("striped")).state == "striped"
    assert devicemapper.cow_usage(snapshot_with("8/16 8", "snapshot-merge")).state == "snapshot-merge"


@pytest.mark.parametrize("words", ["", "12", "12/34", "a/b c", "Splendid"])
def test_status_of_unknown_form_is_shown(words: str) -> None:
    with pytest.raises(UnexpectedOutput, match=f"could not be parsed: {words}"):
        devicemapper.cow_usage(snapshot_with(words))


def test_table_that_did_not_fit_is_not_taken_for_the_whole() -> None:
    cut = bytearray.fromhex(ANSWERS["mixed"])
    cut[29] |= 1  # the flag "buffer full", bit 8 of the flags
    with pytest.raises(UnexpectedOutput, match="longer than"):
        devicemapper.parse_table(bytes(cut))


def test_request_names_one_device_and_flushes_nothing() -> None:
    request = devicemapper.table_request(uuid="LVM-abc")
    asked = devicemapper.parse_table(bytes(request))
    assert (asked.uuid, asked.name, asked.targets) == ("LVM-abc", "", ())
    assert request[28:32] == (1 << 11).to_bytes(4, "little")


def test_dashes_are_doubled_in_device_names() -> None:
    assert devicemapper.lvm_name("my-vg", "backupd-r1") == "my--vg-backupd--r1"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"dm/uuid": "CRYPT-LUKS2-0123-luks\n"}, "a LUKS or dm-crypt layer"),
        ({"dm/uuid": "LVM-abc-real\n"}, "an internal volume of LVM"),
        ({"dm/uuid": "\n"}, "a device-mapper device"),
        ({"md/level": "raid1\n"}, "an md array"),
        ({"bcache/state": "clean\n"}, "a bcache device"),
        ({"partition": "1\n"}, "a plain partition"),
        ({"size": "1\n"}, "a plain disk"),
    ],
)
def test_layer_under_a_file_system_is_named(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        file = tmp_path / "dev" / "block" / "8:1" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert words in devicemapper.describe(DeviceNumber(8, 1), sysfs=tmp_path)


def test_file_system_without_block_device_is_named(tmp_path: Path) -> None:
    assert "is not a block device" in devicemapper.describe(DeviceNumber(0, 41), sysfs=tmp_path)
