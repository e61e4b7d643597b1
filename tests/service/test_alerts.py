"""The alert rules in configs/, tried by promtool: each fires where it should, in words for people, and nowhere else."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from backupd.cli.main import app

RULES = Path(__file__).parents[2] / "configs" / "alerts.yml"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def rules() -> dict[str, dict[str, Any]]:
    """Each alert by its name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@dataclass(frozen=True)
class Case:
    """Series with a sample every 5 minutes; time begins at 0. `bad` is where it fires: on no other machine."""

    alert: str
    series: Mapping[str, str]
    fires: str  # at that time
    quiet: str  # before, or when it is over
    summary: str
    labels: Mapping[str, str]

    @property
    def description(self) -> str:
        text = rules()[self.alert]["annotations"]["description"]
        return _LABEL.sub(lambda found: self.labels[found[1]], text)


BAD = {"instance": "bad", "backup_job": "nightly"}
VAULT = {"instance": "bad", "target": "vault"}
OF_BAD = '{instance="bad", backup_job="nightly"}'
OF_GOOD = '{instance="good", backup_job="nightly"}'


def alarm(alert: str, kind: str, summary: str) -> Case:
    """An alert that is the daemon's own judgement of one kind."""

    def of(machine: str, which: str) -> str:
        return f'backupd_alarms{{instance="{machine}", backup_job="nightly", kind="{which}"}}'

    lasts, fires, quiet = (3, "10m", "20m") if kind != "drill-overdue" else (30, "130m", "110m")
    series = {of("bad", kind): f"1x{lasts} 0x3", of("good", kind): f"0x{lasts + 3}", of("good", "overdue"): "1x6"}
    return Case(alert, series, fires, quiet, f"nightly on bad: {summary}", {**BAD, "kind": kind})


