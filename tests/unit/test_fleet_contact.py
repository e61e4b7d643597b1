"""A control host asks every host again and again, and claims those jobs of it whose backups it makes."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backupd.config.fleet import FleetConfiguration
from backupd.config.fleet_reading import FleetFile, InventoryHosts, fleet_understood
from backupd.fleet.records import Records
from backupd.operations.fleet import serving
from backupd.operations.fleet.contact import HostContact, seen_to
from backupd.operations.fleet.on_demand import by_hand
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.serving import FleetSurroundings, control_host
from backupd.policy.fleet_plan import NightPlan
from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.fleet import ASKED_EVERY_SECONDS, PauseScope, SeenHost
from backupd.vocabulary.schedule import Notice
from tests.fakes.agents import FakeAgents
from tests.fleet.test_control import ListingEngine, Ticks
from tests.fleets import described, replica, source

FILE = """
[hosts]
db1 = { cluster = "orders" }
db2 = { cluster = "orders" }
mail = {}
[clusters.orders]
jobs = ["nightly", "weekly"]
[targets.nas1]
"""
ORDERS = ("nightly", "weekly")


class Fleet:
    """Three hosts, and their control host's contact with them."""

    def __init__(self, folder: Path) -> None:
        self.records = Records.open(f"sqlite:///{folder}/fleet.sqlite")
        self.wishes = Wishes(self.records)
        self.agents = FakeAgents(
            {
                "db1": described("db1", source()),
                "db2": described("db2", replica(1.0)),
                "mail": described("mail", source()),
            }
        )
        self.configuration: FleetConfiguration = fleet_understood(
            FILE, Path("fleet.toml"), lambda _: InventoryHosts(())
        ).configuration
        self.clock = 0.0
        self.planned = True
        claims = seen_to(self.configuration, self.wishes, lambda: self.planned)
        self.heard: list[set[str]] = []
        self.contact = HostContact(
            *(self.configuration, self.records, self.agents, claims, lambda: self.planned),
            heard=lambda told: self.heard.append({one.host for one in told}),
            clock=lambda: self.clock,
        )

    def claimed(self) -> dict[str, tuple[str, ...]]:
        self.wishes.read()
        self.contact.ask()
        return self.agents.seen_to

    def kept(self) -> set[str]:
        """The hosts that were asked, if it was time."""
        self.agents.seen_to.clear()
        self.contact.keep()
        wait_for_contact()
        return set(self.agents.seen_to)


def wait_for_contact() -> None:
    for thread in threading.enumerate():
        if thread.name == "contact":
            thread.join()


@pytest.fixture
def fleet(path_in_memory: Path) -> Iterator[Fleet]:
    made = Fleet(path_in_memory)
    yield made
    made.records.engine.dispose()


def test_a_host_is_told_which_of_its_jobs_the_fleet_makes(fleet: Fleet) -> None:
    assert fleet.claimed() == {"db1": ORDERS, "db2": ORDERS, "mail": ("nightly",)}
    assert {one.host for one in fleet.records.seen()} == {"db1", "db2", "mail"}


@pytest.mark.parametrize(
    ("pause", "claimed"),
    [
        (lambda records: records.pause(PauseScope.FLEET, "", ""), ((), (), ())),
        (lambda records: records.pause(PauseScope.CLUSTER, "orders", ""), ((), (), ("nightly",))),
        (lambda records: records.pause(PauseScope.HOST, "mail", ""), (ORDERS, ORDERS, ())),
        (lambda records: records.pause(PauseScope.HOST, "db1", ""), (ORDERS, ORDERS, ("nightly",))),
    ],
)
def test_of_what_is_paused_the_fleet_claims_nothing(
    fleet: Fleet, pause: Callable[[Records], None], claimed: tuple[tuple[str, ...], ...]
) -> None:
    pause(fleet.records)
    assert tuple(fleet.claimed()[host] for host in ("db1", "db2", "mail")) == claimed


