"""Whose sectors a refused request is measured by."""

import os
from pathlib import Path

import pytest

from backupd.load.sectors import explained, sector_size
from backupd.vocabulary.errors import CommandError


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """As `/sys/dev/block`: the disk that `tmp_path` lies on, and nothing else."""
    number = tmp_path.stat().st_dev
    folder = tmp_path / "devices"
    queue = folder / f"{os.major(number)}:{os.minor(number)}" / "queue"
    queue.mkdir(parents=True)
    (queue / "logical_block_size").write_text("4096\n")
    return folder


def test_a_file_has_its_disks_sectors(tmp_path: Path, devices: Path) -> None:
    assert sector_size(tmp_path, devices) == 4096


def test_a_partition_has_its_disks_sectors(tmp_path: Path, devices: Path) -> None:
    [link] = devices.iterdir()
    disk = tmp_path / "disk"
    link.rename(disk)
    (disk / "part1").mkdir()
    (disk / "part1" / "partition").write_text("1\n")
    link.symlink_to(disk / "part1")
    assert sector_size(tmp_path, devices) == 4096


def test_a_file_system_without_a_disk_has_none(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert sector_size(tmp_path, tmp_path / "none") is None
    assert sector_size(tmp_path / "gone") is None
    assert sector_size(Path("/proc")) is None


def test_a_kernel_that_says_what_we_do_not_know_says_nothing(tmp_path: Path, devices: Path) -> None:
    [link] = devices.iterdir()
    (link / "queue/logical_block_size").write_text("much\n")
    assert sector_size(tmp_path, devices) is None


def test_a_refusal_of_whole_sectors_keeps_its_own_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("backupd.load.sectors.sector_size", lambda where: 4096)
    with pytest.raises(CommandError) as caught, explained(tmp_path, 8192):
        raise CommandError("refused", hint="its own")
    assert caught.value.hint == "its own"
    with pytest.raises(CommandError, match="refused") as caught, explained(tmp_path, 1024):
        raise CommandError("refused", hint="its own")
    assert "whole sectors of 4096 bytes" in caught.value.hint
