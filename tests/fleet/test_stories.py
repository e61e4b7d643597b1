"""The story of a backup that a night owes, by hosts that are away, fail, fall silent or refuse."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from backupd.fleet import HostAway, Later
from backupd.fleet.records import Records
from backupd.operations.fleet import choosing, watching
from backupd.operations.fleet.choosing import Chooser, NightPatience, NightTerms
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.results import fetch_missing
from backupd.operations.fleet.stories import NightStories
from backupd.policy.fleet_tries import TryRule
from backupd.policy.one_machine import CountsAs, taken_for_another
from backupd.vocabulary.fleet import FleetBackup, FleetState, OwedBackup, PauseScope, Role, RunState, SeenHost, Span
from backupd.vocabulary.records import RunStatus
from tests.fleet.fake_agents import FakeAgents, FakeHost, refusing
from tests.fleets import RULE

_QUICK = NightPatience(0.001, (0.001,))

NIGHT = datetime.now(UTC).date()  # what is remembered of nights long ago is not asked for
RUN = f"{NIGHT:%Y%m%d}-shop-nightly"


class Killed(BaseException):
    """The control host is no more."""


class RememberedSteps:
    """An engine's steps, in memory: each is done once, also by the next control host."""

    def __init__(
        self,
        stories: NightStories,
        owed: OwedBackup,
        log: dict[str, object],
        prefix: str = "",
        *,
        at_slot: Callable[[], object] = lambda: None,
        given_back: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`at_slot` is called once a try has the slot that it waited for, `given_back` once it has lost it."""
        self._stories, self._owed, self._log, self._prefix, self._at_slot = stories, owed, log, prefix, at_slot
        self._given_back = given_back

    def step(self, name: str, act: Callable[[], object]) -> object:
        """See `StorySteps`."""
        key = f"{self._prefix}{name}"
        if key not in self._log:
            self._log[key] = act()
        return self._log[key]

    def attempt(self, host: str, number: int, turn: int) -> object:
        """See `StorySteps`."""
        self._at_slot()
        inner = RememberedSteps(self._stories, self._owed, self._log, f"{number}.{turn} ")
        try:
            return self._stories.attempt(self._owed, host, number, inner)
        finally:
            self._given_back(f"{number}.{turn}")


def carry(stories: NightStories, owed: OwedBackup, steps: RememberedSteps) -> None:
    """To its end, however often it has to wait: as an engine does, for as long as the story says."""
    later: Later | None = None
    while (later := stories.backup(owed, later and json.loads(json.dumps(later.so_far)), steps)) is not None:
        time.sleep(max((later.at - datetime.now(UTC)).total_seconds(), 0.0))


class StandingClock:
    """Goes on only while somebody sleeps by it: how long the machine takes for anything else does not count."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC)

    def now(self, _zone: tzinfo) -> datetime:
        """As `datetime.now`."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`, without taking any."""
        self._now += timedelta(seconds=seconds)


@contextmanager
def closing_window() -> Iterator[dict[str, datetime]]:
    """From when to when a backup may begin: time for some looks at the cluster, and then never again."""
    clock = StandingClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "datetime", clock)
        patch.setattr(f"{__name__}.datetime", clock)
        patch.setattr(f"{__name__}.time", clock)
        yield {"not_before": clock.now(UTC), "not_after": clock.now(UTC) + 10 * timedelta(seconds=_QUICK.poll_seconds)}


class Control:
    """A control host of one cluster, its records, and whom it told."""

    def __init__(self, folder: Path, *hosts: FakeHost) -> None:
        self.agents = FakeAgents(*hosts)
        self.records = Records.open(f"sqlite:///{folder}/fleet.db")
        self.wishes = Wishes(self.records)
        self.told: list[FleetBackup] = []
        self.terms = NightTerms(RULE, TryRule(retries=2, retry_after_seconds=0.001))
        self.counted: dict[str, CountsAs] = {}
        self.log: dict[str, object] = {}
        self.at_slot: list[Callable[[], object]] = []  # one for each try that gets its slot
        self.slots_given_back: list[str] = []

    def chooser(self) -> Chooser:
        """As this fleet is counted now."""
        return Chooser(self.records, self.agents, self.wishes, lambda _: self.terms, _QUICK, counted=self.counted)

    def backup(self, **changed: Any) -> FleetBackup:
        """What became of it."""
        stories = NightStories(self.chooser(), self.told.append)
        one = owed(self.agents, **changed)
        self.records.owe([FleetBackup(one, FleetState.WAITING)])
        self.wishes.read()
        carry(
            stories,
            one,
            RememberedSteps(stories, one, self.log, at_slot=self._at_slot, given_back=self.slots_given_back.append),
        )
        found = self.records.backup(one.id)
        assert found is not None
        return found

    def _at_slot(self) -> None:
        if self.at_slot:
            self.at_slot.pop(0)()

    def started(self) -> list[tuple[str, str]]:
        """All runs that any host began, in order of hosts."""
        return [(host.name, order.run_id) for host in self.agents.hosts.values() for order in host.orders]


