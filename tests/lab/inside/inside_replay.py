"""Of an XFS that LVM has frozen for its snapshot nothing is to be replayed, and the files are the same without."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.lvm import xfs_log
from backupd.lvm.mounting import mount_argv
from backupd.vocabulary.volumes import DeviceNumber
from tests.lab.inside.host import GATE_OFF, SITE, Host, tool
from tests.lab.inside.places import volume
from tests.lab.inside.trees import tree_of

ORIGIN = f"{SITE.volume_group}/data"
NAME = "image"
IMAGE = Path("/dev") / SITE.volume_group / NAME
TURNS = 3


def number(device: Path) -> DeviceNumber:
    found = device.stat().st_rdev
    return DeviceNumber(os.major(found), os.minor(found))


@contextmanager
def mounted_image(at: Path, *, replay: bool) -> Iterator[Path]:
    at.mkdir()
    tool(*mount_argv(IMAGE, at, filesystem="xfs", replay=replay))
    try:
        yield at
    finally:
        tool("umount", str(at))


@contextmanager
def proven_image() -> Iterator[None]:
    """A snapshot of which it is certain; where a log's last records lie across its end, one in hundreds, it is not."""
    for _ in range(TURNS):
        with volume(NAME, "--snapshot", "--size", "200m", ORIGIN):
            if xfs_log.needs_no_replay(IMAGE, number(Path("/dev") / ORIGIN)):
                yield
                return
    pytest.fail(f"{TURNS} snapshots one after the other would need a replay")


def test_a_snapshot_of_a_busy_server_is_the_same_without_replay_as_with_it(tmp_path: Path) -> None:
    """Without it first: the replay of the other mount writes."""
    for turn in range(5):
        with proven_image():
            with mounted_image(tmp_path / f"without-{turn}", replay=False) as at:
                without = tree_of(at)
            with mounted_image(tmp_path / f"with-{turn}", replay=True) as at:
                assert tree_of(at) == without


def test_a_file_system_that_is_at_work_would_need_a_replay(tmp_path: Path) -> None:
    """What an image shows that was taken of one without freezing it: sooner or later something is not written back."""
    origin = Path("/dev") / ORIGIN
    deadline = time.monotonic() + 60
    while xfs_log.needs_no_replay(origin, number(origin)):
        (SITE.mount_point / "changed").mkdir()
        (SITE.mount_point / "changed").rmdir()
        assert time.monotonic() < deadline


@pytest.mark.parametrize("missing", ["image", "origin"])
def test_where_nothing_can_be_read_nothing_is_proven(tmp_path: Path, missing: str) -> None:
    origin = Path("/dev") / ORIGIN
    if missing == "image":
        assert not xfs_log.needs_no_replay(tmp_path / "nothing", number(origin))
    else:
        assert not xfs_log.needs_no_replay(origin, DeviceNumber(254, 4095))


def test_a_run_mounts_its_snapshot_without_replay(tmp_path: Path) -> None:
    """Or one of a few: see `proven_image`."""
    lines = []
    for turn in range(TURNS):
        (tmp_path / str(turn)).mkdir()
        said = Host(tmp_path / str(turn)).backupd("--verbose", "run", "nightly", changes=GATE_OFF).stderr
        (line,) = [line for line in said.splitlines() if " run: mount -t xfs" in line]
        if ",norecovery -- " in line:
            return
        lines.append(line)
    pytest.fail("\n".join(lines))
