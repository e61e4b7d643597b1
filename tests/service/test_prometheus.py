"""What Prometheus makes of a daemon: every rule and every query of the dashboard, asked of a real one."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.store import Catalogue
from tests.service.conftest import ROOT, TOKEN, fail_run
from tests.service.prometheus import Prometheus, eventually

DASHBOARD = json.loads((ROOT / "configs" / "grafana-dashboard.json").read_text())
QUERIES = {
    f"{panel['id']} {panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


def page(address: str, path: str, token: str) -> bytes:
    """An answer of the daemon."""
    request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return bytes(answer.read())


def shown(query: str) -> str:
    """As Grafana asks it for everything."""
    asked = re.sub(r"\$(instance|backup_job)\b", ".*", query)
    assert "$" not in asked
    return asked


# --- the page --------------------------------------------------------------------------------------------------------


def test_nobody_reads_the_metrics_without_the_token(daemon: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page(daemon, "/metrics", TOKEN + "x")


def test_promtool_finds_no_fault_with_the_metrics(daemon: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page(daemon, "/metrics", TOKEN),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


# --- Prometheus ------------------------------------------------------------------------------------------------------


def test_the_daemon_is_up_for_prometheus_and_its_labels_stay_what_they_are(scraped: Prometheus) -> None:
    scraped.becomes("up", 1)
    scraped.becomes('backupd_running{job="backupd",backup_job="nightly"}', 1)
    assert scraped.query('{exported_job=~".+"}') == []


def test_prometheus_evaluates_every_rule(scraped: Prometheus) -> None:
    def rules() -> dict[str, dict[str, Any]]:
        (group,) = scraped.get("rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}

    def evaluated(found: dict[str, dict[str, Any]]) -> bool:
        return all(rule["health"] != "unknown" for rule in found.values())

    found = eventually(rules, accept=evaluated)
    assert len(found) == (ROOT / "configs" / "alerts.yml").read_text().count("- alert: ")
    assert {name: rule.get("lastError") for name, rule in found.items() if rule["health"] != "ok"} == {}


def test_an_alert_reaches_prometheus_for_what_is_wrong_with_the_machine(scraped: Prometheus) -> None:
    """A job has never run, and a target is not there."""

    def pending() -> set[tuple[str, str]]:
        alerts = [alert["labels"] for alert in scraped.get("alerts")["alerts"]]
        return {(labels["alertname"], labels.get("backup_job") or labels.get("target") or "") for labels in alerts}

    expected = {("BackupdNoBackupYet", "weekly"), ("BackupdTargetNotSeen", "offsite")}
    assert expected <= eventually(pending, accept=lambda found: expected <= found)


# --- Grafana ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_every_query_of_the_dashboard_has_an_answer(scraped: Prometheus, query: str) -> None:
    found = eventually(lambda: scraped.query(shown(query)))
    assert all(series["value"][1] != "NaN" for series in found)


def test_a_run_that_ends_is_marked_in_every_panel_and_one_that_goes_on_as_well(
    scraped: Prometheus, folder: Path
) -> None:
    with Catalogue.open(folder / "catalogue.sqlite") as catalogue:
        fail_run(catalogue, "lost-again")
    jobs = {}
    for mark in DASHBOARD["annotations"]["list"]:
        found = eventually(partial(scraped.query, shown(mark["expr"])))
        jobs[mark["name"]] = {series["metric"]["backup_job"] for series in found}
        assert re.findall(r"\{\{(\w+)\}\}", mark["textFormat"])[:2] == ["backup_job", "instance"]
    assert jobs == {"Runs": {"shop"}, "Failed runs": {"shop"}, "Running": {"nightly"}}


def test_the_dashboard_lets_one_choose_among_what_is_there(scraped: Prometheus) -> None:
    chosen = {}
    for name in ("instance", "backup_job"):
        wanted = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["definition"])
        assert wanted is not None
        assert wanted[2] == name
        chosen[name] = scraped.get(f"label/{name}/values", **{"match[]": shown(wanted[1])})
    assert chosen["backup_job"] == ["nightly", "shop", "weekly"]
    assert len(chosen["instance"]) == 1


def test_the_dashboard_asks_for_every_metric_that_is_not_only_for_the_rules(daemon: str) -> None:
    told = set(re.findall(r"^# TYPE (\w+)", page(daemon, "/metrics", TOKEN).decode(), re.MULTILINE))
    asked = set(re.findall(r"\bbackupd_\w+", json.dumps(DASHBOARD)))
    assert asked <= told
    assert told - asked <= set(re.findall(r"\bbackupd_\w+", (ROOT / "configs" / "alerts.yml").read_text())) | {
        "backupd_running",
    }


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
