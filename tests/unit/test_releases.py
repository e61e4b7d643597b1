"""What a dead run had started is ended as its kind needs it."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backupd.host.process import start_time
from backupd.operations.upkeep.releases import releases
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind

LVM_SECONDS = "backupd.operations.upkeep.releases._LVM_SECONDS"


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """The head of its own group, as all are that a run starts."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def release() -> Callable[[Holding], None]:
    """Of a child, for which no other tool is asked."""
    nobody: Any = pytest.fail
    asked = dict.fromkeys(("blank_volumes", "target_of", "applier_of", "flusher_of", "loaded_into"), nobody)
    return releases(nobody, nobody, nobody, **asked)[HoldingKind.CHILD]


def held(process: "subprocess.Popen[bytes]", program: str) -> Holding:
    born = str(start_time(process.pid))
    return Holding(HoldingKind.CHILD, str(process.pid), {"start_time": born, "program": program})


def test_a_program_that_outlived_its_run_is_ended(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None]
) -> None:
    release(held(child, "tar"))
    assert child.wait(60) < 0


def test_a_shell_of_lvm_that_does_not_end_is_told_of_and_never_killed(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed within a suspend, it would leave the server's writes frozen."""
    monkeypatch.setattr(LVM_SECONDS, 0.1)
    with pytest.raises(SnapshotError, match=f"process {child.pid}, an LVM shell, did not end") as told:
        release(held(child, "lvm"))
    assert "it is not killed" in (told.value.hint or "")
    assert child.poll() is None


def test_a_shell_of_lvm_that_has_ended_is_nothing_to_wait_for(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None]
) -> None:
    shell = held(child, "lvm")
    child.kill()
    child.wait(60)
    release(shell)
