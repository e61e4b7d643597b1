"""What a dead run had started is ended as its kind needs it."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backupd.host.holdings import child_holding
from backupd.host.process import start_time
from backupd.operations.upkeep.releases import releases
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind

FINISH_SECONDS = "backupd.operations.upkeep.releases._FINISH_SECONDS"


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


def held(process: "subprocess.Popen[bytes]", program: str, *, must_finish: bool) -> Holding:
    return child_holding(process.pid, start_time(process.pid) or 0, program, must_finish=must_finish)


def test_a_program_that_outlived_its_run_is_ended(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None]
) -> None:
    release(held(child, "tar", must_finish=False))
    assert child.wait(60) < 0


@pytest.mark.parametrize("program", ["lvm", "lvcreate", "mount"])
def test_what_must_finish_and_does_not_is_told_of_and_never_killed(
    child: "subprocess.Popen[bytes]",
    release: Callable[[Holding], None],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
) -> None:
    """Killed within a suspend, LVM would leave the server's writes frozen."""
    monkeypatch.setattr(FINISH_SECONDS, 0.1)
    with pytest.raises(SnapshotError, match=rf"process {child.pid} \({program}\) did not end within 0.1 s") as told:
        release(held(child, program, must_finish=True))
    assert "it is not killed" in (told.value.hint or "")
    assert child.poll() is None


def test_a_row_of_a_version_that_told_the_program_only_is_waited_for(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FINISH_SECONDS, 0.1)
    detail = {"start_time": str(start_time(child.pid)), "program": "lvm"}
    with pytest.raises(SnapshotError, match="did not end"):
        release(Holding(HoldingKind.CHILD, str(child.pid), detail))
    assert child.poll() is None


def test_what_must_finish_and_has_is_nothing_to_wait_for(
    child: "subprocess.Popen[bytes]", release: Callable[[Holding], None]
) -> None:
    shell = held(child, "lvm", must_finish=True)
    child.kill()
    child.wait(60)
    release(shell)
