"""A fleet's pages after years: 500 hosts, 3 years of nights, each page in less than 0.3 s, on both databases."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backupd.fleet.records import Records
from tests.fleet.many_nights import NEWEST, TONIGHT, MadeFleet
from tests.fleet.postgres import postgres
from tests.web.fleet_site import asking, site_of

pytestmark = pytest.mark.matrix

MOST_SECONDS = 0.3
ROUNDS, MOST_ROUNDS = 5, 40
PAGES = (
    "/",
    "/?every=1",
    "/calendar",
    "/calendar?to=2025-03-01",
    f"/nights/{TONIGHT}",
    f"/nights/{NEWEST}",
    "/nights/2024-06-01",
    "/history",
    "/history?cluster=shop-100",
    "/history?host=db100-a",
    "/history?outcome=failed",
    "/history?before=20250601-shop-100-nightly",
    "/hosts",
    "/backups/20250601-shop-100-nightly",
    "/api/fleet",
    "/api/hosts",
    f"/api/nights/{NEWEST}",
    "/api/backups?limit=200",
    "/metrics",
    "/healthz",
)


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    made = MadeFleet()
    if request.param == "sqlite":
        yield from _client(made, f"sqlite:///{_folder(tmp_path_factory)}/fleet.db")
    else:
        with postgres() as server:
            yield from _client(made, server.url)


def _client(made: MadeFleet, url: str) -> Iterator[httpx.Client]:
    records = Records.open(url)
    backups = made.fill(records)
    assert backups > 180_000, f"{backups} backups are not three years of a fleet of 500 hosts"
    records.engine.dispose()
    looking = Records.look(url, connections=8)
    with asking(site_of(made, looking)) as client:
        yield client
    looking.engine.dispose()


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("years")


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_every_page_of_a_fleet_of_years_takes_less_than_0_3_s(client: httpx.Client) -> None:
    slow = {}
    for path in PAGES:
        fastest = float("inf")
        for turn in range(MOST_ROUNDS):  # what else the machine does only adds: a busy one is asked more often
            began = time.perf_counter()
            answer = client.get(path)
            fastest = min(fastest, time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
            if turn >= ROUNDS and fastest < MOST_SECONDS:
                break
        print(f"{path}: {fastest * 1000:.1f} ms, {len(answer.content) / 1024:.0f} KiB")  # noqa: T201
        if fastest >= MOST_SECONDS:
            slow[path] = fastest
    assert slow == {}
