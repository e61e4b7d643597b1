"""A control host of a simulated night: `WORLD URL PACE`, where PACE is `quick`, `steady`, or that of a `real` night.

All of it is backupd's but for the plan, which is the world's, and the agents, which are processes of this machine.
"""

import json
import logging
import os
import signal
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from backupd.fleet.dbos_engine import DbosEngine
from backupd.fleet.owed_json import from_document
from backupd.fleet.records import Records
from backupd.operations.fleet.choosing import Chooser, NightPatience, NightTerms
from backupd.operations.fleet.control import ControlHost, Nights
from backupd.operations.fleet.fleet_notices import tell_end
from backupd.operations.fleet.operator_requests import Wishes
from backupd.operations.fleet.stories import NightStories
from backupd.policy.fleet_plan import NightPlan
from backupd.policy.fleet_tries import TryRule
from backupd.vocabulary.errors import FleetDatabaseAway
from tests.fleet.night_world import NIGHT
from tests.fleet.process_agents import ProcessAgents
from tests.fleets import RULE

_AGENT = Path(__file__).with_name("sim_agent.py")
_PACES: dict[str, dict[str, Any]] = {
    "quick": {"poll": 0.25, "ask_again": (0.5, 1.0, 2.0), "queue": 0.15, "lease": 1.5, "tick": 0.5, "retry": 0.5},
    "steady": {"poll": 1.5, "ask_again": (1.0, 3.0, 5.0), "queue": 0.3, "lease": 1.5, "tick": 1.0, "retry": 2.0},
    "real": {"poll": 15.0, "ask_again": (30.0, 60.0), "queue": 5.0, "lease": 10.0, "tick": 5.0, "retry": 900.0},
}


def main(world: str, url: str, pace_name: str) -> None:
    """Work until SIGTERM."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    pace = _PACES[pace_name]
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    records = _opened(url)
    slots = json.loads((Path(world) / "slots.json").read_text())
    engine = DbosEngine(url, slots, _again, poll_seconds=pace["queue"], lease_seconds=pace["lease"])
    chooser = Chooser(
        records,
        ProcessAgents(lambda host: [sys.executable, "-I", "-S", str(_AGENT), world, host]),
        Wishes(records),
        lambda _: NightTerms(RULE, TryRule(retries=2, retry_after_seconds=pace["retry"])),
        NightPatience(pace["poll"], pace["ask_again"]),
    )
    stories = NightStories(chooser, tell_end=lambda backup: tell_end(records, backup))
    nights = Nights(
        now=lambda _: NIGHT,
        plan=lambda night: _planned(world, night),
        tell_unplanned=lambda night, error: _say(f"{night}: {error!r}"),
    )
    control_host = ControlHost(
        *(engine, stories, nights, _say),
        tell=lambda notice: _say(f"{notice.subject}: {notice.text}"),
        tick_seconds=pace["tick"],
    )
    control_host.serve(threading.Event())


def _opened(url: str) -> Records:
    """Those of the fleet, once its database answers."""
    waiting = threading.Event()
    while True:
        try:
            return Records.open(url)
        except FleetDatabaseAway:
            waiting.wait(0.2)


def _planned(world: str, night: date) -> NightPlan:
    owed = [from_document(one) for one in json.loads((Path(world) / "owed.json").read_text())]
    return NightPlan(night, tuple(owed), (), ())


def _say(what: str) -> None:
    sys.stdout.write(f"{os.getpid()}: {what}\n")
    sys.stdout.flush()


def _again(reason: str) -> NoReturn:
    """What `fleet serve` does when another may act: this process begins anew, as a standby."""
    _say(f"makes way: {reason}")
    os.execv(sys.executable, [sys.executable, "-m", "tests.fleet.night_control", *sys.argv[1:]])


if __name__ == "__main__":
    main(*sys.argv[1:])
