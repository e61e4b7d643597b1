"""A backup restored into a volume of LVM's: whole, or as blank as before; what holds something is left as it is."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import GATE_OFF, RUN_FOLDER, SITE, Host, mounted, stored, tool
from tests.lab.inside.places import volume
from tests.lab.inside.trees import Tree, remove, tree_of

USAGE, REFUSED = 2, 5
FILLED = f"{SITE.volume_group}/filled"
DEVICE = Path("/dev") / FILLED
LEFTOVERS = "--overwrite-leftovers"  # of the volumes of the tests before
BY_HAND = SITE.state / "by-hand"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a run."""
    host = Host(tmp_path_factory.mktemp("good"))
    return host.backupd("run", "nightly", "--json", changes=GATE_OFF).document


@pytest.fixture(scope="module")
def unpacked(good: dict[str, Any]) -> Tree:
    """What the backup holds, by zstd and tar alone."""
    BY_HAND.mkdir()
    try:
        for found in stored(SITE.backups, good["run_id"]).glob("*.tar.zst"):
            if found.name.startswith(("data", "binlog")):
                tool("bash", "-c", f"zstd -dcq {found} | tar -x -C {BY_HAND}")
        return tree_of(BY_HAND)
    finally:
        remove(BY_HAND)


def into_volume(host: Host, run_id: str, *words: str, expect: int = 0) -> str:
    ended = host.backupd("restore", run_id, "--into-volume", FILLED, *words, expect=expect)
    return ended.stdout + ended.stderr


def signature() -> str:
    return tool("wipefs", "--noheadings", str(DEVICE)).strip()


def test_a_volume_that_is_not_there_is_answered_with_the_command_that_makes_it(
    host: Host, good: dict[str, Any]
) -> None:
    said = into_volume(host, good["run_id"], expect=USAGE)
    assert "hint: make one: lvcreate --name filled --size " in said


def test_a_volume_that_is_too_small_is_refused_before_anything_is_written(host: Host, good: dict[str, Any]) -> None:
    with volume("filled", "--size", "64m", SITE.volume_group):
        assert "is too small: the backup needs" in into_volume(host, good["run_id"], expect=REFUSED)
        assert signature() == ""


def test_a_volume_that_holds_something_or_is_in_use_is_left_as_it_is(host: Host, good: dict[str, Any]) -> None:
    with volume("filled", "--size", "1200m", SITE.volume_group):
        with DEVICE.open("rb"):
            assert "a process has it open" in into_volume(host, good["run_id"], expect=REFUSED)
        tool("mkfs.ext4", "-q", "-E", "nodiscard", str(DEVICE))
        before = signature()
        assert "it has ext4" in into_volume(host, good["run_id"], expect=REFUSED)
        assert signature() == before != ""


def test_a_filled_volume_has_every_file_of_the_backup(
    host: Host, good: dict[str, Any], unpacked: Tree, tmp_path: Path
) -> None:
    with volume("filled", "--size", "1200m", SITE.volume_group):
        with DEVICE.open("r+b") as file:  # as what a removed volume leaves, which LVM does not wipe
            file.seek(1 << 20)
            file.write(b"remains")
        assert "it has data at" in into_volume(host, good["run_id"], expect=REFUSED)
        said = into_volume(host, good["run_id"], LEFTOVERS)
        at = tmp_path / "filled"
        at.mkdir()
        line = next(line for line in said.splitlines() if "mount -t " in line)
        tool(*line[line.index("mount -t ") :].replace("MOUNT-POINT", str(at)).split())
        try:
            found = tree_of(at)
        finally:
            tool("umount", str(at))
    assert {path: entry for path, entry in found.items() if path in unpacked} == unpacked
    assert "CHANGE MASTER TO" in said


def test_recover_makes_a_volume_blank_again_whose_restore_was_killed(host: Host, good: dict[str, Any]) -> None:
    with volume("filled", "--size", "1200m", SITE.volume_group):
        process = subprocess.Popen(
            ["backupd", "restore", good["run_id"], "--into-volume", FILLED, LEFTOVERS], stderr=subprocess.DEVNULL
        )
        at = RUN_FOLDER / "mnt" / good["run_id"]
        while not (str(at) in mounted() and any(at.iterdir())):
            assert process.poll() is None, "it has ended before it was killed"
        process.kill()
        process.wait()
        assert signature() != ""
        assert "released file-system" in host.backupd("recover").stdout
        assert signature() == ""
