"""Each job with an archive has one receiver: started, found again, ended where it was started for something else."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from backupd.config import BinlogConfig, Configuration, EncryptionConfig, HostConfig, PathsConfig
from backupd.host.claims import Claims
from backupd.host.marked_processes import variable_of
from backupd.service.launch import RECEIVER_VARIABLE
from backupd.service.receivers import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PATIENCE_SECONDS,
    Receivers,
    findings,
    marks,
)
from backupd.vocabulary.records import Level
from tests.fakes.launcher import FakeLauncher
from tests.story.daemon_world import job
from tests.unit.test_config_encryption import RECIPIENT

ARCHIVED = Configuration(
    hosts={"db1": HostConfig(name="db1")},
    jobs={"nightly": replace(job("nightly"), binlog=BinlogConfig()), "plain": job("plain")},
)
NONE = replace(ARCHIVED, jobs={"nightly": job("nightly")})
_CLAIMING = """
import signal, sys
from pathlib import Path
from backupd.host.claims import Claims
if sys.argv[3] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with Claims(Path(sys.argv[1])).archiving(sys.argv[2]):
    print("claimed", flush=True)
    sys.stdin.read()
"""


@dataclass
class World:
    """A daemon's receivers, its clock, and where claims are."""

    folder: Path
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    now: float = 0.0
    receivers: Receivers = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another daemon, which knows nothing of the one before."""
        self.receivers = Receivers(self.launcher, Claims(self.folder), clock=lambda: self.now)

    def look(self, configuration: Configuration = ARCHIVED, *, at: float | None = None, draining: bool = False) -> int:
        """How many receivers of the job were begun by then."""
        self.now = self.now if at is None else at
        self.receivers.look(configuration, draining=draining)
        return len(self.launcher.receivers.get("nightly", ()))

    def end(self, status: int = 6) -> None:
        """The newest has ended."""
        self.launcher.receivers["nightly"][-1].end(status)

    @contextmanager
    def at_work(self, mark: str | None, *, deaf: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
        """A process archives the job's binlog, with this mark."""
        environment = {**os.environ} | ({} if mark is None else {RECEIVER_VARIABLE: mark})
        argv = [sys.executable, "-c", _CLAIMING, str(self.folder), "nightly", "deaf" if deaf else "well"]
        with subprocess.Popen(
            argv, cwd=Path(__file__).parents[2], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"claimed\n"
                yield process
            finally:
                process.kill()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_job_with_an_archive_has_a_receiver_and_never_two(world: World) -> None:
    assert [world.look(at=at) for at in (0, 30, 3600)] == [1, 1, 1]
    assert set(world.launcher.receivers) == {"nightly"}


def test_one_that_ends_is_started_again_after_a_pause_that_grows_and_is_short_again_once_one_has_lived(
    world: World,
) -> None:
    world.look(at=0)
    at, pauses = 0.0, []
    for _ in range(8):
        world.end()
        begun, since = world.look(at=at), at
        while world.look(at=at) == begun:
            at += 1
        pauses.append(at - since)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    assert pauses[0] == FIRST_PAUSE_SECONDS
    world.look(at=at + LONGEST_PAUSE_SECONDS + 1)
    world.end()
    begun = world.look(at=world.now)
    assert world.receivers.restless
    assert world.look(at=world.now + FIRST_PAUSE_SECONDS) == begun + 1


def test_one_that_cannot_be_started_is_tried_again_after_the_same_pause(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.launcher.broken = True
    world.look(at=0)
    world.look(at=1)
    assert caplog.text.count("could not be started: program not found") == 1
    world.launcher.broken = False
    assert [world.look(at=at) for at in (4.9, 5)] == [0, 1]


def test_the_next_daemon_finds_the_receiver_by_its_claim(world: World) -> None:
    with world.at_work(marks(ARCHIVED)["nightly"]) as process:
        world.restart()
        assert [world.look(at=at) for at in (0, 30)] == [0, 0]
        assert world.receivers.left == ("nightly",)
        process.kill()
        process.wait()
        assert world.look(at=60) == 1


def test_whoever_has_started_it_by_hand_keeps_it(world: World) -> None:
    with world.at_work(None) as process:
        assert (world.look(), world.look(NONE), world.look(draining=True)) == (0, 0, 0)
        assert world.receivers.left == ()
        process.communicate(timeout=60)  # its stdin ends: it was asked for nothing else
        assert process.returncode == 0


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("mark", ["nightly/of-before", "nightly/as-it-is"])
def test_one_that_was_started_for_something_else_is_ended_and_replaced_at_once(
    world: World, mark: str, *, draining: bool
) -> None:
    mark = marks(ARCHIVED)["nightly"] if "as-it-is" in mark else mark
    stays = not draining and mark == marks(ARCHIVED)["nightly"]
    with world.at_work(mark) as process:
        world.look(draining=draining)
        assert world.receivers.restless is not stays
        if stays:
            return
        assert process.wait(60) == -signal.SIGTERM
    assert world.look(draining=draining) == (0 if draining else 1)
    assert world.receivers.left == (() if draining else ("nightly",))


def test_a_job_that_is_gone_has_its_receiver_ended(world: World) -> None:
    with world.at_work(marks(ARCHIVED)["nightly"]) as process:
        world.look(NONE)
        assert process.wait(60) == -signal.SIGTERM
    assert world.look(NONE) == 0


def test_one_that_does_not_end_is_killed_after_a_while(world: World) -> None:
    with world.at_work("nightly/of-before", deaf=True) as process:
        for at in (0, 1, PATIENCE_SECONDS):
            world.look(at=at)
        assert process.poll() is None
        world.look(at=PATIENCE_SECONDS + 1)
        assert process.wait(60) == -signal.SIGKILL


CHANGES: list[Callable[[Configuration], Configuration]] = [
    lambda one: replace(one, hosts={"db1": HostConfig(name="db1", port=3307)}),
    lambda one: replace(one, paths=PathsConfig(run=Path("/run/other"))),
    lambda one: replace(one, jobs={"nightly": replace(one.jobs["nightly"], binlog=BinlogConfig(segment_size=1 << 20))}),
    lambda one: replace(one, jobs={"nightly": replace(one.jobs["nightly"], targets=("other",))}),
]


def test_a_check_tells_of_one_that_goes_by_the_settings_of_before(world: World) -> None:
    """Until a reload it encrypts for the recipients that it was started with: a key that was stolen, or lost."""
    claims = Claims(world.folder)
    assert [*findings(ARCHIVED, "nightly", claims)] == []
    with world.at_work(marks(ARCHIVED)["nightly"]):
        assert [*findings(ARCHIVED, "nightly", claims)] == []
        encryption = EncryptionConfig(recipients=(RECIPIENT,))
        rotated = replace(ARCHIVED, jobs={"nightly": replace(ARCHIVED.jobs["nightly"], encryption=encryption)})
        (found,) = findings(rotated, "nightly", claims)
    assert (found.level, "recipients" in found.detail, "reload" in found.hint) == (Level.WARNING, True, True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_mark_changes_with_what_a_receiver_goes_by(change: Callable[[Configuration], Configuration]) -> None:
    assert marks(change(ARCHIVED)).keys() == marks(ARCHIVED).keys() == {"nightly"}
    assert marks(change(ARCHIVED)) != marks(ARCHIVED)


def test_a_mark_stays_with_what_a_receiver_does_not_ask_for() -> None:
    nightly = replace(ARCHIVED.jobs["nightly"], every_seconds=1.0)
    assert marks(replace(ARCHIVED, jobs={"nightly": nightly})) == marks(ARCHIVED)


def test_a_process_that_is_gone_or_has_no_such_variable_has_no_mark() -> None:
    assert variable_of(2**22 + 1, RECEIVER_VARIABLE) is None
    assert variable_of(os.getpid(), "BACKUPD_NOBODY_SETS_THIS") is None
