"""The alert rules of a fleet, tried by promtool: each fires where it should, in words for people, and nowhere else."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from backupd.cli.main import app
from tests.service.test_alerts import promtool

RULES = Path(__file__).parents[2] / "configs" / "fleet-alerts.yml"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
LATER = {"serve", "run"}  # commands that the same group has


def rules() -> dict[str, dict[str, Any]]:
    """Each alert by its name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@dataclass(frozen=True)
class Case:
    """Series with a sample every 5 minutes; time begins at 0. One instance leads, the other is a standby."""

    alert: str
    series: Mapping[str, str]
    fires: str  # at that time
    quiet: str  # before, or when it is over
    summary: str
    labels: Mapping[str, str]


def of(name: str, **labels: str) -> str:
    """A series as both instances tell it would be two; `instance` names one."""
    return f"{name}{{{', '.join(f'{key}={value!r}' for key, value in labels.items())}}}".replace("'", '"')


def both(name: str, values: str, **labels: str) -> dict[str, str]:
    """What the leader tells and the standby as well."""
    return {of(name, instance=instance, **labels): values for instance in ("leader", "standby")}


def alarm(alert: str, kind: str, fires: str, quiet: str, summary: str, *, kinds: bool = False) -> Case:
    """An alert that is the pages' own judgement of one kind: of cluster `bad`, and not of `good`."""
    lasts = "0x1 1x400"
    series = both("backupd_fleet_alarms", lasts, cluster="bad", kind=kind)
    series |= both("backupd_fleet_alarms", "0x400", cluster="good", kind=kind)
    series |= both("backupd_fleet_alarms", "1x400", cluster="good", kind="another")
    labels = {"cluster": "bad", **({"kind": kind} if kinds else {})}
    return Case(alert, series, fires, quiet, f"cluster bad: {summary}", labels)


CASES = (
    Case(
        "BackupdFleetBackupTooOld",
        {
            **both("backupd_fleet_last_success_timestamp_seconds", "0x500", cluster="bad"),
            **both("backupd_fleet_overdue_timestamp_seconds", "129600x500", cluster="bad"),
            **both("backupd_fleet_last_success_timestamp_seconds", "0x288 86400x212", cluster="good"),
            **both("backupd_fleet_overdue_timestamp_seconds", "129600x288 216000x212", cluster="good"),
        },
        fires="37h",
        quiet="36h",
        summary="cluster bad: the last good backup is 1d 13h 0m 0s old",
        labels={"cluster": "bad"},
    ),
    alarm("BackupdFleetNoBackupYet", "never", "25h", "23h", "the fleet has made no good backup"),
    alarm("BackupdFleetBackupFailed", "failed", "15m", "5m", "the backup of the last night: failed", kinds=True),
    alarm("BackupdFleetBackupFailed", "missed", "15m", "5m", "the backup of the last night: missed", kinds=True),
    alarm("BackupdFleetProofOverdue", "proof-overdue", "3h", "1h", "no drill has proven a backup for too long"),
    Case(
        "BackupdFleetNightNotPlanned",
        both("backupd_fleet_night_planned", "0x40"),
        fires="2h",
        quiet="30m",
        summary="tonight is not planned: nothing of the fleet is backed up",
        labels={},
    ),
    Case(
        "BackupdFleetNoControlHost",
        both("backupd_fleet_control_seen_timestamp_seconds", "0x40"),
        fires="1h",
        quiet="5m",
        summary="no control host has been running for 1h 0m 0s",
        labels={},
    ),
    Case(
        "BackupdFleetDatabaseAway",
        {
            of("backupd_fleet_database_up", instance="leader"): "0x6",
            of("backupd_fleet_database_up", instance="standby"): "1x6",
        },
        fires="15m",
        quiet="5m",
        summary="control host leader cannot reach the fleet's database",
        labels={"instance": "leader"},
    ),
    Case(
        "BackupdFleetHostsAway",
        both("backupd_fleet_hosts", "3x30", state="away") | both("backupd_fleet_hosts", "9x30", state="never"),
        fires="2h",
        quiet="30m",
        summary="3 of the fleet's hosts do not answer",
        labels={},
    ),
    Case(
        "BackupdFleetClockOff",
        both("backupd_fleet_hosts_clock_off", "2x30"),
        fires="2h",
        quiet="30m",
        summary="2 of the fleet's hosts have a clock that is off by more than a minute",
        labels={},
    ),
    Case(
        "BackupdFleetSlotsExceeded",
        {
            **both("backupd_fleet_slots_used", "5x30", target="nas1"),
            **both("backupd_fleet_slots_limit", "4x30", target="nas1"),
            **both("backupd_fleet_slots_used", "4x30", target="nas2"),
            **both("backupd_fleet_slots_limit", "4x30", target="nas2"),
        },
        fires="30m",
        quiet="10m",
        summary="target nas1: 5 backups at a time, more than it has slots",
        labels={"target": "nas1"},
    ),
    Case(
        "BackupdFleetPaused",
        both("backupd_fleet_pauses", "1x1000"),
        fires="73h",
        quiet="71h",
        summary="something of the fleet has been paused for three days (pauses: 1)",
        labels={},
    ),
    Case(
        "BackupdFleetAbsent",
        {},
        fires="20m",
        quiet="10m",
        summary="no control host of the fleet responds",
        labels={},
    ),
)


def unit_test(case: Case) -> dict[str, Any]:
    """As promtool wants it."""
    rule = rules()[case.alert]
    said = _LABEL.sub(lambda found: case.labels[found[1]], rule["annotations"]["description"])
    alert = {
        "exp_labels": {**case.labels, "severity": rule["labels"]["severity"]},
        "exp_annotations": {"summary": case.summary, "description": said},
    }
    return {
        "interval": "5m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.quiet, "alertname": case.alert},
            {"eval_time": case.fires, "alertname": case.alert, "exp_alerts": [alert]},
        ],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.labels.get('kind', '')}")
def test_an_alert_fires_once_where_it_should_and_nowhere_else(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": [unit_test(case)]})
    )
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_no_fault_with_the_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    assert {case.alert for case in CASES} == set(rules())


def test_every_command_that_an_alert_names_is_one() -> None:
    tree: Any = get_command(app).commands["fleet"]  # type: ignore[attr-defined]
    named = re.findall(r"`backupd\s+fleet\s+(\w+)", RULES.read_text())
    assert named
    assert set(named) <= {*tree.commands, *LATER}
