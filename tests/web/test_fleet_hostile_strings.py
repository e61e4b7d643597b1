"""Whatever hosts, clusters and people of a fleet call things: every page, document and metric shows it, none acts."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

from backupd.fleet.records import Records
from backupd.policy.cluster_status import WatchedCluster
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.application import fleet_application
from backupd.vocabulary.fleet import Control, DescribedJob, FleetState, HostDescription, PauseScope, Role, SeenHost
from tests.fleet.many_nights import NEWEST, TONIGHT, MadeFleet, failed_result
from tests.hostile_words import ARGUMENT, HOSTILE, MARKUP, faults
from tests.web.conftest import TOKEN
from tests.web.fleet_site import asking
from tests.web.test_hostile_strings import flat
from tests.web.test_pages import _Seen

NAME = HOSTILE.replace("\0", "").replace("/", "")  # a name: PostgreSQL keeps no NUL, and an address ends at a slash
WORDS = quote(ARGUMENT.encode("utf-8", "surrogateescape"), safe="")


def spoil(records: Records, made: MadeFleet) -> list[str]:
    """The records have a backup of every state whose every word is hostile; their ids."""
    backup = next(one for one in made.night(NEWEST) if len(one.tries) == 1)
    ids = []
    for number, state in enumerate(FleetState):
        night = TONIGHT if state in (FleetState.WAITING, FleetState.RUNNING) else NEWEST
        owed = replace(
            backup.owed,
            cluster=f"{NAME}{number}",
            job=NAME,
            members=(NAME, NAME),
            targets=(NAME,),
            night=night,
        )
        tries = tuple(replace(one, host=NAME, run_id=f"{NAME}{number}", said=HOSTILE) for one in backup.tries)
        tries = () if state is FleetState.MISSED else tries
        spoilt = replace(backup, owed=owed, tries=tries, state=state, said=HOSTILE, phase=NAME)
        records.keep(spoilt)
        if tries:
            records.keep_result(NAME, NAME, failed_result(spoilt, HOSTILE, HOSTILE))
        ids.append(owed.id)
    return ids


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FleetSite, list[str]]]:
    records = Records.open(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/fleet.db")
    made = MadeFleet(hosts=200, nights=1)
    ids = spoil(records, made)
    job = DescribedJob(NAME, (NAME,), Role.REPLICA, None, NAME, HOSTILE, 1.0, running=NAME, problem=HOSTILE)
    told = HostDescription(NAME, NAME, (1, 1), made.now + timedelta(hours=1), (job,), clock_ahead_seconds=3600.0)
    records.saw(SeenHost(NAME, made.now - timedelta(hours=1), told))
    records.saw(SeenHost(NAME, None, None, HOSTILE))
    records.pause(PauseScope.CLUSTER, NAME, HOSTILE)
    records.at_work(Control(NAME, 1, made.now, made.now))
    clusters = tuple(
        WatchedCluster(f"{NAME}{number}", (NAME,), (NAME, "nightly"), 86_400.0, 1.0)
        for number in range(len(FleetState))
    )
    shape = replace(made.shape, clusters=clusters, hosts=(NAME,), slots={NAME: 2})
    yield FleetSite(records, shape, lambda: made.now), ids
    records.engine.dispose()


@pytest.fixture(scope="module")
def client(hostile_site: tuple[FleetSite, list[str]]) -> Iterator[httpx.Client]:
    with asking(hostile_site[0]) as client:
        yield client


def questions(site: FleetSite, ids: list[str]) -> Iterator[str]:
    """Each route, with each of these backups or a night where it takes one, and hostile words as each parameter."""
    for route in flat(fleet_application(site, token=TOKEN).routes):
        nights = (str(NEWEST), str(TONIGHT), WORDS) if "{night}" in route.path else ("",)
        backups = (*(quote(one, safe="") for one in ids), WORDS) if "{backup_id}" in route.path else ("",)
        paths = [
            route.path.replace("{night}", night).replace("{backup_id}", one) for night in nights for one in backups
        ]
        assert "{" not in paths[0], "a parameter that nobody here fills in"
        yield from paths
        if isinstance(route, APIRoute):
            yield from (f"{paths[0]}?{field.alias}={WORDS}" for field in route.dependant.query_params)
    yield from (f"/{WORDS}", f"/api/{WORDS}", f"/?{WORDS}={WORDS}", f"/history?cluster={quote(NAME + '0')}")


def test_nothing_that_is_answered_acts(client: httpx.Client, hostile_site: tuple[FleetSite, list[str]]) -> None:
    shown = set()
    for question in questions(*hostile_site):
        answer = client.get(question)
        assert answer.status_code < 500, question
        kind = answer.headers.get("content-type", "").partition(";")[0]
        assert [line for line in faults(answer.text) if kind != "text/html" or line.startswith("'")] == [], question
        assert all(value.isprintable() for value in answer.headers.values()), question
        if kind == "text/html":
            page = _Seen()
            page.feed(answer.text)
            assert (page.forbidden, MARKUP in answer.text) == ([], False), question
            assert all(not link or link.startswith(("/", "#", "?", ".")) for link in page.links), question
            shown |= {question} if "{{7*7}}" in answer.text else set()
        elif kind == "application/json":
            assert answer.text.isascii() or question == "/openapi.json", question
            answer.json()
    for path in ("/", "/calendar", "/history", "/hosts", f"/nights/{NEWEST}", f"/nights/{TONIGHT}"):
        assert path in shown, f"{path}: nothing hostile was shown: nothing was tried"
    assert sum(question.startswith("/backups/") for question in shown) >= len(hostile_site[1])


def test_hostile_labels_are_metrics_that_prometheus_reads(client: httpx.Client) -> None:
    labels = [
        value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        for value in sample.labels.values()
    ]
    assert any("{{7*7}}" in value for value in labels)
    assert all(value.isprintable() for value in labels)
