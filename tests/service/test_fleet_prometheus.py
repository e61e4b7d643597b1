"""What Prometheus makes of a fleet's pages: every rule and every query of the dashboard, asked of a real one."""

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

import pytest

from backupd.fleet.records import Records
from backupd.policy.night_times import night_of
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.application import fleet_application
from backupd.vocabulary.fleet import Control
from tests.fleet.many_nights import MadeFleet
from tests.service.conftest import ROOT, TOKEN
from tests.service.prometheus import Prometheus, eventually, prometheus
from tests.service.test_prometheus import page
from tests.web.conftest import served

DASHBOARD = json.loads((ROOT / "configs" / "grafana-fleet.json").read_text())
RULES = ROOT / "configs" / "fleet-alerts.yml"
QUERIES = {
    f"{panel['id']} {panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the pages of a fleet of today are: HOST:PORT."""
    now = datetime.now(UTC)
    made = MadeFleet(hosts=60, nights=5, newest=night_of(now, begins=time(12), zone="UTC") - timedelta(days=1), now=now)
    records = Records.open(f"sqlite:///{tmp_path_factory.mktemp('fleet')}/fleet.db")
    made.fill(records)
    records.at_work(Control("control1", 1, now, now))
    # Its clock stands: a night that ends while Prometheus looks would leave one that nobody has planned.
    site = FleetSite(records, made.shape, lambda: now, own_control=("control1", 1))
    with served(fleet_application(site, token=TOKEN)) as url:
        yield url.removeprefix("http://")
    records.engine.dispose()


@pytest.fixture(scope="module")
def scraped(pages: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped them twice, as the documentation says to."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "token").write_text(TOKEN)
    scraping = {
        "job_name": "backupd-fleet",
        "authorization": {"credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [pages]}],
    }
    with prometheus(folder, scraping=scraping, rules=RULES) as found:
        seen = "count_over_time(backupd_fleet_database_up[1m])"
        eventually(lambda: found.value(seen), accept=lambda count: count >= 2)
        yield found


def shown(query: str) -> str:
    """As Grafana asks it for everything."""
    asked = re.sub(r"\$cluster\b", ".*", query)
    assert "$" not in asked
    return asked


def test_promtool_finds_no_fault_with_the_metrics(pages: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page(pages, "/metrics", TOKEN),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_control_host_that_leads_says_so(scraped: Prometheus) -> None:
    for told in ("up", "backupd_fleet_leader", "backupd_fleet_night_planned"):
        scraped.becomes(told, 1)
    assert scraped.query('{exported_job=~".+"}') == []


def test_prometheus_evaluates_every_rule(scraped: Prometheus) -> None:
    def rules() -> dict[str, dict[str, object]]:
        (group,) = scraped.get("rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}

    found = eventually(rules, accept=lambda rules: all(rule["health"] != "unknown" for rule in rules.values()))
    assert len(found) == RULES.read_text().count("- alert: ")
    assert {name: rule.get("lastError") for name, rule in found.items() if rule["health"] != "ok"} == {}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_every_query_of_the_dashboard_has_an_answer(scraped: Prometheus, query: str) -> None:
    found = eventually(lambda: scraped.query(shown(query)))
    assert all(series["value"][1] != "NaN" for series in found)


def test_the_dashboard_asks_for_every_metric_and_no_other(pages: str) -> None:
    told = set(re.findall(r"^# TYPE (\w+)", page(pages, "/metrics", TOKEN).decode(), re.MULTILINE))
    asked = set(re.findall(r"\bbackupd_fleet_\w+", json.dumps(DASHBOARD)))
    assert asked <= told
    assert told - asked <= {"backupd_build_info"}


def test_the_rules_ask_for_metrics_that_there_are(pages: str) -> None:
    told = set(re.findall(r"^# TYPE (\w+)", page(pages, "/metrics", TOKEN).decode(), re.MULTILINE))
    assert set(re.findall(r"\bbackupd_fleet_\w+", RULES.read_text())) <= told


def test_every_panel_has_a_place_of_its_own_and_says_what_it_shows() -> None:
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert [panel["title"] for panel in DASHBOARD["panels"] if not panel["description"]] == []
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