@pytest.fixture
def control(path_in_memory: Path) -> Iterator[Control]:
    control = Control(path_in_memory, FakeHost("db1"), FakeHost("db2", lag_seconds=5.0))
    yield control
    control.records.engine.dispose()


def owed(agents: FakeAgents, **changed: Any) -> OwedBackup:
    now = datetime.now(UTC)
    one = OwedBackup(
        *(NIGHT, "shop", "nightly", tuple(agents.hosts), ("nas",), now, now + timedelta(hours=1), 1),
        expected_seconds=60.0,
        expected_bytes=1,
        max_rate=1 << 20,
    )
    return replace(one, **changed)


def test_the_best_member_makes_it_and_the_result_is_in_the_records(control: Control) -> None:
    done = control.backup()
    assert (done.state, done.stored_bytes) == (FleetState.DONE, 7)
    assert control.started() == [("db1", RUN)]
    assert control.agents.hosts["db1"].orders[0].max_rate == 1 << 20
    assert control.records.result(RUN) is not None
    assert control.told == []


def test_a_backup_that_is_done_says_what_needs_attention(control: Control) -> None:
    control.agents.hosts["db1"].ends = [RunStatus.ATTENTION]
    done = control.backup()
    assert (done.state, done.said) == (FleetState.DONE, "a table is corrupt")
    assert control.told == []


def test_a_result_that_could_not_be_had_is_asked_for_again(control: Control) -> None:
    host = control.agents.hosts["db1"]
    host.ends = [RunStatus.ATTENTION]

    def away(verb: str) -> None:
        if verb == "result":
            raise HostAway("db1: no route to host")

    host.at_each_call = away
    done = control.backup()
    assert (done.state, done.said) == (FleetState.DONE, "")
    assert control.records.result(done.owed.id) is None
    fetch_missing(control.records, control.agents, {"db1"}, since=done.owed.night)
    assert control.records.result(done.owed.id) is None
    host.at_each_call = lambda _: None
    fetch_missing(control.records, control.agents, {"db2"}, since=done.owed.night)
    assert control.records.result(done.owed.id) is None
    fetch_missing(control.records, control.agents, {"db1"}, since=done.owed.night)
    assert control.records.result(done.owed.id) is not None
    again = control.records.backup(done.owed.id)
    assert again is not None
    assert (again.state, again.said) == (FleetState.DONE, "a table is corrupt")
    assert control.records.without_result(since=done.owed.night) == []


def test_a_host_that_is_away_is_replaced_by_another_member(control: Control) -> None:
    control.agents.hosts["db1"].away = True
    assert control.backup().state is FleetState.DONE
    assert control.started() == [("db2", RUN)]


def test_a_run_that_failed_is_tried_by_another_member_under_another_id(control: Control) -> None:
    control.agents.hosts["db1"].ends = [RunStatus.FAILED]
    done = control.backup()
    assert done.state is FleetState.DONE
    assert control.started() == [("db1", RUN), ("db2", f"{RUN}.2")]
    assert [one.said for one in done.tries] == ["it failed", ""]


def test_what_fails_as_often_as_the_policy_allows_has_failed_and_is_told(control: Control) -> None:
    for host in control.agents.hosts.values():
        host.ends = [RunStatus.FAILED] * 9
    failed = control.backup()
    assert (failed.state, failed.said, len(failed.tries)) == (FleetState.FAILED, "it failed", 3)
    assert [one.state for one in control.told] == [FleetState.FAILED]


def test_a_cluster_whose_members_are_all_away_is_missed_and_told(control: Control) -> None:
    for host in control.agents.hosts.values():
        host.away = True
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert missed.said == "db1: no route to host; db2: no route to host"
    assert [(one.state, one.said) for one in control.told] == [(FleetState.MISSED, missed.said)]
    assert control.started() == []


