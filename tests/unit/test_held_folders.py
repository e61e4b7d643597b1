"""A temporary folder goes with its process, or with the next one; nobody else's goes."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from backupd.host.held_folders import held_folder, remove_abandoned
from tests.deep_folders import dig

HOLD = """
import sys
from pathlib import Path
from backupd.host.held_folders import held_folder
with held_folder(Path(sys.argv[1]), "ours-") as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_it_is_ours_alone_and_gone_afterwards(tmp_path: Path) -> None:
    with held_folder(tmp_path, "ours-") as folder:
        (folder / "inner").mkdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with held_folder(tmp_path, "ours-"):
            assert (left / "file").exists()
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert (left / "file").exists()
    with held_folder(tmp_path, "ours-") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_neither_a_link_nor_a_file_nor_another_name_is_touched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "ours-link").symlink_to(precious)
    (tmp_path / "ours-file").touch()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    with held_folder(tmp_path, "ours-"):
        pass
    names = {"precious", "ours-link", "ours-file", "theirs"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (precious / "file").exists()


def test_abandoned_ones_are_told_and_empty_ones_are_among_them(tmp_path: Path) -> None:
    """Killed between its making and its first file."""
    for name in ("ours-a", "ours-b", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "ours-b" / "file").touch()
    with held_folder(tmp_path, "ours-") as folder:
        assert {path.name for path in tmp_path.iterdir()} == {folder.name, "theirs"}
        (tmp_path / "ours-c").mkdir()
        assert remove_abandoned(tmp_path, "ours-") == (tmp_path / "ours-c",)
        assert folder.exists()


def test_one_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def and_gone(**how: Any) -> str:
        made.append(mkdtemp(**how))
        if len(made) == 1:
            remove_abandoned(tmp_path, "ours-")
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", and_gone)
    with held_folder(tmp_path, "ours-") as folder:
        assert [str(folder)] == made[1:]
        (folder / "file").touch()


def test_one_that_goes_while_its_lock_is_waited_for_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    waited: list[Path] = []

    def and_gone(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not waited:
            waited.extend(remove_abandoned(tmp_path, "ours-"))
            waited[0].mkdir()  # somebody's of the same name
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", and_gone)
    with held_folder(tmp_path, "ours-") as folder:
        assert folder not in waited
        (folder / "file").touch()
    assert len(waited) == 1


def test_a_link_in_an_abandoned_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / "ours-x").mkdir()
    (tmp_path / "ours-x" / "link").symlink_to(outside)
    with held_folder(tmp_path, "ours-"):
        assert not (tmp_path / "ours-x").exists()
    assert (outside / "file").exists()


def test_one_that_is_locked_by_whomever_stays(tmp_path: Path) -> None:
    (tmp_path / "ours-x" / "inner").mkdir(parents=True)
    descriptor = os.open(tmp_path / "ours-x", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with held_folder(tmp_path, "ours-"):
        assert (tmp_path / "ours-x" / "inner").exists()
    os.close(descriptor)


def test_one_that_somebody_has_filled_as_deep_as_he_could_goes_too(tmp_path: Path) -> None:
    (tmp_path / "ours-x").mkdir()
    dig(tmp_path / "ours-x")
    with held_folder(tmp_path, "ours-") as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_what_a_server_has_filled_as_deep_as_it_could_is_gone_afterwards(tmp_path: Path) -> None:
    with held_folder(tmp_path, "ours-") as folder:
        dig(folder)
    assert list(tmp_path.iterdir()) == []
