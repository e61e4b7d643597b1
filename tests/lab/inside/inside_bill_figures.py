"""Whether a run's bill is right: beside what the load generator counted itself, under a closed load, on slow disks."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from backupd.lab.load import parse_heartbeats, parse_load, rate_between
from tests.lab.inside.host import SITE, Host, until

UNDISTURBED_SECONDS = 15.0


def generated(begin: float, end: float) -> float:
    """Transactions a second between two moments (epoch), sysbench's and the heartbeat's."""
    rate = rate_between(parse_load(SITE.load_log.read_text()), begin, end)
    assert rate is not None
    beats = [beat.at + beat.milliseconds / 1000 for beat in parse_heartbeats(SITE.heartbeat_log.read_text())]
    return rate + sum(begin < at <= end for at in beats) / (end - begin)


def undisturbed() -> float:
    """The generator's rate over some seconds in which nothing of ours runs."""
    began = time.time()
    until(lambda: parse_load(SITE.load_log.read_text())[-1].at > began + UNDISTURBED_SECONDS)
    return generated(began, began + UNDISTURBED_SECONDS)


def test_what_the_server_s_own_counters_say_was_lost_is_what_the_load_lost(tmp_path: Path) -> None:
    before = undisturbed()
    document: dict[str, Any] = Host(tmp_path).backupd("run", "nightly", "--json").document
    bill, losses, phases = document["bill"], document["losses"], document["phases"]
    locked = datetime.fromisoformat(document["started_at"]).timestamp() + phases["preflight"] + phases["baseline"]
    meanwhile = generated(locked, locked + bill["seconds"])
    counted = (before - meanwhile) * bill["seconds"]
    told = losses["expected"] - losses["done"]
    figures = (
        f"{told:.0f} told, {counted:.0f} counted; {losses}; {before:.1f} before, {meanwhile:.1f} meanwhile; {bill}"
    )
    assert counted > 2 * losses["noise"], f"too little was lost to compare: {figures}"
    assert abs(told - counted) <= 0.2 * counted + losses["noise"], figures
    lock = document["lock"]
    parts = sum(lock[f"{part}_seconds"] for part in ("position", "flush", "proof", "unlock")) + phases["snapshot"]
    assert abs(parts - lock["hold_seconds"]) < 0.05, lock
    assert lock["stalled"] > 0, lock
