"""The page of metrics and alerts: metrics from a daemon's own answer, alerts from the rules that are shipped."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.service.metrics import Metrics
from backupd.service.outlook import own_eyes
from backupd.service.site import Site
from tests.docs.places import ROOT

_HEAD = """# Metrics and alerts

`/metrics` of the daemon, `backupd metrics` without one, and the file of `service.textfile` have the same content. A
job's label is `backup_job`, because Prometheus keeps `job` for itself.
"""
RULES = ROOT / "configs" / "alerts.yml"


def page() -> str:
    """Every family that `/metrics` has, and every alert."""
    return "\n".join(_lines()) + "\n"


def families() -> list[Any]:
    """As a scrape gets them, from a machine that has no job yet."""
    with tempfile.TemporaryDirectory() as folder, Catalogue.open(Path(folder) / "catalogue.sqlite") as catalogue:
        site = Site(Configuration(), catalogue)
        seen = own_eyes(site.configuration)
        return list(Metrics(site, live=seen.live, rooms=seen.rooms).collect())


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"
    yield ""
    yield "## Alerts"
    yield ""
    yield "`configs/alerts.yml` has these rules; each says what is wrong and what to type."
    yield ""
    yield "| alert | for | severity | says |"
    yield "|---|---|---|---|"
    for group in yaml.safe_load(RULES.read_text())["groups"]:
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
