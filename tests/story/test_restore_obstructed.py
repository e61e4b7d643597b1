"""What a restore has written of itself is true whatever ends it: a file that tar could not make, or SIGKILL."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backupd.operations.restore import into_folder, unfinished
from backupd.operations.restore.into_folder import restore
from backupd.vocabulary.errors import TargetError
from tests.story.stored import put_in
from tests.story.test_restore_resumed import MIB, STREAMS, Failing, flip, recorded, source, stored_bytes, whole

OBJECT = "data-1.tar.zst"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return put_in(tmp_path / "vault", STREAMS)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "restored").mkdir()
    return tmp_path / "restored"


class Obstructed(Failing):
    """For a moment something is in the way of one file: here a folder, elsewhere a lack of memory or descriptors."""

    to = Path()

    def _counted(self, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
        if name == OBJECT:
            (self.to / "ibdata1" / "x").mkdir(parents=True)
        return super()._counted(chunks, name)


@pytest.fixture
def obstructed(vault: Path, to: Path) -> Obstructed:
    """It ends before the object does."""
    target = Obstructed(vault, gives=stored_bytes(vault, OBJECT) * 7 // 8)
    target.to = to
    return target


def test_a_member_that_tar_could_not_make_is_made_when_the_restore_goes_on(
    vault: Path, to: Path, obstructed: Obstructed
) -> None:
    with pytest.raises(TargetError):
        restore([source(obstructed)], to=to)
    shutil.rmtree(to / "ibdata1", ignore_errors=True)  # where nothing was certain yet, all is gone
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_a_member_that_tar_could_not_make_is_made_from_the_next_copy(
    to: Path, obstructed: Obstructed, tmp_path: Path
) -> None:
    class Clearing(Failing):
        def _counted(self, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
            shutil.rmtree(to / "ibdata1", ignore_errors=True)
            return super()._counted(chunks, name)

    restore([source(obstructed), source(Clearing(put_in(tmp_path / "spare", STREAMS)))], to=to)
    assert whole(to)


def killed(monkeypatch: pytest.MonkeyPatch, behind: str, target: Failing, to: Path) -> None:
    """A restore from there is killed as soon as this function of `unfinished` has been called."""
    child = os.fork()
    if child == 0:
        call: Callable[..., Any] = getattr(unfinished, behind)

        def last(*arguments: Any) -> None:
            call(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            monkeypatch.setattr(unfinished, behind, last)
            restore([source(target)], to=to)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


class Slow(Failing):
    """Its last bytes come once what was unpacked before has been recorded."""

    to = Path()

    def fail(self) -> None:
        while recorded(self.to) <= 6 * MIB:
            time.sleep(0.01)


def test_one_that_is_killed_while_a_failed_restore_is_removed_begins_anew(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(into_folder, "SAVE_BYTES", MIB)
    size = stored_bytes(vault, OBJECT)
    flip(vault, OBJECT, size - 5)
    slow = Slow(vault, gives=size * 7 // 8)
    slow.to = to
    killed(monkeypatch, "remove_tree", slow, to)
    flip(vault, OBJECT, size - 5)
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_one_that_is_killed_before_the_folder_is_marked_is_in_nobodys_way(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, "write_among_others", Failing(vault), to)
    restore([source(Failing(vault))], to=to)
    assert whole(to)