def with_another_cluster(control: Control, other: FakeHost) -> FakeHost:
    """Which this host is in; it has been asked before."""
    control.agents.hosts[other.name] = other
    clusters = {"db1": "shop", "db2": "shop", other.name: "mail"}
    control.counted = {host: CountsAs(cluster, ("nightly",)) for host, cluster in clusters.items()}
    control.terms = replace(control.terms, members=("db1", "db2"))
    control.records.saw(SeenHost(other.name, datetime.now(UTC), other.describe()))
    return other


def lead_to_db9(control: Control, *hosts: str) -> None:
    """Their addresses do."""
    for host in hosts:
        control.agents.hosts[host].machine, control.agents.hosts[host].server = "db9-0badcafe", "uuid-9"


def test_a_host_that_is_the_machine_of_another_cluster_s_makes_no_backup(control: Control) -> None:
    """An address was copied in the inventory: the backup would be of the other's data."""
    lead_to_db9(control, "db1")
    with_another_cluster(control, FakeHost("db9", server="uuid-9"))
    assert control.backup(members=("db1", "db2")).state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db2"]


def test_where_every_member_is_another_cluster_s_machine_it_is_missed_and_says_so(control: Control) -> None:
    lead_to_db9(control, "db1", "db2")
    for host in ("db1", "db2"):
        control.records.saw(SeenHost(host, datetime.now(UTC), control.agents.hosts[host].describe()))
    other = with_another_cluster(control, FakeHost("db9", server="uuid-9"))
    other.away = True  # what it told last counts: it has answered since
    with closing_window() as window:
        missed = control.backup(members=("db1", "db2"), **window)
    assert missed.state is FleetState.MISSED
    assert "db1: it is the same machine, db9-0badcafe, as db9 of cluster mail" in missed.said
    assert control.started() == []


def test_a_machine_that_is_in_one_cluster_under_two_names_makes_its_backup(control: Control) -> None:
    """It is the same data, whichever name it goes by."""
    control.agents.hosts["db2"].machine = "db1-0badcafe"
    with_another_cluster(control, FakeHost("db9"))
    assert control.backup(members=("db1", "db2")).state is FleetState.DONE


def test_a_host_that_was_renamed_makes_its_backup_though_its_old_name_is_in_the_inventory(control: Control) -> None:
    """The old name answered until it was switched off: whoever chooses a member learns that at its first look."""
    lead_to_db9(control, "db1", "db2")
    with_another_cluster(control, FakeHost("db9", server="uuid-9")).away = True
    assert control.chooser().fit(owed(control.agents, members=("db1", "db2")), ()).host is not None
    assert control.backup(members=("db1", "db2")).state is FleetState.DONE


@pytest.mark.parametrize("away", [False, True])
def test_a_host_that_tells_another_s_machine_and_server_stops_itself_alone(control: Control, away: bool) -> None:
    """It lies, or its address was copied; whoever had been that machine before goes on, though the other is away."""
    control.agents.hosts["db1"].server = "uuid-1"
    before = SeenHost("db1", datetime.now(UTC) - timedelta(days=1), control.agents.hosts["db1"].describe())
    control.records.saw(before)
    other = with_another_cluster(control, FakeHost("db9", machine="db1-0badcafe", server="uuid-1"))
    other.away = away
    seen = {one.host: one for one in control.records.seen()}
    assert set(taken_for_another(seen, control.counted)) == {"db9"}
    assert control.backup(members=("db1",)).state is FleetState.DONE


@pytest.mark.parametrize("server", ["uuid-9", ""])
def test_a_clone_whose_server_is_another_or_down_keeps_nobody_from_a_backup(control: Control, server: str) -> None:
    """It has the identity of the machine that it was cloned from: that alone says nothing of its data."""
    control.agents.hosts["db1"].server = "uuid-1"
    with_another_cluster(control, FakeHost("db9", machine="db1-0badcafe", server=server))
    assert control.backup(members=("db1", "db2")).state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db1"]


def test_a_host_that_has_got_an_address_of_its_own_since_it_was_asked_keeps_nobody_from_a_backup(
    control: Control,
) -> None:
    control.agents.hosts["db1"].server = "uuid-1"
    with_another_cluster(control, FakeHost("db9", machine="db1-0badcafe", server="uuid-1")).machine = ""
    assert control.backup(members=("db1", "db2")).state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db1"]


