"""A temporary folder goes with its process, or with the next one; nobody else's goes."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from backupd.host.held_folders import held_folder
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


def test_neither_a_link_nor_other_names_nor_what_is_just_being_made_is_touched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "ours-link").symlink_to(precious)
    (tmp_path / "ours-file").touch()
    (tmp_path / "ours-new").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    with held_folder(tmp_path, "ours-"):
        pass
    names = {"precious", "ours-link", "ours-file", "ours-new", "theirs"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (precious / "file").exists()


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