CASES = (
    Case(
        "BackupdBackupTooOld",
        {
            f"backupd_last_success_timestamp_seconds{OF_BAD}": "0x500",
            f"backupd_overdue_timestamp_seconds{OF_BAD}": "129600x500",
            f"backupd_last_success_timestamp_seconds{OF_GOOD}": "0x288 86400x212",
            f"backupd_overdue_timestamp_seconds{OF_GOOD}": "129600x288 216000x212",
        },
        fires="37h",
        quiet="36h",
        summary="nightly on bad: the last good backup is 1d 13h 0m 0s old",
        labels=BAD,
    ),
    Case(
        "BackupdNoBackupYet",
        {
            f"backupd_job_interval_seconds{OF_BAD}": "86400x500",
            f"backupd_job_interval_seconds{OF_GOOD}": "86400x500",
            f"backupd_last_success_timestamp_seconds{OF_GOOD}": "_x240 72000x260",
        },
        fires="25h",
        quiet="23h",
        summary="nightly on bad: there is no good backup",
        labels=BAD,
    ),
    alarm("BackupdRunFailed", "failed", "the last run or drill failed"),
    alarm("BackupdRunDied", "died", "a run's process has died, and its snapshot may still exist"),
    alarm("BackupdBackupBroken", "broken", "stored copies that cannot be restored: 1"),
    alarm("BackupdRunMissed", "missed", "a scheduled job was missed"),
    alarm("BackupdDrillOverdue", "drill-overdue", "no drill has proven a backup for too long"),
    alarm("BackupdBinlogGap", "binlog-gap", "the binlog archive has a gap"),
    alarm("BackupdBinlogBehind", "binlog-behind", "the binlog archive is behind"),
    alarm("BackupdBinlogSpoolFills", "binlog-spool", "the binlog spool fills"),
    alarm("BackupdAttention", "attention", "the last backup is good, but needs attention"),
    Case(
        "BackupdLockHeldLong",
        {
            f"backupd_lock_hold_seconds{OF_BAD}": "6x3 0.05x3",
            f"backupd_lock_hold_budget_seconds{OF_BAD}": "10x6",
            f"backupd_lock_hold_seconds{OF_GOOD}": "6x6",
            f"backupd_lock_hold_budget_seconds{OF_GOOD}": "30x6",
        },
        fires="10m",
        quiet="20m",
        summary="nightly on bad: the server was locked for 6s",
        labels=BAD,
    ),
    Case(
        "BackupdSnapshotNearlyFull",
        {
            f"backupd_snapshot_cow_peak_ratio{OF_BAD}": "0.85x3 0.2x3",
            f"backupd_snapshot_cow_peak_ratio{OF_GOOD}": "0.8x6",
        },
        fires="10m",
        quiet="20m",
        summary="nightly on bad: the last snapshot was 85% full",
        labels=BAD,
    ),
    Case(
        "BackupdTargetShortOfRoom",
        {
            'backupd_target_free_bytes{instance="bad", target="vault"}': f"{5 << 30}x10",
            'backupd_stored_bytes{instance="bad", target="vault", backup_job="nightly"}': f"{2 << 30}x10",
            'backupd_stored_bytes{instance="bad", target="vault", backup_job="weekly"}': f"{1 << 30}x10",
            'backupd_target_free_bytes{instance="good", target="vault"}': f"{5 << 30}x10",
            'backupd_stored_bytes{instance="good", target="vault", backup_job="nightly"}': f"{2 << 30}x10",
        },
        fires="20m",
        quiet="10m",
        summary="target vault of bad has 5GiB left",
        labels=VAULT,
    ),
    Case(
        "BackupdTargetFills",
        {
            'backupd_target_alarms{instance="bad", target="vault", kind="storage-fills"}': "1x10",
            'backupd_target_alarms{instance="good", target="vault", kind="storage-fills"}': "0x10",
            'backupd_target_alarms{instance="good", target="vault", kind="storage-unreachable"}': "1x10",
        },
        fires="20m",
        quiet="10m",
        summary="target vault of bad will soon be full",
        labels={**VAULT, "kind": "storage-fills"},
    ),
    Case(
        "BackupdTargetNotSeen",
        {
            'backupd_target_alarms{instance="bad", target="vault", kind="storage-unreachable"}': "1x10",
            'backupd_target_alarms{instance="good", target="vault", kind="storage-unreachable"}': "1x2 0x8",
        },
        fires="20m",
        quiet="10m",
        summary="target vault of bad is unavailable",
        labels={**VAULT, "kind": "storage-unreachable"},
    ),
    Case(
        "BackupdRunTooLong",
        {
            f"backupd_running_since_timestamp_seconds{OF_BAD}": "0x60",
            f"backupd_last_duration_seconds{OF_BAD}": "3600x60",
            f"backupd_job_interval_seconds{OF_BAD}": "86400x60",
            f"backupd_running_since_timestamp_seconds{OF_GOOD}": "0x11",
            f"backupd_last_duration_seconds{OF_GOOD}": "60x60",
            f"backupd_job_interval_seconds{OF_GOOD}": "86400x60",
        },
        fires="4h",
        quiet="3h",
        summary="nightly on bad: a run has been running for 4h 0m 0s",
        labels=BAD,
    ),
    Case(  # nobody knows how long a run took whose process died: its phases tell
        "BackupdRunTooLong",
        {
            f"backupd_running_since_timestamp_seconds{OF_BAD}": "0x60",
            'backupd_phase_seconds{instance="bad", backup_job="nightly", phase="copy"}': "3000x60",
            'backupd_phase_seconds{instance="bad", backup_job="nightly", phase="settle"}': "600x60",
            f"backupd_job_interval_seconds{OF_BAD}": "86400x60",
        },
        fires="4h",
        quiet="3h",
        summary="nightly on bad: a run has been running for 4h 0m 0s",
        labels=BAD,
    ),
    Case(  # the first run of a job has nothing to be compared with but the next
        "BackupdRunTooLong",
        {
            f"backupd_running_since_timestamp_seconds{OF_BAD}": "0x60",
            f"backupd_job_interval_seconds{OF_BAD}": "7200x60",
        },
        fires="3h",
        quiet="2h",
        summary="nightly on bad: a run has been running for 3h 0m 0s",
        labels=BAD,
    ),
    Case(  # a newer version is the same daemon
        "BackupdAbsent",
        {
            'backupd_build_info{instance="bad", version="1"}': "1x2 stale",
            'backupd_build_info{instance="good", version="1"}': "1x2 stale",
            'backupd_build_info{instance="good", version="2"}': "_x2 1x20",
        },
        fires="1h",
        quiet="10m",
        summary="backupd on bad does not respond",
        labels={"instance": "bad"},
    ),
    Case(  # days later, as long as Prometheus is to ask it; what is down and never was backupd is none of ours
        "BackupdAbsent",
        {
            'backupd_build_info{instance="bad", job="backupd-bad", version="1"}': "1x2 stale",
            'backupd_build_info{instance="good", job="databases", version="1"}': "1x750",
            'backupd_build_info{instance="text", job="node", version="1"}': "1x750",
            'up{instance="bad", job="backupd-bad"}': "1x2 0x750",
            'up{instance="good", job="databases"}': "1x750",
            'up{instance="mysqld-exporter", job="databases"}': "1x2 0x750",
            'up{instance="text", job="node"}': "1x750",
            'up{instance="web", job="node"}': "0x750",
            'up{instance="other", job="other"}': "0x750",
        },
        fires="60h",
        quiet="10m",
        summary="backupd on bad does not respond",
        labels={"instance": "bad", "job": "backupd-bad"},
    ),
    Case(  # and no longer
        "BackupdAbsent",
        {
            'backupd_build_info{instance="bad", job="backupd", version="1"}': "1x2 stale",
            'backupd_build_info{instance="good", job="backupd", version="1"}': "1x750",
            'up{instance="bad", job="backupd"}': "1x2 0x670 stale",
            'up{instance="good", job="backupd"}': "1x750",
        },
        fires="55h",
        quiet="58h",
        summary="backupd on bad does not respond",
        labels={"instance": "bad", "job": "backupd"},
    ),
    Case(  # one that was taken from a machine is reported for two days, and what is down there later is none of ours
        "BackupdAbsent",
        {
            'backupd_build_info{instance="bad", job="node", version="1"}': "1x2 stale",
            'backupd_build_info{instance="good", job="node", version="1"}': "1x950",
            'up{instance="bad", job="node"}': "1x880 0x70",
            'up{instance="good", job="node"}': "1x950",
        },
        fires="47h",
        quiet="75h",
        summary="backupd on bad does not respond",
        labels={"instance": "bad", "job": "node"},
    ),
    Case(  # where there never was one
        "BackupdAbsent",
        {},
        fires="1h",
        quiet="5m",
        summary="backupd does not respond",
        labels={},
    ),
    Case(
        "BackupdCatalogueUnreadable",
        {'backupd_catalogue_up{instance="bad"}': "0x6", 'backupd_catalogue_up{instance="good"}': "1x6"},
        fires="10m",
        quiet="0m",
        summary="backupd on bad cannot read its catalogue",
        labels={"instance": "bad"},
    ),
)


def unit_test(case: Case) -> dict[str, Any]:
    """As promtool wants it."""
    alert = {
        "exp_labels": {**case.labels, "severity": rules()[case.alert]["labels"]["severity"]},
        "exp_annotations": {"summary": case.summary, "description": case.description},
    }
    return {
        "interval": "5m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.quiet, "alertname": case.alert},
            {"eval_time": case.fires, "alertname": case.alert, "exp_alerts": [alert]},
        ],
    }


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_where_it_should_and_nowhere_else(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [unit_test(case)]})
    )
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_no_fault_with_the_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    assert {case.alert for case in CASES} == set(rules())


def test_every_command_that_an_alert_names_is_one() -> None:
    tree: Any = get_command(app)
    named = re.findall(r"`backupd\s+(\w+)", RULES.read_text())
    assert named
    assert set(named) <= {*tree.commands, "schedule", "serve"}