def test_what_none_of_its_members_is_fit_for_leaves_its_cluster_to_others_until_it_looks_again(
    control: Control,
) -> None:
    control.agents.hosts["db1"].away = True
    chooser = Chooser(control.records, control.agents, control.wishes, lambda _: control.terms, NightPatience(1.0))
    stories = NightStories(chooser, control.told.append)
    one, log, past = owed(control.agents, members=("db1",), only="db1"), dict[str, object](), dict[str, Any]()
    control.records.owe([FleetBackup(one, FleetState.WAITING)])

    def gone_on() -> Later | None:
        return stories.backup(one, past, RememberedSteps(stories, one, log))

    for seconds in (30, 60, 120, 300, 600, 600):
        before = datetime.now(UTC)
        later = gone_on()
        assert later is not None
        assert timedelta(seconds=seconds) <= later.at - before < timedelta(seconds=seconds + 20)
        waiting = control.records.backup(one.id)
        assert waiting is not None
        assert (waiting.state, waiting.said) == (FleetState.WAITING, "db1: no route to host")
        past = json.loads(json.dumps(later.so_far)) | {"not_before": before.isoformat()}  # that time has come
    assert control.backup(members=("db2",), only="db2").state is FleetState.DONE
    control.agents.hosts["db1"].away = False
    assert gone_on() is None
    assert control.started() == [("db1", one.id), ("db2", f"{RUN}-db2")]


def test_what_waits_for_its_next_try_leaves_its_cluster_to_others_and_may_be_cancelled(control: Control) -> None:
    control.agents.hosts["db1"].ends = [RunStatus.FAILED]
    control.terms = replace(control.terms, tries=TryRule(retries=2, retry_after_seconds=900.0))
    chooser = Chooser(control.records, control.agents, control.wishes, lambda _: control.terms, _QUICK)
    stories = NightStories(chooser, control.told.append)
    one = owed(control.agents)
    later = stories.backup(one, None, RememberedSteps(stories, one, control.log))
    assert later is not None
    assert timedelta(minutes=14) < later.at - datetime.now(UTC) <= timedelta(minutes=15)
    waiting = control.records.backup(one.id)
    assert waiting is not None
    assert (waiting.state, waiting.said, len(waiting.tries)) == (FleetState.WAITING, "it failed", 1)
    control.records.ask_to_cancel(one.id, "by hand")
    control.records.cancel_waiting(datetime.now(UTC))
    assert stories.backup(one, later.so_far, RememberedSteps(stories, one, control.log)) is None
    ended = control.records.backup(one.id)
    assert ended is not None
    assert (ended.state, ended.said, len(ended.tries)) == (FleetState.CANCELLED, "by hand", 1)


def test_the_source_is_spared(control: Control) -> None:
    control.agents.hosts["db1"].role = Role.SOURCE
    control.agents.hosts["db2"].away = True
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert control.started() == []


def test_a_host_that_a_person_named_makes_it_though_the_policy_names_another(control: Control) -> None:
    control.terms = replace(control.terms, member=replace(RULE, names=("db2",)))
    assert control.backup(members=("db1",), only="db1").state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db1"]


def test_a_host_whose_job_goes_to_a_target_of_which_no_slot_is_held_makes_no_backup(control: Control) -> None:
    control.terms = replace(control.terms, targets=frozenset({"nas", "s3"}))
    control.agents.hosts["db1"].targets = ("nas", "s3")
    control.agents.hosts["db2"].targets = ("nas", "a target that is not shared")
    assert control.backup().state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db2"]


def test_where_all_members_go_to_other_targets_than_were_planned_it_is_missed_and_says_so(control: Control) -> None:
    control.terms = replace(control.terms, targets=frozenset({"nas", "s3"}))
    for host in control.agents.hosts.values():
        host.targets = ("s3",)
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert "db1: its job also stores on s3, where this backup has no slot planned" in missed.said
    assert control.started() == []


def test_a_start_whose_answer_was_lost_is_no_second_run(control: Control) -> None:
    host, lost = control.agents.hosts["db1"], ["once"]

    def lose(verb: str) -> None:
        if verb == "started" and lost:
            lost.pop()
            raise HostAway("db1: the connection was lost")

    host.at_each_call = lose
    assert control.backup().state is FleetState.DONE
    assert control.started() == [("db1", RUN)]


