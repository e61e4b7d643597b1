"""A control host at work: what it does at each tick, whatever a clock, a host or a story has done."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from backupd.config.fleet_reading import InventoryHosts, fleet_understood
from backupd.fleet import Stories, tables
from backupd.fleet.records import Records
from backupd.operations.fleet import control, telling
from backupd.operations.fleet.choosing import Chooser, NightPatience, NightTerms
from backupd.operations.fleet.control import ControlHost, Nights
from backupd.operations.fleet.fleet_notices import tell_end
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.serving import FleetSurroundings, control_host
from backupd.operations.fleet.stories import NightStories
from backupd.policy.fleet_plan import NightPlan, plan_night
from backupd.policy.fleet_tries import TryRule
from backupd.vocabulary.errors import Busy, FleetDatabaseError
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry, OwedBackup, PauseScope
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fleet.fake_agents import FakeAgents, FakeHost
from tests.fleet.test_stories import RememberedSteps, carry
from tests.fleets import CLOCK, NIGHT, RULE, replica, seen, terms


class ListingEngine:
    """Carries nothing: what was submitted is a list."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.breaks: dict[str, str] = {}
        self.stories: Stories | None = None  # that it was to carry last
        self.busy = False  # another control host is active

    def submit(self, owed: Sequence[OwedBackup]) -> None:
        """See `Engine`."""
        self.submitted += [one.id for one in owed]

    def going(self) -> Sequence[str]:
        """See `Engine`."""
        return self.submitted

    def broken(self) -> Mapping[str, str]:
        """See `Engine`."""
        return self.breaks

    @contextmanager
    def serving(self, stories: Stories) -> Iterator[None]:
        """See `Engine`."""
        if self.busy:
            raise Busy("another control host is active", hint="")
        self.stories = stories
        yield


class Killed(BaseException):
    """The control host is no more."""


class Ticks(threading.Event):
    """Set after so many ticks; between two of them the world changes."""

    def __init__(self, most: int, between: Callable[[], object]) -> None:
        super().__init__()
        self._left, self._between = most, between

    def wait(self, timeout: float | None = None) -> bool:
        """The control host would wait here."""
        assert timeout is not None
        self._left -= 1
        self._between()
        return self._left <= 0


class Served:
    """A control host, its records, what it said and whom it told."""

    def __init__(self, folder: Path) -> None:
        self.engine = ListingEngine()
        self.records = Records.open(f"sqlite:///{folder}/fleet.db")
        self.agents = FakeAgents(FakeHost("db1"), FakeHost("db2"))
        self.told: list[Notice] = []
        self.tell: Callable[[Notice], None] = self.told.append
        self.said: list[str] = []
        self.night = NIGHT
        self.plan: Callable[[date], NightPlan] = lambda night: NightPlan(night, (), (), ())
        self.unplanned: list[str] = []
        self.contacts: list[bool] = []  # with all hosts; whether the night was planned then

    def serve(
        self, ticks: int = 1, between: Callable[[], object] = lambda: None, *, plan_seconds: float = 60.0
    ) -> None:
        """So many ticks. Each waits for a plan that is being made for so long, and for nothing else."""
        planned = threading.Event()
        nights = Nights(
            now=lambda _: self.night,
            plan=self.plan,
            tell_unplanned=lambda night, error: self.unplanned.append(f"{night}: {error}"),
            is_planned=planned,
            keep_contact=lambda: self.contacts.append(planned.is_set()),
        )
        served = (self.engine, self.stories(), nights, self.said.append)
        ControlHost(*served, tell=self.tell, tick_seconds=plan_seconds).serve(Ticks(ticks, between))

    def stories(self) -> NightStories:
        """As this control host has them."""
        patience = NightPatience(0.001, (0.001,))
        night_terms = NightTerms(RULE, TryRule(2, 900.0))
        chooser = Chooser(self.records, self.agents, Wishes(self.records), lambda _: night_terms, patience)
        return NightStories(chooser, lambda backup: tell_end(self.records, backup))

    def states(self) -> dict[str, FleetState]:
        """Of this night's backups."""
        return {one.owed.cluster: one.state for one in self.records.night(self.night)}


