"""The page of metrics and alerts: metrics from a daemon's own answer, alerts from the rules that are shipped."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import yaml

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.fleet.records import Records
from backupd.policy.cluster_status import FleetShape
from backupd.service.fleet.metrics import FleetMetrics
from backupd.service.fleet.site import FleetSite
from backupd.service.machine_view import own_eyes
from backupd.service.metrics import Metrics
from backupd.service.site import Site
from backupd.vocabulary.fleet import Control
from tests.docs.places import ROOT

_HEAD = """# Metrics and alerts

`/metrics` of the daemon, `backupd metrics` without one, and the file of `service.textfile` have the same content. A
job's label is `backup_job`, because Prometheus keeps `job` for itself.
"""
RULES = ROOT / "configs" / "alerts.yml"


FLEET_RULES = ROOT / "configs" / "fleet-alerts.yml"
_FLEET_HEAD = """
## Metrics of a fleet

`/metrics` of `backupd fleet serve`, on the leader and on a standby, and of `backupd fleet pages`. No series has the
name of a host, a night or a run.
"""


def page() -> str:
    """Every family that `/metrics` has, and every alert; then the same of a fleet."""
    return "\n".join((*_lines(), *_fleet_lines())) + "\n"


def families() -> list[Any]:
    """As a scrape gets them, from a machine that has no job yet."""
    with tempfile.TemporaryDirectory() as folder, Catalogue.open(Path(folder) / "catalogue.sqlite") as catalogue:
        site = Site(Configuration(), catalogue)
        seen = own_eyes(site.configuration)
        return list(Metrics(site, live=seen.live, rooms=seen.rooms).collect())


def fleet_families() -> list[Any]:
    """As a scrape gets them, from a fleet that has no host yet."""
    with tempfile.TemporaryDirectory() as folder:
        records = Records.open(f"sqlite:///{folder}/fleet.db")
        records.at_work(Control("control1", 1, datetime.now(UTC), datetime.now(UTC)))
        found = list(FleetMetrics(FleetSite(records, FleetShape((), (), {}, "UTC", time(12)))).collect())
        records.engine.dispose()
        return found


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _table(families())
    yield ""
    yield "## Alerts"
    yield ""
    yield "`configs/alerts.yml` has these rules; each says what is wrong and what to type."
    yield ""
    yield from _alerts(RULES)


def _fleet_lines() -> Iterator[str]:
    yield _FLEET_HEAD
    yield from _table(one for one in fleet_families() if one.name != "backupd_build_info")
    yield ""
    yield "## Alerts of a fleet"
    yield ""
    yield "`configs/fleet-alerts.yml` has these rules."
    yield ""
    yield from _alerts(FLEET_RULES)


def _table(found: Iterable[Any]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in found:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def _alerts(rules: Path) -> Iterator[str]:
    yield "| alert | for | severity | says |"
    yield "|---|---|---|---|"
    for group in yaml.safe_load(rules.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                told = rule.get("annotations", {})
                said = "<br>".join(_plain(str(told.get(key, ""))) for key in ("summary", "description"))
                severity = rule.get("labels", {}).get("severity", "")
                yield f"| `{rule['alert']}` | {rule.get('for', '')} | {severity} | {said} |"


def _plain(said: str) -> str:
    """A template's placeholders as what they stand for, and nothing that a table takes for its own."""
    shown = re.sub(r"\{\{ with [^}]*\}\}(.*?)\{\{ end \}\}", "", " ".join(said.split()))
    shown = re.sub(r"\{\{\s*\$labels\.(\w+)\s*\}\}", lambda found: found[1].upper(), shown)
    shown = re.sub(r"\{\{\s*\$value[^}]*\}\}", "VALUE", shown)
    return shown.replace("|", r"\|").replace("<", r"\<")
