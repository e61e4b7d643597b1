"""What was started as a unit of systemd's goes on as long as the unit does, whatever became of what waited for it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.config import JobConfig
from backupd.host.marked_processes import SLOT_VARIABLE, variable_of
from backupd.host.process import detached
from backupd.service.launch import TransientUnits, UnitChild, mark_of
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.schedule import Activity, NoticeKind, Slot, SlotState
from backupd.vocabulary.storage import Backup
from tests.story.daemon_world import NIGHTLY, Machine, job, machine

DUE = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
SLOT = Slot("nightly", Activity.BACKUP, DUE, SlotState.STARTED, DUE, "r1")
SYSTEMD_RUN = """#!/bin/sh
. $(dirname $0)/end
"""
SYSTEMCTL = """#!/bin/sh
cd $(dirname $0)
[ ! -e hangs ] || exec sleep 60
cat unit
"""
GONE, ACTIVE, WAITING = "ActiveState=inactive", "ActiveState=active", "Job=7\nActiveState=inactive"


@dataclass
class Systemd:
    """What it tells of each unit, and how what waits for one ends."""

    folder: Path

    def ends(self, how: str, *, unit: str) -> None:
        """What waits ends in this way, while the unit is so."""
        (self.folder / "end").write_text(f"{how}\n")
        self.unit(unit)

    def unit(self, told: str) -> None:
        (self.folder / "unit").write_text(f"{told}\n")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    folder = tmp_path / "systemd"
    folder.mkdir()
    for name, script in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("backupd.host.launching._BOOTED", folder)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return Systemd(folder)


def started() -> UnitChild:
    """What waits for it has ended."""
    child = TransientUnits(("backupd",)).start(SLOT)
    assert isinstance(child, UnitChild)
    child.waiting.process.wait(60)
    return child


@pytest.mark.parametrize("status", [0, 7, 255])
def test_a_unit_that_has_ended_has_the_status_that_was_waited_for(systemd: Systemd, status: int) -> None:
    systemd.ends(f"exit {status}", unit=GONE)
    child = started()
    assert (child.ended(), child.exit_status) == (True, status)


@pytest.mark.parametrize(
    ("how", "unit"),
    [
        ("exit 0", ACTIVE),  # systemd re-executed itself
        ("kill -9 $$", ACTIVE),
        ("exit 1", WAITING),  # the answer came too late: the unit was taken all the same
        ("exit 1", "ActiveState=deactivating"),
    ],
)
def test_a_unit_that_goes_on_has_not_ended_and_nobody_sees_its_status(systemd: Systemd, how: str, unit: str) -> None:
    systemd.ends(how, unit=unit)
    child = started()
    assert (child.ended(), child.exit_status) == (False, None)
    systemd.unit(GONE)
    assert (child.ended(), child.exit_status) == (True, None)


@pytest.mark.parametrize("status", [0, 1, 7])
def test_it_has_not_ended_while_systemd_does_not_tell(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """And is no less seen for that."""
    monkeypatch.setattr("backupd.host.launching.UNIT_SECONDS", 0.2)
    systemd.ends(f"exit {status}", unit=GONE)
    (systemd.folder / "hangs").touch()
    child = started()
    assert (child.ended(), child.exit_status) == (False, None)
    (systemd.folder / "hangs").unlink()
    assert (child.ended(), child.exit_status) == (True, status)


def test_what_was_waiting_and_was_killed_tells_no_status_of_the_unit(systemd: Systemd) -> None:
    systemd.ends("kill -9 $$", unit=GONE)
    child = started()
    assert (child.ended(), child.exit_status) == (True, None)


@pytest.fixture
def left() -> Iterator[None]:
    """A process that a run has left at work, as an LVM command that must finish, or one that stands in the kernel."""
    process = detached(["sleep", "60"], output=None, environment={SLOT_VARIABLE: mark_of(SLOT)})
    while variable_of(process.pid, SLOT_VARIABLE) != mark_of(SLOT):
        os.sched_yield()
    yield
    process.kill()
    process.wait(60)


@pytest.mark.usefixtures("left")
def test_what_a_unit_leaves_at_work_keeps_neither_its_end_nor_its_status(systemd: Systemd) -> None:
    systemd.ends("exit 8", unit=GONE)
    child = started()
    assert (child.ended(), child.exit_status) == (True, 8)


def waited_for(daemon: Machine, systemd: Systemd, started: JobConfig, how: str) -> None:
    """What is due was started, and what waits for its unit has ended; systemd does not know the unit."""
    systemd.ends(how, unit=GONE)
    daemon.launcher = TransientUnits(("backupd",))  # type: ignore[assignment]
    daemon.start(started)
    daemon.at(DUE)
    (child,) = daemon.dispatch.going._children.values()
    assert isinstance(child, UnitChild)
    child.waiting.process.wait(60)


def test_a_backup_whose_unit_comes_after_systemd_run_gave_up_has_not_ended(systemd: Systemd, tmp_path: Path) -> None:
    with machine(tmp_path) as daemon:
        waited_for(daemon, systemd, job("nightly", backup=NIGHTLY), "exit 1")
        daemon.after(seconds=20)
        assert daemon.newest().state is SlotState.STARTED
        systemd.unit(ACTIVE)
        daemon.after(minutes=5)
        assert daemon.newest().state is SlotState.STARTED
        daemon.fail_run(daemon.newest().run_id)
        systemd.unit(GONE)
        daemon.after(minutes=5)
        assert (daemon.newest().state, daemon.newest().exit_status) == (SlotState.ENDED, ExitStatus.SERVER)


def test_a_backup_whose_unit_never_comes_has_ended_as_systemd_run_did(systemd: Systemd, tmp_path: Path) -> None:
    with machine(tmp_path) as daemon:
        waited_for(daemon, systemd, job("nightly", backup=NIGHTLY), "exit 1")
        daemon.after(seconds=59)
        assert daemon.newest().state is SlotState.STARTED
        daemon.after(seconds=1)
        assert (daemon.newest().state, daemon.newest().exit_status) == (SlotState.ENDED, 1)


def test_a_good_backup_whose_command_fails_afterwards_has_not_ended_well(systemd: Systemd, tmp_path: Path) -> None:
    """As it prunes, say: nothing else tells of that."""
    with machine(tmp_path) as daemon:
        waited_for(daemon, systemd, job("nightly", backup=NIGHTLY), "exit 1")
        with daemon.catalogue.open_run("nightly", "db1", run_id=daemon.newest().run_id) as run:
            run.complete((Backup("vault", "/v", 1, 1, 1, "ab" * 32),))
        daemon.after(minutes=5)
        assert (daemon.newest().state, daemon.newest().exit_status) == (SlotState.ENDED, 1)


@pytest.mark.parametrize("how", ["exit 0", "exit 1"])
def test_what_a_verification_says_of_itself_goes_before_what_systemd_run_may_say_of_itself(
    systemd: Systemd, tmp_path: Path, how: str
) -> None:
    """Systemd was asked only once the unit was gone: it had not answered before."""
    with machine(tmp_path) as daemon:
        waited_for(daemon, systemd, job("nightly", verify=NIGHTLY), how)
        assert daemon.catalogue.slot_ends(daemon.newest(), exit_status=9)
        daemon.after(minutes=5)
        assert (daemon.newest().state, daemon.newest().exit_status) == (SlotState.ENDED, 9)


def test_a_verification_that_fails_after_systemd_re_executed_itself_is_told(systemd: Systemd, tmp_path: Path) -> None:
    systemd.ends("exit 0", unit=ACTIVE)
    with machine(tmp_path) as daemon:
        daemon.launcher = TransientUnits(("backupd",))  # type: ignore[assignment]
        daemon.start(job("nightly", verify=NIGHTLY))
        daemon.at(DUE)
        slot = daemon.newest()
        (child,) = daemon.dispatch.going._children.values()
        assert isinstance(child, UnitChild)
        child.waiting.process.wait(60)
        daemon.after(minutes=5)
        assert daemon.newest().state is SlotState.STARTED
        assert daemon.dispatch.going.obstacle("nightly", Activity.VERIFY) is not None
        assert daemon.catalogue.slot_ends(slot, exit_status=9)
        systemd.unit(GONE)
        daemon.after(minutes=5)
        assert (daemon.newest().state, daemon.newest().exit_status) == (SlotState.ENDED, 9)
        assert [notice.kind for notice in daemon.told] == [NoticeKind.FAILED]
