"""Stopping an array that somebody else has open: mdadm is a script, and what the disks say is told."""

import os
from pathlib import Path
from uuid import UUID

import pytest

from backupd.lvm import Mark, scratch_arrays, scratch_name
from backupd.lvm.disk_marks import Superblock, array_uuid
from backupd.lvm.empty_disks import Disk
from backupd.lvm.scratch_arrays import ArrayMember
from backupd.vocabulary.errors import SnapshotError
from tests.fakes.target import MACHINE

MARK = Mark(MACHINE, "r1")
NAME = scratch_name(MARK.run_id)
BUSY = "echo 'mdadm: Cannot get exclusive access to /dev/md127' >&2; exit 1"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two disks say that they are part of the run's array, which runs; what mdadm was told is in this file."""
    made = [_member(tmp_path / "sys" / "block" / name) for name in ("nosuchdisk1", "nosuchdisk2")]
    monkeypatch.setattr(scratch_arrays, "ours", lambda *_, **__: tuple(made))
    monkeypatch.setattr(scratch_arrays, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "calls"


def _member(folder: Path) -> ArrayMember:
    (folder / "holders" / "nosucharray").mkdir(parents=True)
    return ArrayMember(Disk(folder), Superblock(array_uuid(MARK), NAME, UUID(int=0)))


def mdadm(calls: Path, then: str) -> None:
    program = calls.with_name("mdadm")
    program.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\n{then}\n')
    program.chmod(0o755)


def removed(calls: Path) -> list[str]:
    scratch_arrays.remove(NAME, (), MARK, calls.parent / "sys")
    return calls.read_text().splitlines()


def test_an_array_that_udev_has_open_for_several_looks_is_stopped_and_its_disks_are_emptied(calls: Path) -> None:
    mdadm(calls, f'[ "$(wc -l < "{calls}")" -gt 6 ] || {{ {BUSY}; }}')
    told = removed(calls)
    assert told[:7] == ["--stop /dev/nosucharray"] * 7
    assert told[7:] == ["--zero-superblock /dev/nosuchdisk1", "--zero-superblock /dev/nosuchdisk2"]


def test_one_that_stays_in_use_is_told_in_the_end(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_arrays, "_PATIENCE_SECONDS", 0.2)
    mdadm(calls, BUSY)
    with pytest.raises(SnapshotError, match=f"array {NAME} could not be stopped: .*exclusive access") as caught:
        removed(calls)
    assert "backupd recover" in caught.value.hint
    assert len(calls.read_text().splitlines()) > 1