def test_a_host_that_falls_silent_within_a_run_is_waited_for_and_not_replaced(control: Control) -> None:
    host, calls = control.agents.hosts["db1"], []

    def silent_for_a_while(verb: str) -> None:
        if verb == "status":
            calls.append(verb)
            assert control.agents.live() == 1
            if len(calls) < 20:
                raise HostAway("db1: no route to host")

    host.at_each_call = silent_for_a_while
    assert control.backup().state is FleetState.DONE
    assert control.started() == [("db1", RUN)]


def test_where_nobody_knows_whether_a_run_goes_on_no_other_member_begins(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = control.agents.hosts["db1"]

    def silent(verb: str) -> None:
        if verb == "status":
            raise HostAway("db1: no route to host")

    host.at_each_call = silent
    monkeypatch.setattr(watching, "silent_until", lambda owed, began_at: began_at + timedelta(seconds=0.1))
    monkeypatch.setattr(watching, "_SHORT_SILENCE_SECONDS", 0.0)
    failed = control.backup()
    assert failed.state is FleetState.FAILED
    assert failed.said == f"db1 stopped answering during run {RUN}, which may still be running"
    assert control.started() == [("db1", RUN)]


def test_a_cluster_in_which_somebody_else_s_run_goes_on_has_no_second_one(control: Control) -> None:
    other = control.agents.hosts["db2"]
    other.start(replace(_order(), run_id="by-its-own-schedule"))
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert "run by-its-own-schedule is in progress there" in missed.said
    assert control.agents.hosts["db1"].orders == []


@pytest.mark.parametrize(("asked_for", "made"), [(1, [f"{RUN}.r1.2"]), (0, [])])
def test_a_run_that_was_made_before_a_person_asked_for_it_is_no_answer(
    control: Control, asked_for: int, made: list[str]
) -> None:
    """Records that were restored from a dump give an id twice; of a night's that is what keeps it from a second run."""
    host, run_id = control.agents.hosts["db1"], owed(control.agents, asked_for=asked_for).id
    ago = datetime.now(UTC) - timedelta(hours=3)
    host.runs[run_id] = RunState(run_id, RunStatus.SUCCESS, started_at=ago, ended_at=ago + timedelta(minutes=5))
    done = control.backup(asked_for=asked_for)
    assert done.state is FleetState.DONE
    assert [one for _, one in control.started()] == made
    if made:
        assert done.tries[0].said == f"db1 made run {run_id} before it was asked for"


def test_what_began_after_a_person_asked_is_an_answer_though_the_host_s_clock_is_a_little_behind(
    control: Control,
) -> None:
    host, one = control.agents.hosts["db1"], owed(control.agents, asked_for=1)
    began = one.not_before - timedelta(seconds=50)
    host.runs[one.id] = RunState(one.id, RunStatus.SUCCESS, started_at=began, ended_at=began + timedelta(seconds=20))
    assert control.backup(asked_for=1, not_before=one.not_before).state is FleetState.DONE
    assert control.started() == []


def test_a_refused_start_is_a_try(control: Control) -> None:
    refusing("start", control.agents.hosts["db1"])
    done = control.backup()
    assert done.state is FleetState.DONE
    assert [(one.host, one.status) for one in done.tries] == [*(("db1", RunStatus.REFUSED), ("db2", RunStatus.SUCCESS))]


def test_what_is_cancelled_while_it_runs_ends_at_its_host(control: Control) -> None:
    host = control.agents.hosts["db1"]
    host.looks = 1000

    def cancel_it(verb: str) -> None:
        if verb == "status":
            control.records.ask_to_cancel(RUN, "by hand")
            control.wishes.read()

    host.at_each_call = cancel_it
    assert control.backup().state is FleetState.CANCELLED
    assert control.agents.live() == 0
    assert control.told == []


def test_what_is_cancelled_while_it_waits_never_begins(control: Control) -> None:
    begin = datetime.now(UTC) + timedelta(minutes=30)
    one = owed(control.agents, not_before=begin)
    control.records.owe([FleetBackup(one, FleetState.WAITING)])
    control.records.ask_to_cancel(one.id, "by hand")
    cancelled = control.backup(not_before=begin)
    assert (cancelled.state, cancelled.said) == (FleetState.CANCELLED, "by hand")
    assert control.started() == []


def test_what_is_cancelled_while_it_waits_for_its_slot_never_begins(control: Control) -> None:
    """Which may take hours to come."""

    def cancel_it() -> None:
        control.records.ask_to_cancel(RUN, "by hand")
        control.wishes.read()

    control.at_slot = [cancel_it]
    cancelled = control.backup()
    assert (cancelled.state, cancelled.said) == (FleetState.CANCELLED, "by hand")
    assert control.started() == []


def test_a_host_that_is_away_once_the_slot_is_there_is_replaced_by_another_member(control: Control) -> None:
    control.at_slot = [lambda: setattr(control.agents.hosts["db1"], "away", True)]
    assert control.backup().state is FleetState.DONE
    assert control.started() == [("db2", RUN)]


def test_what_was_ended_while_it_waited_for_its_slot_stays_as_it_was_ended(control: Control) -> None:
    def end_it() -> None:
        known = control.records.backup(RUN)
        assert known is not None
        control.records.keep(replace(known, state=FleetState.MISSED, said="no slot came", changed_at=datetime.now(UTC)))

    control.at_slot = [end_it]
    missed = control.backup()
    assert (missed.state, missed.said) == (FleetState.MISSED, "no slot came")
    assert control.started() == []


@pytest.mark.parametrize(("scope", "name"), [(PauseScope.FLEET, ""), (PauseScope.CLUSTER, "shop")])
def test_what_is_paused_until_its_window_closes_is_missed(control: Control, scope: PauseScope, name: str) -> None:
    control.records.pause(scope, name, "upgrade")
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert missed.said.endswith("is paused: upgrade")
    assert control.started() == []


def test_a_paused_host_is_passed_over(control: Control) -> None:
    control.records.pause(PauseScope.HOST, "db1", "")
    assert control.backup().state is FleetState.DONE
    assert control.started() == [("db2", RUN)]


def test_nothing_begins_in_a_blackout(control: Control) -> None:
    now = datetime.now(UTC)
    opens = now + timedelta(seconds=0.3)
    done = control.backup(closed=(Span(now - timedelta(hours=1), opens),))
    assert done.state is FleetState.DONE
    assert done.tries[0].began_at >= opens


@pytest.mark.parametrize(
    ("verb", "times"),
    [*((verb, times) for verb in ("describe", "start", "status", "result") for times in (1, 2, 3)), ("started", 1)],
)
def test_killed_at_any_call_the_next_control_host_goes_on_and_starts_nothing_twice(
    control: Control, verb: str, times: int
) -> None:
    host, left = control.agents.hosts["db1"], [times]

    def kill(called: str) -> None:
        if called == verb and left[0] > 0:
            left[0] -= 1
            raise Killed

    host.at_each_call = kill
    one = owed(control.agents)
    for _ in range(times):
        with pytest.raises(Killed):
            control.backup(not_before=one.not_before, not_after=one.not_after)
    done = control.backup(not_before=one.not_before, not_after=one.not_after)
    assert done.state is FleetState.DONE
    assert control.started() == [("db1", RUN)]
    assert len(done.tries) == 1


def _order() -> Any:
    from backupd.vocabulary.fleet import StartOrder

    return StartOrder("nightly", "x")


def test_a_host_that_is_in_another_cluster_by_now_makes_no_backup_of_this_one(control: Control) -> None:
    control.terms = replace(
        control.terms, members=("db2",)
    )  # db1, the least behind, has left since the night was planned
    assert control.backup().state is FleetState.DONE
    assert [host for host, _ in control.started()] == ["db2"]


def test_a_cluster_that_all_planned_members_have_left_is_missed_and_says_so(control: Control) -> None:
    control.terms = replace(control.terms, members=("db3",))
    with closing_window() as window:
        missed = control.backup(**window)
    said = "db1: it has left the cluster; db2: it has left the cluster"
    assert (missed.state, missed.said) == (FleetState.MISSED, said)
    assert control.started() == []


def test_a_run_that_goes_on_at_a_paused_host_keeps_its_cluster(control: Control) -> None:
    control.agents.hosts["db1"].start(replace(_order(), run_id="by-its-own-schedule"))
    control.records.pause(PauseScope.HOST, "db1", "busy")
    with closing_window() as window:
        missed = control.backup(**window)
    assert missed.state is FleetState.MISSED
    assert "run by-its-own-schedule is in progress there" in missed.said
    assert control.agents.hosts["db2"].orders == []
