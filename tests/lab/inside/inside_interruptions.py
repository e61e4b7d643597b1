"""A run that is stopped at any moment, kindly or not, leaves nothing; what is not backupd's stays.

That nothing is left is asked by the fixture `host`, after every test.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.inside.host import (
    GATE_OFF,
    LONG_SETTLE,
    SITE,
    SLOW_COPY,
    Changes,
    Host,
    catalogue_rows,
    require_told,
    tool,
)
from tests.lab.inside.moments import begun, copied, copying, locked, probing, unlocked
from tests.lab.inside.places import volume
from tests.lab.inside.sessions import under_the_lock


@dataclass(frozen=True)
class Moment:
    """When to interrupt, and with which configuration that moment comes."""

    reached: Callable[[str], bool]
    changes: Changes

    def __str__(self) -> str:
        return self.reached.__name__


MOMENTS = [
    Moment(begun, GATE_OFF),
    Moment(probing, {"jobs.nightly.settle.probe": True}),
    Moment(locked, GATE_OFF),
    Moment(unlocked, LONG_SETTLE),
    Moment(copying, SLOW_COPY),
    Moment(copied, GATE_OFF),
]
# Before the first thing is made, and after the last: in fakes at every call, in `make thorough-tests`.
OUTERMOST = (begun, copied)
STOPS = [
    pytest.param(moment, marks=pytest.mark.matrix if moment.reached in OUTERMOST else (), id=str(moment))
    for moment in MOMENTS
]
DEADLY_MOMENTS = [moment for moment in MOMENTS if moment.reached not in OUTERMOST]


@pytest.fixture(scope="module", autouse=True)
def foreign_volumes() -> Iterator[None]:
    """Somebody's volume, a snapshot of it, and one that is only called like ours: all are there at the end."""
    vg = SITE.volume_group
    with (
        volume("foreign", "--size", "16m", vg),
        volume("foreignsnap", "--snapshot", "--size", "8m", f"{vg}/foreign"),
        volume("backupd-foo", "--size", "8m", vg),
    ):
        yield
        listed = set(tool("lvs", "--noheadings", "--options", "lv_name", vg).split())
        assert listed == {"data", "foreign", "foreignsnap", "backupd-foo"}


def status_of(run_id: str) -> str:
    [(status,)] = catalogue_rows("SELECT status FROM runs WHERE run_id = ?", run_id)
    return str(status)


@pytest.mark.parametrize("moment", STOPS)
def test_stop_signal_ends_a_run_within_ten_seconds_and_nothing_is_left(host: Host, moment: Moment) -> None:
    with host.running(moment.changes) as run:
        run.until(moment.reached)
        run.process.send_signal(signal.SIGTERM)
        ended = run.ended(expect=15)
    assert ended.seconds < 10
    assert require_told(ended, status=15, says="terminated by SIGTERM")["status"] == "cancelled"


@pytest.mark.matrix  # a unit's run is cancelled so, too: inside_systemd.py
def test_cancel_from_another_shell_ends_the_run(host: Host) -> None:
    with host.running(SLOW_COPY) as run:
        run.until(copying)
        host.backupd("cancel", run.run_id)
        assert run.process.poll() == 11, "cancel returns when the run has ended"
    assert status_of(run.run_id) == "cancelled"


@pytest.mark.parametrize("moment", DEADLY_MOMENTS, ids=str)
def test_recover_gives_back_what_a_killed_run_left_and_nothing_else(host: Host, moment: Moment) -> None:
    with host.running(moment.changes) as run:
        run.until(moment.reached)
        run.process.kill()
        run.ended(expect=-signal.SIGKILL)
    assert host.left(), "a killed run cannot have cleaned up"
    recovered = host.backupd("recover")
    assert recovered.seconds < 30
    assert f"run {run.run_id}: dead, cleaned up" in recovered.stdout
    assert status_of(run.run_id) == "failed"


@pytest.mark.matrix  # so does a timer's: inside_systemd.py
def test_next_run_gives_back_what_a_killed_run_left(host: Host) -> None:
    with host.running(SLOW_COPY) as run:
        run.until(copying)
        run.process.kill()
        run.ended(expect=-signal.SIGKILL)
    assert host.left()
    assert host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["status"] == "success"


def test_run_that_is_killed_under_the_lock_keeps_no_writer_waiting(host: Host) -> None:
    with under_the_lock(host, hold_budget_seconds=8) as (run, _):
        run.process.kill()
        assert host.seconds_to_write() < 4  # and not for the rest of its budget
    host.backupd("recover")


def test_run_that_is_stopped_under_the_lock_loses_it_within_its_budget(host: Host) -> None:
    with under_the_lock(host, hold_budget_seconds=6) as (run, shell):
        run.process.send_signal(signal.SIGSTOP)
        seconds = host.seconds_to_write()
        os.kill(shell, signal.SIGCONT)
        run.process.send_signal(signal.SIGCONT)
        ended = run.ended(expect=6)
    assert require_told(ended, status=6, says="the lock was lost")["backup"] is None
    assert 1 < seconds < 6 + 2 + 2, "the lock was held, and the server ended it by itself, two seconds after the budget"


def test_living_run_is_left_alone(host: Host, tmp_path: Path) -> None:
    weekly: Changes = {**GATE_OFF, "jobs.weekly.host": "lab", "jobs.weekly.targets": ["store"]}
    goes_on = tmp_path / "goes-on"
    held: Changes = {
        **GATE_OFF,
        "jobs.nightly.hooks.held.when": ["before-release"],
        "jobs.nightly.hooks.held.command": ["/bin/sh", "-c", f"until [ -e {goes_on} ]; do sleep 0.1; done"],
        "jobs.nightly.hooks.held.timeout": "5m",
    }
    with host.running(held) as run:
        run.until(copying)
        same_job = host.backupd("run", "nightly", "--json", changes=GATE_OFF, expect=4)
        same_group = host.backupd("run", "weekly", "--json", changes=weekly, expect=4)
        assert host.backupd("recover").stdout == "nothing to recover\n"
        assert run.process.poll() is None, "the first one was alive all the while"
        goes_on.touch()
        first = run.ended(expect=0)
    for refused in (same_job, same_group):
        assert require_told(refused, status=4, says=run.run_id)["status"] == "busy"
    assert first.document["status"] == "success"
