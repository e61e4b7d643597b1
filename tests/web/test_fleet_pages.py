"""What a fleet's pages show: every cluster, the overdue first; nights, slots, hosts, each backup; and who may look."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import settings
from playwright.sync_api import Browser

from backupd.fleet.records import Records
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.application import fleet_application
from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.fleet import FleetBackup, FleetState, FleetTry
from backupd.vocabulary.records import RunStatus
from tests.fleet.many_nights import NEWEST, TONIGHT, MadeFleet, failed_result
from tests.web.conftest import TOKEN, served
from tests.web.fleet_site import asking, site_of
from tests.web.test_openapi import QUESTIONS, REFUSED
from tests.web.test_pages import seen

PAGES = ("/", "/calendar", f"/nights/{TONIGHT}", f"/nights/{NEWEST}", "/history", "/hosts", "/api")


@pytest.fixture(scope="module")
def made() -> MadeFleet:
    return MadeFleet(hosts=60, nights=40)


@pytest.fixture(scope="module")
def site(made: MadeFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetSite]:
    records = Records.open(f"sqlite:///{tmp_path_factory.mktemp('fleet')}/fleet.db")
    made.fill(records)
    yield site_of(made, records)
    records.engine.dispose()


@pytest.fixture(scope="module")
def browser(site: FleetSite) -> Iterator[httpx.Client]:
    with asking(site) as client:
        yield client


def one_that(site: FleetSite, state: FleetState) -> FleetBackup:
    found: FleetBackup = site.records.history(state=state, limit=1)[0]
    return found


def test_the_overview_begins_with_whoever_is_overdue(browser: httpx.Client, site: FleetSite) -> None:
    page = seen(browser, "/")
    listed = [link for link in page.links if link.startswith("/history?cluster=")]
    order = [one["cluster"] for one in browser.get("/api/fleet").json()["clusters"]]
    assert listed == [f"/history?cluster={name}" for name in order]
    alarmed = [bool(one["alarms"]) for one in browser.get("/api/fleet").json()["clusters"]]
    assert alarmed == sorted(alarmed, reverse=True)
    assert len(order) == len(site.shape.clusters)
    assert "control1, process 4711, running since" in page.words
    assert "the disks are replaced" in page.words


def test_each_mark_of_the_calendar_opens_its_backup(browser: httpx.Client, site: FleetSite) -> None:
    page = seen(browser, "/calendar")
    marks = [link for link in page.links if link.startswith("/backups/")]
    assert len(marks) == 31 * len(site.shape.clusters)
    assert seen(browser, marks[0]).words.count(marks[0].removeprefix("/backups/")) >= 1
    earlier = next(link for link in page.links if "to=" in link)
    assert seen(browser, earlier).words.count("2026-10") >= 1


@pytest.mark.parametrize("to", ["0001-01-01", "9999-12-31", "2026-11-26"])
def test_a_calendar_of_any_year_is_a_page(browser: httpx.Client, to: str) -> None:
    seen(browser, f"/calendar?to={to}")


@pytest.mark.parametrize("path", ["/calendar?to=soon", "/nights/soon", "/nights/2026-02-30", "/nights/20260225"])
def test_what_is_no_night_is_said(browser: httpx.Client, path: str) -> None:
    assert "not a night" in seen(browser, path, status=400).words


def test_a_night_shows_its_slots_and_what_became_no_backup(browser: httpx.Client, site: FleetSite) -> None:
    night = next(
        night
        for night in (NEWEST - timedelta(days=ago) for ago in range(30))
        if any(one.state is FleetState.FAILED for one in site.records.night(night))
    )
    answer = browser.get(f"/nights/{night}").text
    bars = re.findall(r'<a href="/backups/[^"]+"><rect', answer)
    assert len(bars) == sum(len(one.tries) for one in site.records.night(night))
    page = seen(browser, f"/nights/{night}")
    assert "the lock was not granted" in page.words
    assert "4 slots" in page.words


def test_the_night_that_it_is_can_be_found_without_its_date(browser: httpx.Client) -> None:
    assert browser.get("/nights").headers["location"] == f"/nights/{TONIGHT}"


def test_a_backup_shows_its_tries_and_what_was_pulled_of_its_run(browser: httpx.Client, site: FleetSite) -> None:
    good = next(one for one in site.records.night(NEWEST) if one.state is FleetState.DONE)
    words = seen(browser, f"/backups/{good.owed.id}").words
    assert "holding the lock" in words
    assert "backup-stage" in words
    assert f"backupd show {good.tries[-1].run_id}" in words
    failed = one_that(site, FleetState.FAILED)
    site.records.keep_result(failed.owed.cluster, failed.tries[-1].host, failed_result(failed, "no <b>room</b>", "buy"))
    words = seen(browser, f"/backups/{failed.owed.id}").words
    assert "no <b>room</b>" in words
    assert "Hint: buy" in words
    assert "The run's result has not been pulled from the host" in words, "of the first try"


def test_a_backup_that_goes_on_says_how_far_it_is(browser: httpx.Client, site: FleetSite) -> None:
    owed = replace(one_that(site, FleetState.DONE).owed, night=date(2026, 11, 26), cluster="late")
    tried = FleetTry("db1", owed.id, site.now())
    running = FleetBackup(owed, FleetState.RUNNING, (tried,), site.now(), "copy", 7 << 30)
    site.records.keep(running)
    words = seen(browser, f"/backups/{running.owed.id}").words
    assert "copy, 7.0 GiB copied" in words


def test_the_history_is_paged_and_filtered(browser: httpx.Client, site: FleetSite) -> None:
    cluster = site.shape.clusters[2].cluster
    page = seen(browser, f"/history?cluster={cluster}")
    assert len([link for link in page.links if link.startswith("/backups/")]) == 41
    every = seen(browser, "/history")
    older = next(link for link in every.links if "before=" in link)
    assert [link for link in seen(browser, older).links if link in set(every.links) and "backups" in link] == []
    found = [
        link.removeprefix("/backups/")
        for link in seen(browser, "/history?outcome=missed").links
        if link.startswith("/backups/")
    ]
    assert {site.records.backup(one).state for one in found} == {FleetState.MISSED}  # type: ignore[union-attr]
    assert "not a known outcome" in seen(browser, "/history?outcome=good", status=400).words
    assert "No backup nothing" in seen(browser, "/history?before=nothing", status=404).words


def test_hosts_that_are_away_or_whose_clock_is_off_come_first(browser: httpx.Client) -> None:
    hosts = browser.get("/api/hosts").json()["hosts"]
    assert [one["state"] for one in hosts[:3]] == ["away", "away", "answers"]
    assert hosts[0]["problems"] == ["no route to host"]
    assert (hosts[2]["clock_off_seconds"], hosts[2]["problems"]) == (3600, ["its clock is 1h ahead"])
    assert "no route to host" in seen(browser, "/hosts").words


def test_every_page_has_ids_that_are_unique_and_links_that_lead_somewhere(
    browser: httpx.Client, site: FleetSite
) -> None:
    failed = one_that(site, FleetState.FAILED)
    for path in (*PAGES, f"/backups/{failed.owed.id}"):
        page = seen(browser, path)
        assert (page.forbidden, len(page.ids)) == ([], len(set(page.ids))), path
        inside = {link for link in page.links if link.startswith("/")}
        for link in sorted(inside)[:12]:
            assert browser.get(link).status_code in (200, 303), (path, link)


def test_the_style_of_a_calendar_is_served(browser: httpx.Client) -> None:
    answer = browser.get("/static/calendar.css")
    assert (answer.status_code, ".calendar" in answer.text) == (200, True)
    assert browser.get("/static/fleet.css").status_code == 200


def test_nobody_sees_a_page_without_the_token_and_nothing_can_be_changed(site: FleetSite) -> None:
    with served(fleet_application(site, token=TOKEN)) as url, httpx.Client(base_url=url) as stranger:
        assert stranger.get("/healthz").status_code == 200
        for path in (*PAGES, "/metrics", "/api/fleet", "/openapi.json", "/static/fleet.css"):
            answer = stranger.get(path)
            assert answer.status_code == 401, path
            assert "shop-0" not in answer.text
        assert stranger.post("/", auth=("x", TOKEN.encode())).status_code == 405
    with served(fleet_application(site)) as url, httpx.Client(base_url=url) as stranger:
        refused = stranger.get("/")
        assert (refused.status_code, "control.token_file" in refused.text) == (403, True)
        assert stranger.get("/metrics").status_code == 200


def test_an_empty_token_lets_nobody_in(site: FleetSite) -> None:
    with pytest.raises(ValueError, match="empty"):
        fleet_application(site, token="")


def test_what_looks_can_write_nothing(site: FleetSite) -> None:
    looking = Records.look(str(site.records.engine.url))
    tried = FleetTry("db1", "x", site.now(), status=RunStatus.FAILED)
    backup = replace(one_that(site, FleetState.DONE), tries=(tried,))
    with pytest.raises(FleetDatabaseError, match=r"readonly|read-only"):
        looking.keep(backup)
    assert looking.backup(backup.owed.id) != backup


def test_a_fleet_without_records_is_said(tmp_path: Path) -> None:
    with pytest.raises(FleetDatabaseError, match="no records of a fleet yet"):
        Records.look(f"sqlite:///{tmp_path}/new.db")


def test_an_empty_fleet_has_pages_too(tmp_path: Path) -> None:
    records = Records.open(f"sqlite:///{tmp_path}/empty.db")
    with asking(FleetSite(records, MadeFleet(hosts=0, nights=0).shape)) as client:
        for path in ("/", "/calendar", "/history", "/hosts"):
            seen(client, path)
        night = client.get("/nights").headers["location"]
        assert "Nothing is due yet" in seen(client, night).words
        assert "backupd_fleet_night_planned 0.0" in client.get("/metrics").text


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_nothing_that_can_be_asked_is_a_bug(site: FleetSite, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(REFUSED)
    options = ["--no-color", f"--max-examples={QUESTIONS}", "--generation-database=none"]
    options += ["--seed=1"] if settings().derandomize else []
    with served(fleet_application(site, token=TOKEN)) as url:
        header = ["--header", f"Authorization: Bearer {TOKEN}".encode().decode("latin-1")]
        asked = subprocess.run(
            [program, "run", f"{url}/openapi.json", *options, *header],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert asked.returncode == 0, asked.stdout
    assert "Failures:" not in asked.stdout
    assert "Tested: 5" in asked.stdout


def test_a_browser_complains_of_nothing(site: FleetSite, chrome: Browser) -> None:
    said: list[str] = []
    credentials = {"username": "x", "password": TOKEN}
    with served(fleet_application(site, token=TOKEN)) as url:
        context = chrome.new_context(http_credentials=credentials, viewport={"width": 360, "height": 780})  # type: ignore[arg-type]
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        for path in PAGES:
            page.goto(url + path)
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider <= 0, f"{path} is wider than a phone"
        context.close()
    assert said == []
