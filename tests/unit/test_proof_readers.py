"""Proofs are read every hour by a process for each target; one that hangs keeps nobody from anything."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import Configuration, DirectoryConfig, HostConfig, TargetKind
from backupd.config.proving import ProofsConfig
from backupd.service import launch
from backupd.service.proof_readers import ProofReaders
from tests.fakes.launcher import FakeLauncher
from tests.signers import signer
from tests.story.daemon_world import job

HOUR = 3600.0
TARGETS = {
    name: DirectoryConfig(name=name, type=TargetKind.DIRECTORY, path=Path("/srv") / name) for name in ("near", "far")
}
BELIEVING = Configuration(
    hosts={"db1": HostConfig(name="db1")},
    targets=TARGETS,
    jobs={"nightly": job("nightly")},
    proofs=ProofsConfig(signers=(signer().public,)),
)

Look = Callable[..., dict[str, int]]


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def look(launcher: FakeLauncher) -> Look:
    """How many readings of each target were begun by then."""
    now = [0.0]
    readers = ProofReaders(launcher, clock=lambda: now[0])

    def looked(at: float, configuration: Configuration = BELIEVING, *, starting: bool = True) -> dict[str, int]:
        now[0] = at
        readers.look(configuration, starting=starting)
        return {target: len(begun) for target, begun in launcher.readings.items()}

    return looked


def end(launcher: FakeLauncher, target: str, status: int = 0) -> None:
    launcher.readings[target][-1].end(status)


def test_each_target_is_read_at_once_and_every_hour(look: Look, launcher: FakeLauncher) -> None:
    assert look(0) == {"near": 1, "far": 1}
    end(launcher, "near")
    end(launcher, "far")
    assert look(HOUR - 1) == {"near": 1, "far": 1}
    assert look(HOUR) == {"near": 2, "far": 2}


def test_a_target_that_hangs_is_not_read_twice_at_a_time_and_keeps_no_other_waiting(
    look: Look, launcher: FakeLauncher
) -> None:
    look(0)
    end(launcher, "near")
    assert look(HOUR) == {"near": 2, "far": 1}
    end(launcher, "far", 124)
    assert look(HOUR + 1) == {"near": 2, "far": 2}


def test_a_reading_that_fails_is_told_in_one_line_and_is_tried_an_hour_later(
    look: Look, launcher: FakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    look(0)
    end(launcher, "near")
    end(launcher, "far", 8)
    with caplog.at_level(logging.WARNING):
        assert look(10) == look(20) == {"near": 1, "far": 1}
    (line,) = caplog.messages
    assert line == "proofs on target far: reading ended with exit status 8"


def test_what_cannot_be_started_is_tried_an_hour_later(
    look: Look, launcher: FakeLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.broken = True
    assert look(0) == look(60) == {}
    assert len(caplog.messages) == 2
    launcher.broken = False
    assert look(HOUR) == {"near": 1, "far": 1}


@pytest.mark.parametrize(
    "configuration",
    [replace(BELIEVING, proofs=ProofsConfig()), replace(BELIEVING, jobs={})],
    ids=["nobody is believed", "a proof host"],
)
def test_who_believes_no_proof_host_reads_nothing(look: Look, configuration: Configuration) -> None:
    assert look(0, configuration) == {}


def test_nothing_begins_while_the_daemon_drains(look: Look) -> None:
    assert look(0, starting=False) == {}


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_READING_SECONDS", 0.1)
    child = launch.Detached(("sh", "-c", "exec sleep 600", "backupd"), tmp_path).read_proofs("vault")
    deadline = time.monotonic() + 30
    while not child.ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.exit_status == 124
