"""Whatever a stranger calls things: every page, document and metric of the web shows it, and none lets it act.

The routes are those of the application: one that is new is asked for as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Mount, Route

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig
from backupd.service.machine_view import own_eyes
from backupd.service.site import Site
from backupd.service.web.application import Application, application
from backupd.vocabulary.binlogs import ArchiveGap
from backupd.vocabulary.records import RunKind
from tests.fakes.target import MACHINE
from tests.hostile_words import ARGUMENT, HOSTILE, MARKUP, faults, make_hostile_catalogue
from tests.web.conftest import TOKEN, configured, served
from tests.web.test_pages import _Seen

JOB = "nightly"  # whose binlog is archived
WORDS = quote(ARGUMENT.encode("utf-8", "surrogateescape"), safe="")


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, list[str]]]:
    """With the ids of the newest run of each kind, of one that failed and of one with all that a run can have."""
    folder = tmp_path_factory.mktemp("hostile")
    ids = make_hostile_catalogue(folder / "catalogue.sqlite", machine=MACHINE)
    with Catalogue.open(folder / "catalogue.sqlite") as catalogue:
        found = [catalogue.run(run_id) for run_id in ids]
        kinds = {run.kind: run.run_id for run in reversed(found)}
        failed = next(run.run_id for run in found if run.error is not None)
        rich = next(run.run_id for run in found if run.drills and run.attention and run.backups)
        (folder / "log").mkdir()
        for run_id in ids[:50]:
            (folder / "log" / f"{run_id}.log").write_text(f"INFO it said {HOSTILE}\n")
        catalogue.archive_gap(JOB, ArchiveGap(HOSTILE, HOSTILE, datetime(2026, 11, 20, tzinfo=UTC), None))
        catalogue.archive_contact(JOB, at=datetime(2026, 11, 20, 12, 59, tzinfo=UTC), refused=HOSTILE)
        configuration = configured(folder)
        archived = replace(configuration.jobs[JOB], binlog=BinlogConfig())
        configuration = replace(configuration, jobs={**configuration.jobs, JOB: archived})
        site = Site(configuration, catalogue, lambda: datetime(2026, 11, 20, 13, tzinfo=UTC))
        yield site, [*(kinds[kind] for kind in RunKind), failed, rich]


@pytest.fixture(scope="module")
def app(hostile_site: tuple[Site, list[str]]) -> Application:
    site, _ = hostile_site
    return application(site, own_eyes(site.configuration), token=TOKEN)


@pytest.fixture(scope="module")
def client(app: Application) -> Iterator[httpx.Client]:
    with served(app) as url, httpx.Client(base_url=url, timeout=20, auth=("anybody", TOKEN.encode())) as asking:
        yield asking


def questions(app: Application, ids: list[str]) -> list[str]:
    """Each route, with each of these runs or a job where it takes one, and with hostile words as each parameter."""
    asked: list[str] = []
    for route in flat(app.routes):
        named = route.path.replace("{run_id}", "").replace("{job}", "")
        assert "{" not in named, "a parameter that nobody here fills in"
        paths = [
            route.path.replace("{run_id}", run_id).replace("{job}", job)
            for run_id in [*ids, WORDS]
            for job in (JOB, WORDS)
        ]
        asked += dict.fromkeys(paths)
        parts = (route.dependant, *route.dependant.dependencies) if isinstance(route, APIRoute) else ()
        names = [field.alias for part in parts for field in part.query_params]
        asked += [f"{paths[0]}?{name}={WORDS}" for name in names]
    return [*asked, f"/{WORDS}", f"/api/{WORDS}", f"/?{WORDS}={WORDS}"]


def flat(routes: Iterable[object]) -> Iterator[Route]:
    for route in routes:
        if isinstance(route, Route):
            yield route
        elif not isinstance(route, Mount):  # of our own static files
            yield from flat(route.original_router.routes)  # type: ignore[attr-defined]  # as FastAPI keeps it


def test_the_routes_are_found(app: Application) -> None:
    found = {route.path for route in flat(app.routes)}
    assert {"/", "/history", "/runs/{run_id}", "/api/runs/{run_id}", "/api/runs/{run_id}/live", "/metrics"} <= found


def test_nothing_that_is_answered_acts(
    client: httpx.Client, app: Application, hostile_site: tuple[Site, list[str]]
) -> None:
    shown = set()
    for question in questions(app, hostile_site[1]):
        answer = client.get(question)
        assert answer.status_code < 500, question
        kind = answer.headers["content-type"].partition(";")[0]
        assert [line for line in faults(answer.text) if kind != "text/html" or line.startswith("'")] == [], question
        assert all(value.isprintable() for value in answer.headers.values()), question
        if kind == "text/html":
            page = _Seen()
            page.feed(answer.text)
            assert (page.forbidden, MARKUP in answer.text) == ([], False), question
            assert all(not link or link.startswith(("/", "#", "?", ".")) for link in page.links), question
            shown |= {question} if "{{7*7}}" in answer.text else set()
        elif kind == "application/json":
            assert answer.text.isascii() or question == "/openapi.json", question  # words of ours
            answer.json()
    for path in ("/", "/history", "/schedule"):
        assert path in shown, "nothing hostile was shown: nothing was tried"
    assert sum(question.startswith("/runs/") for question in shown) >= len({*hostile_site[1]}) - 1


def test_hostile_labels_are_metrics_that_prometheus_reads(client: httpx.Client) -> None:
    text = client.get("/metrics").text
    labels = [
        value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for value in sample.labels.values()
    ]
    assert any("{{7*7}}" in value for value in labels)
    assert all(value.isprintable() for value in labels)