def test_every_host_is_asked_again_every_six_hours_and_not_more_often(fleet: Fleet) -> None:
    assert ASKED_EVERY_SECONDS == 6 * 3600
    assert fleet.kept() == {"db1", "db2", "mail"}
    fleet.clock = ASKED_EVERY_SECONDS - 1
    assert fleet.kept() == set()
    fleet.clock = ASKED_EVERY_SECONDS
    assert fleet.kept() == {"db1", "db2", "mail"}


def test_what_the_fleet_makes_hosts_are_told_as_soon_as_the_night_has_its_plan_and_not_before(fleet: Fleet) -> None:
    fleet.planned = False
    assert set(fleet.claimed().values()) == {()}
    assert fleet.kept() == set()
    fleet.planned = True
    assert fleet.kept() == {"db1", "db2", "mail"}
    assert fleet.agents.seen_to["db1"] == ORDERS
    assert fleet.kept() == set()


def test_a_control_host_that_cannot_plan_is_told_of_and_hosts_are_left_to_themselves(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, told = FleetFile(fleet.configuration, ()), list[Notice]()
    given = FleetSurroundings(
        configuration=fleet.configuration,
        load=lambda: file,
        records=fleet.records,
        agents=fleet.agents,
        engine=ListingEngine(),
        tell=told.append,
        say=lambda _: None,
        begin_anew=pytest.fail,
    )

    def failing(*_: object) -> NightPlan:
        raise RuntimeError("nobody foresaw it")

    with monkeypatch.context() as broken:
        broken.setattr(serving, "plan_night", failing)
        control_host(given).serve(Ticks(2, wait_for_contact))
    assert fleet.agents.seen_to == {"db1": (), "db2": (), "mail": ()}
    assert [one.text.partition(": ")[2] for one in told] == ["RuntimeError: nobody foresaw it"]
    control_host(given).serve(Ticks(1, wait_for_contact))
    assert fleet.agents.seen_to == {"db1": ORDERS, "db2": ORDERS, "mail": ("nightly",)}


def test_where_the_database_refuses_what_hosts_told_they_are_asked_again_soon(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def saw(seen: SeenHost) -> None:
        raise FleetDatabaseError(f"the fleet's database refused a statement: {seen.host}")

    with monkeypatch.context() as broken:
        broken.setattr(fleet.records, "saw", saw)
        fleet.kept()
    fleet.clock = 300.0
    assert fleet.kept() == {"db1", "db2", "mail"}


def test_what_all_hosts_told_is_heard_each_time_that_they_are_asked(fleet: Fleet) -> None:
    fleet.contact.ask()
    fleet.kept()
    fleet.clock = ASKED_EVERY_SECONDS
    fleet.kept()
    assert fleet.heard == [{"db1", "db2", "mail"}] * 2


def test_who_asks_for_one_backup_claims_nothing(fleet: Fleet) -> None:
    by_hand(fleet.configuration, fleet.records, fleet.agents, "orders", None)
    assert set(fleet.agents.seen_to.values()) == {()}


@pytest.mark.parametrize(
    ("member", "claimed"),
    [('"all"', ((), ORDERS)), ('["db1"]', ((), ())), ('["db2", "db1"]', (ORDERS, ORDERS))],
)
def test_where_whoever_could_make_it_is_paused_the_fleet_claims_nothing(
    fleet: Fleet, member: str, claimed: tuple[tuple[str, ...], ...]
) -> None:
    text = FILE.replace("jobs =", 'policy = "own"\njobs =') + f"[policies.own]\nmember = {member}\n"
    configuration = fleet_understood(text, Path("fleet.toml"), lambda _: InventoryHosts(())).configuration
    fleet.records.pause(PauseScope.HOST, "db1", "")
    fleet.wishes.read()
    jobs_of = seen_to(configuration, fleet.wishes, lambda: True)
    assert (jobs_of("db1"), jobs_of("db2")) == claimed
