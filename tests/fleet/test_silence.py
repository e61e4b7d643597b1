"""The story of a backup whose host tells nothing of use while its run may go on: it refuses, forgets, or has left."""

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.fleet import Agent, HostAway, HostRefuses
from backupd.fleet.ssh_agents import SshAccess, SshAgents, SshHost
from backupd.operations.fleet import watching
from backupd.vocabulary.fleet import FleetState, OwedBackup
from backupd.vocabulary.records import RunError, RunStatus
from tests.fleet.test_stories import RUN, Control, Killed, closing_window, control, owed

__all__ = ["control"]


def _left(host: str) -> Agent:
    """The agent of a host that was taken out of the fleet."""
    of_none: dict[str, SshHost] = {}
    return SshAgents(SshAccess(Path("/nowhere"), Path("/nowhere"), 1.0, 1.0, 1), of_none.__getitem__).agent(host)


def _clock(seconds: float) -> SimpleNamespace:
    """A clock that goes on by so much whenever it is looked at."""
    times = count(0.0, seconds)
    return SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)


def _killed_while_it_runs(control: Control, owed_then: OwedBackup) -> None:
    """The host has begun the run; the control host is killed once that is in the records."""
    host, looks = control.agents.hosts["db1"], []

    def kill(called: str) -> None:
        looks.append(called)
        if looks.count("status") == 2:
            raise Killed

    host.looks, host.at_each_call = 1000, kill
    with pytest.raises(Killed):
        control.backup(not_before=owed_then.not_before, not_after=owed_then.not_after)
    assert control.agents.live() == 1


@pytest.mark.parametrize("ends", [RunStatus.SUCCESS, RunStatus.FAILED, None])
def test_where_nobody_knows_whether_a_run_goes_on_nothing_begins_in_its_cluster_before_its_host_tells_it(
    control: Control, monkeypatch: pytest.MonkeyPatch, ends: RunStatus | None
) -> None:
    host, other = control.agents.hosts["db1"], control.agents.hosts["db2"]

    def silent(verb: str) -> None:
        if verb == "status":
            host.away = True
            raise HostAway("db1: no route to host")

    host.at_each_call = silent
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: began_at + timedelta(seconds=0.1))
    monkeypatch.setattr(watching, "_SHORT_SILENCE_SECONDS", 0.0)
    first = control.backup()
    assert first.state is FleetState.FAILED
    control.log.clear()
    with closing_window() as window:
        missed = control.backup(asked_for=1, **window)
    assert missed.state is FleetState.MISSED
    assert f"db1: run {RUN} may still be running there: db1: no route to host" in missed.said
    assert other.orders == []
    host.away, host.at_each_call = False, lambda _: None
    if ends is None:
        host.runs.clear()
    else:
        host.looks, host._looks_left, host.ends = 1, 1, [ends]
    control.log.clear()
    done = control.backup(asked_for=2)
    assert done.state is FleetState.DONE
    told = control.records.backup(first.owed.id)
    assert told is not None
    assert told.tries[-1].status is (ends or RunStatus.FAILED)
    assert told.state is (FleetState.DONE if ends is RunStatus.SUCCESS else FleetState.FAILED)


