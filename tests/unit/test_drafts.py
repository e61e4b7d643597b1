"""A draft goes with its process, or with the next use of its file; nothing else beside the file does."""

import fcntl
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backupd.policy.drafts import draft_of, remove_abandoned_drafts

HOLD = """
import sys
from pathlib import Path
from backupd.policy.drafts import draft_of
with draft_of(Path(sys.argv[1])) as (file, draft):
    file.write(b"secret")
    file.flush()
    print(draft, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "backupd.toml"
    path.write_text("old")
    return path


def beside(path: Path) -> set[str]:
    return {one.name for one in path.parent.iterdir()} - {path.name}


def test_it_is_ours_alone_and_takes_the_files_place_or_is_gone(path: Path) -> None:
    with draft_of(path) as (file, draft):
        assert draft.stat().st_mode & 0o777 == 0o600
        file.write(b"new")
        file.flush()
        draft.replace(path)
    assert path.read_text() == "new"
    with pytest.raises(ValueError, match="no"), draft_of(path):
        raise ValueError("no")
    assert (path.read_text(), beside(path)) == ("new", set())


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_has_is_not(path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with draft_of(path):
            assert left.read_text() == "secret"
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert left.exists()
    remove_abandoned_drafts(path)
    assert beside(path) == set()


def test_what_people_and_editors_put_beside_it_is_left(path: Path) -> None:
    names = {
        ".backupd.toml.swp",
        ".backupd.toml.bak",
        ".backupd.toml.0123456789abcdeg",
        ".backupd.toml.0123456789abcdef0",
        ".other.toml.0123456789abcdef",
    }
    for name in names:
        (path.parent / name).touch()
    remove_abandoned_drafts(path)
    assert beside(path) == names


def test_neither_a_link_nor_a_folder_of_such_a_name_is_touched(path: Path) -> None:
    (path.parent / ".backupd.toml.0123456789abcdef").symlink_to(path)
    (path.parent / ".backupd.toml.fedcba9876543210").mkdir()
    remove_abandoned_drafts(path)
    assert len(beside(path)) == 2
    assert path.read_text() == "old"


def test_one_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, tokens = fcntl.flock, iter(("0" * 16, "1" * 16))

    def and_gone(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and first.exists():
            remove_abandoned_drafts(path)
        flock(descriptor, operation)

    first = path.parent / f".backupd.toml.{'0' * 16}"
    monkeypatch.setattr(secrets, "token_hex", lambda _size: next(tokens))
    monkeypatch.setattr(fcntl, "flock", and_gone)
    with draft_of(path) as (_, draft):
        assert draft.name == f".backupd.toml.{'1' * 16}"
        assert draft.exists()


def test_where_nothing_can_be_listed_nothing_is_raised(tmp_path: Path) -> None:
    remove_abandoned_drafts(tmp_path / "nowhere" / "backupd.toml")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing else, hidden or not