@pytest.fixture
def served(path_in_memory: Path) -> Iterator[Served]:
    served = Served(path_in_memory)
    yield served
    served.records.engine.dispose()


def waiting(cluster: str, *, ends: timedelta = timedelta(hours=1)) -> OwedBackup:
    now = datetime.now(UTC)
    return OwedBackup(NIGHT, cluster, "nightly", ("db1", "db2"), (), now - timedelta(hours=9), now + ends, 1, 60.0, 1)


def test_a_cluster_that_cannot_be_planned_is_told_and_the_others_have_their_night(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    told = {"db1": seen("db1", replica(float("inf"))), "db2": seen("db2", replica(1.0))}
    clusters = [terms("bad", "db1", "db3"), terms("good", "db2", "db4")]
    served.night = datetime.now(UTC).date() + timedelta(days=1)  # whose windows are not over yet
    served.plan = lambda night: plan_night(night, clusters, told, {}, CLOCK)
    served.serve()
    assert served.states() == {"bad": FleetState.FAILED, "good": FleetState.WAITING}
    assert served.engine.submitted == [f"{served.night:%Y%m%d}-good-nightly"]
    (bad,) = served.told
    assert bad.text.startswith(
        "the backup of cluster bad failed: backupd could not plan it, which is a bug in it: OverflowError"
    )
    (failed,) = (one for one in served.records.night(served.night) if one.owed.cluster == "bad")
    assert failed.owed.members == ("db1", "db3")
    assert "Traceback" in caplog.text


def test_a_night_that_a_wrong_clock_has_planned_before_its_time_keeps_none_before_it_from_its_plan(
    served: Served,
) -> None:
    served.records.plan_night(NIGHT + timedelta(days=40), [])
    served.plan = lambda night: NightPlan(night, (waiting("shop"),), (), ())
    served.serve(ticks=3)
    assert served.engine.submitted == ["20261126-shop-nightly"]
    assert [one for one in served.said if "before its time" in one] == [
        "the night of 2027-01-05 was planned before its time: was the clock of a control host ahead?"
    ]


def test_a_night_that_cannot_be_planned_is_told_and_tried_again_while_the_control_host_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[date]()

    def plan(night: date) -> NightPlan:
        made.append(night)
        if len(made) == 1:
            raise KeyError("db9")
        return NightPlan(night, (waiting("shop"),), (), ())

    served.plan = plan
    served.serve(ticks=3)
    assert served.unplanned == [f"{NIGHT}: 'db9'"]
    assert made == [NIGHT]  # for each plan all hosts are asked
    assert served.contacts == [False] * 3
    made.clear()
    monkeypatch.setattr(control, "_PLAN_AGAIN_SECONDS", 0.0)
    served.serve(ticks=2)
    assert served.unplanned == [f"{NIGHT}: 'db9'"] * 2
    assert served.contacts[3:] == [False, True]
    assert served.engine.submitted == ["20261126-shop-nightly"]


def test_a_new_night_has_no_plan_until_it_is_made(served: Served) -> None:
    def next_night() -> None:
        served.night += timedelta(days=1)

    def plan(night: date) -> NightPlan:
        if night > NIGHT:
            raise RuntimeError(night)
        return NightPlan(night, (), (), ())

    served.plan = plan
    served.serve(ticks=2, between=next_night)
    assert served.contacts == [True, False]


def test_a_control_host_whose_work_fails_has_told_no_host_of_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(owed: Sequence[OwedBackup]) -> None:
        raise RuntimeError(owed)

    monkeypatch.setattr(served.engine, "submit", submit)
    served.plan = lambda night: NightPlan(night, (waiting("shop"),), (), ())
    for _ in range(2):
        with pytest.raises(RuntimeError):
            served.serve()
    assert served.contacts == []


def test_while_a_night_is_being_planned_it_is_at_work_and_hears_what_people_want(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, serving, wishes = threading.Event(), served.engine.serving, list[Wishes]()

    def plan(night: date) -> NightPlan:
        assert asked.wait(60)  # hosts that do not answer
        return NightPlan(night, (waiting("shop"),), (), ())

    def remembered(stories: NightStories) -> AbstractContextManager[None]:
        wishes.append(stories.chooser.wishes)
        return serving(stories)

    monkeypatch.setattr(served.engine, "serving", remembered)
    served.plan = plan
    seen_at = list[datetime]()

    def between() -> None:
        control = served.records.control()
        assert control is not None
        seen_at.append(control.seen_at)
        served.records.pause(PauseScope.FLEET, "", "upgrade")

    try:
        served.serve(ticks=3, between=between, plan_seconds=0.001)
    finally:
        asked.set()
    assert seen_at == sorted(set(seen_at))
    assert wishes[0].paused(waiting("shop")) == "the fleet is paused: upgrade"
    assert served.engine.submitted == []
    served.serve()
    assert served.engine.submitted == ["20261126-shop-nightly"]


def test_what_waits_behind_a_run_that_does_not_end_is_missed_and_told_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_SECONDS", 0.0)
    late, early = waiting("late", ends=timedelta(hours=-1)), waiting("early")
    begun = datetime.now(UTC) - timedelta(hours=7)
    stuck = FleetTry("db1", "20261126-stuck-nightly", begun)
    served.records.plan_night(NIGHT, [FleetBackup(late, FleetState.WAITING), FleetBackup(early, FleetState.WAITING)])
    served.records.owe([FleetBackup(waiting("stuck"), FleetState.RUNNING, (stuck,))])
    served.serve(ticks=3)
    assert served.states() == {
        "early": FleetState.WAITING,
        "late": FleetState.MISSED,
        "stuck": FleetState.RUNNING,
    }
    told = [("late", NoticeKind.MISSED), ("stuck", NoticeKind.ATTENTION)]
    assert sorted((str(one.cluster), one.kind) for one in served.told) == told
    stories = served.stories()
    carry(stories, late, RememberedSteps(stories, late, {}))  # its turn comes at last
    assert served.states()["late"] is FleetState.MISSED
    assert served.records.notices.waiting() == []
    assert served.agents.live() == 0


def test_a_story_that_breaks_off_is_told_while_the_control_host_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_SECONDS", 0.0)
    served.plan = lambda night: NightPlan(night, (waiting("shop"),), (), ())
    served.serve(ticks=3, between=lambda: served.engine.breaks.update({"20261126-shop-nightly": "KeyError: 'db9'"}))
    assert served.states() == {"shop": FleetState.FAILED}
    assert [one.text for one in served.told] == [
        "the backup of cluster shop failed: backupd failed, which is a bug in it: KeyError: 'db9'"
    ]


@pytest.mark.parametrize("what", ["a plan", "a story"])
def test_what_is_broken_is_told_though_the_control_host_is_killed_before_it_has_written_that_down(
    served: Served, what: str
) -> None:
    """Of what is recorded as failed nobody asks again whether people were told."""
    served.night = datetime.now(UTC).date() + timedelta(days=1)
    if what == "a plan":
        told = {"db1": seen("db1", replica(float("inf")))}
        served.plan = lambda night: plan_night(night, [terms("shop", "db1", "db3")], told, {}, CLOCK)
    else:
        served.records.plan_night(served.night, [FleetBackup(waiting("shop"), FleetState.WAITING)])
        served.engine.breaks["20261126-shop-nightly"] = "KeyError: 'db9'"

    def killed(*_notice: object) -> bool:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(served.records.notices, "owe", killed)
        served.serve()
    assert served.told == []
    served.serve()
    assert [(one.cluster, one.kind) for one in served.told] == [("shop", NoticeKind.FAILED)]


def test_a_mail_server_that_hangs_keeps_no_control_host_from_its_work(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(telling, "_LOOK_SECONDS", 0.001)
    hanging, ended = threading.Event(), threading.Event()

    def tell(notice: Notice) -> None:
        hanging.set()
        assert ended.wait(60)
        served.told.append(notice)

    seen_at, ticks = list[datetime](), 5

    def between() -> None:
        assert hanging.wait(60)  # from the first tick on
        at_work = served.records.control()
        assert at_work is not None
        seen_at.append(at_work.seen_at)
        if len(seen_at) == ticks:
            assert served.told == []
            ended.set()

    served.tell = tell
    served.records.plan_night(
        NIGHT, [FleetBackup(waiting(name, ends=timedelta(hours=-1)), FleetState.WAITING) for name in ("a", "b", "c")]
    )
    served.serve(ticks=ticks, between=between)
    assert seen_at == sorted(set(seen_at))
    assert set(served.states().values()) == {FleetState.MISSED}
    assert sorted(str(one.cluster) for one in served.told) == ["a", "b", "c"]


def test_what_was_being_told_when_a_control_host_ended_is_told_by_the_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_notice: Notice) -> None:
        raise Killed

    monkeypatch.setattr(control, "_LOOK_SECONDS", 0.0)
    served.tell = killed
    served.records.plan_night(NIGHT, [FleetBackup(waiting("late", ends=timedelta(hours=-1)), FleetState.WAITING)])
    with pytest.raises(Killed):
        served.serve()
    assert served.states() == {"late": FleetState.MISSED}
    served.tell = served.told.append
    for _ in range(2):
        served.serve()
    assert [(one.cluster, one.kind) for one in served.told] == [("late", NoticeKind.MISSED)]


def test_a_standby_whose_database_a_newer_backupd_has_upgraded_meanwhile_does_not_take_over(served: Served) -> None:
    def upgraded() -> None:
        with served.records.engine.begin() as connection:
            connection.execute(update(tables.version).values(version=tables.HEAD + 1))

    served.engine.busy = True
    with pytest.raises(FleetDatabaseError, match="has schema"):
        served.serve(ticks=3, between=upgraded)
    assert served.said == ["another control host is active; this one waits"]


def test_what_is_paused_begins_at_no_start_of_a_control_host(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories go on before the first tick."""
    served.records.pause(PauseScope.FLEET, "", "upgrade")
    known: list[str | None] = []

    @contextmanager
    def serving(stories: NightStories) -> Iterator[None]:
        known.append(stories.chooser.wishes.paused(waiting("shop")))
        yield

    monkeypatch.setattr(served.engine, "serving", serving)
    served.serve()
    assert known == ["the fleet is paused: upgrade"]


_TWO = """
[hosts]
db4 = { cluster = "bills" }
db5 = { cluster = "users" }
[policies.default]
windows = ["00:00-00:00"]
"""


def test_where_two_hosts_lead_to_one_machine_neither_s_cluster_has_a_backup_and_people_are_told(
    served: Served,
) -> None:
    """One address was copied to the other host: it would have the other's data, and count as good."""
    served.agents = FakeAgents(FakeHost("db4", server="u"), FakeHost("db5", machine="db4-0badcafe", server="u"))
    file = fleet_understood(_TWO, Path("fleet.toml"), lambda _: InventoryHosts())
    told: list[Notice] = []
    given = FleetSurroundings(
        configuration=file.configuration,
        load=lambda: file,
        records=served.records,
        agents=served.agents,
        engine=served.engine,
        tell=told.append,
        say=served.said.append,
        begin_anew=served.said.append,
    )
    owed: list[OwedBackup] = []

    def look() -> None:
        owed.extend(one.owed for one in served.records.going())

    control_host(given).serve(Ticks(3, look))
    assert "db4 of cluster bills, db5 of cluster users have one identity, db4-0badcafe, and one server" in told[0].text
    assert {one.cluster for one in owed} == {"bills", "users"}
    assert isinstance(served.engine.stories, NightStories)
    for one in owed:
        found = served.engine.stories.chooser.fit(one, ())
        assert (found.host, "it is the same machine, db4-0badcafe, as" in found.said) == (None, True)
    # The machine backs itself up once it has waited long enough: nobody says any more that the fleet does it.
    assert [host.seen_to for host in served.agents.hosts.values()] == [(), ()]