def test_what_is_cancelled_at_a_host_that_is_silent_is_over_after_a_while_and_its_cluster_is_free(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = owed(control.agents)
    _killed_while_it_runs(control, one)
    host = control.agents.hosts["db1"]
    host.at_each_call, host.away = lambda _: None, True
    control.records.ask_to_cancel(one.id, "it burned down")
    monkeypatch.setattr(watching, "_CANCEL_SECONDS", 0.05)
    cancelled = control.backup(not_before=one.not_before, not_after=one.not_after)
    assert cancelled.state is FleetState.CANCELLED
    assert cancelled.said == f"db1 did not answer when asked to end run {RUN}, which may still be running"
    control.log.clear()
    done = control.backup(asked_for=1)
    assert (done.state, done.tries[-1].host) == (FleetState.DONE, "db2")


def test_a_host_that_left_the_fleet_with_a_run_of_unknown_end_holds_its_cluster_no_longer(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = control.agents.hosts["db1"]
    one = owed(control.agents)
    _killed_while_it_runs(control, one)
    host.at_each_call, host.away = lambda _: None, True
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: began_at)
    monkeypatch.setattr(watching, "_SHORT_SILENCE_SECONDS", 0.0)
    assert control.backup(not_before=one.not_before, not_after=one.not_after).state is FleetState.FAILED
    control.log.clear()
    del control.agents.hosts["db1"]
    done = control.backup(asked_for=1, members=("db2",))
    assert (done.state, done.tries[-1].host) == (FleetState.DONE, "db2")


@pytest.mark.parametrize("verbs", [("start",), ("start", "status")])
def test_a_host_that_refuses_to_be_asked_within_a_run_is_waited_for_and_not_replaced(
    control: Control, verbs: tuple[str, ...]
) -> None:
    one = owed(control.agents)
    _killed_while_it_runs(control, one)
    host, refused = control.agents.hosts["db1"], list[str]()

    def refuse_for_a_while(called: str) -> None:
        if called == "status":
            assert control.agents.live() == 1
        if called in verbs and len(refused) < 20:
            refused.append(called)
            raise HostRefuses("db1: its configuration is broken", refusal=RunError("configuration-error", "x", "", 3))

    host.looks, host._looks_left, host.at_each_call = 2, 2, refuse_for_a_while
    done = control.backup(not_before=one.not_before, not_after=one.not_after)
    assert (done.state, len(done.tries)) == (FleetState.DONE, 1)
    assert control.started() == [("db1", RUN)]


def test_a_host_that_has_forgotten_the_run_it_began_is_waited_for_and_starts_none_afresh(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = owed(control.agents)
    _killed_while_it_runs(control, one)
    host = control.agents.hosts["db1"]
    host.runs.clear()  # its catalogue was rebuilt
    host.at_each_call = lambda _: None
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: datetime.now(UTC) - timedelta(seconds=1))
    monkeypatch.setattr(watching, "_SHORT_SILENCE_SECONDS", 0.0)
    failed = control.backup(not_before=one.not_before, not_after=one.not_after)
    assert failed.state is FleetState.FAILED
    assert control.started() == [("db1", RUN)]


def test_a_host_that_is_taken_out_of_the_fleet_within_a_run_is_silent_and_passed_over_before_one(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _left("db1")
    with pytest.raises(HostRefuses, match="db1 is no longer in the fleet"):
        gone.describe()
    one = owed(control.agents)
    _killed_while_it_runs(control, one)
    monkeypatch.setitem(control.agents.hosts, "db1", gone)
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: began_at)
    monkeypatch.setattr(watching, "_SHORT_SILENCE_SECONDS", 0.0)
    failed = control.backup(not_before=one.not_before, not_after=one.not_after)
    assert failed.state is FleetState.FAILED
    assert "stopped answering during run" in failed.said


def test_a_host_that_is_no_longer_in_the_fleet_is_passed_over(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _left("db1")
    monkeypatch.setitem(control.agents.hosts, "db1", gone)
    done = control.backup()
    assert (done.state, done.tries[-1].host) == (FleetState.DONE, "db2")


def test_a_run_that_nobody_of_the_fleet_cancelled_is_tried_by_another_member(control: Control) -> None:
    control.agents.hosts["db1"].ends = [RunStatus.CANCELLED]  # as a reboot ends it
    done = control.backup()
    assert done.state is FleetState.DONE
    assert [one.host for one in done.tries] == ["db1", "db2"]


def test_a_host_that_is_silent_keeps_its_cluster_and_its_slots_for_its_run_may_go_on(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, other, silent = control.agents.hosts["db1"], control.agents.hosts["db2"], list[int]()

    def silent_for_an_hour(verb: str) -> None:
        if verb == "status" and len(silent) < 60:
            silent.append(len(control.slots_given_back))
            raise HostAway("db1: no route to host")

    host.at_each_call = silent_for_an_hour
    monkeypatch.setattr(watching, "time", _clock(60.0))
    done = control.backup()
    assert (done.state, len(done.tries)) == (FleetState.DONE, 1)
    assert silent == [0] * 60
    assert other.orders == []


def test_a_short_silence_ends_no_run_that_takes_longer_than_expected(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, silent = control.agents.hosts["db1"], list[str]()

    def silent_for_a_moment(verb: str) -> None:
        if verb == "status" and not silent:
            silent.append(verb)
            raise HostAway("db1: no route to host")

    host.at_each_call = silent_for_a_moment
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: began_at)
    assert control.backup().state is FleetState.DONE
    assert silent


def test_a_day_of_silence_ends_a_run_whatever_its_host_had_told_that_it_takes(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(verb: str) -> None:
        if verb == "status":
            raise HostAway("db1: no route to host")

    control.agents.hosts["db1"].at_each_call = silent
    monkeypatch.setattr(watching, "time", _clock(3600.0))
    failed = control.backup(expected_seconds=30 * 86400.0)
    assert (failed.state, failed.said) == (
        FleetState.FAILED,
        f"db1 stopped answering during run {RUN}, which may still be running",
    )
    assert len(control.slots_given_back) == 1


def test_a_host_that_says_after_a_cancel_for_ever_that_its_run_goes_on_keeps_no_slot(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = control.agents.hosts["db1"]

    def cancel_it(verb: str) -> None:
        if verb == "status":
            control.records.ask_to_cancel(RUN, "by hand")
            control.wishes.read()

    host.looks, host.at_each_call = 1000, cancel_it
    monkeypatch.setattr(host, "cancel", lambda run_id: host.runs[run_id])
    monkeypatch.setattr(watching, "_ENDING_SECONDS", 0.05)
    cancelled = control.backup()
    said = f"db1 was asked to end run {RUN}, and does not"
    assert (cancelled.state, cancelled.said) == (FleetState.CANCELLED, said)
    assert len(control.slots_given_back) == 1
    assert control.agents.live() == 1
