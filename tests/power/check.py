"""After a power cut and the next boot: what is there, what the commands say that an administrator types then.

Knows: in which order things are looked at. Refuses to judge: `judge` does.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.power.places import SITE, TARGET, Said, new_boot, power_on, start_server, type_in
from tests.power.record import FIRST, JOB, RESTORED, caught_up, configure, orders_now, receiving, tree_digest

_RUN_FOLDER = Path("/run/backupd")
_LATER = ["-m", "tests.power.later"]
_SAID_CHARACTERS = 2000
_HELD = "SELECT kind || ' ' || name FROM holdings WHERE released_at IS NULL"


def facts_after(promised: dict[str, Any]) -> dict[str, Any]:
    """The machine boots from the disks as they are now; all that was found, to be judged."""
    began = time.monotonic()
    new_boot()
    configure()
    facts: dict[str, Any] = {"promised": promised, "boot": {}, "commands": []}
    steps = power_on()
    facts["boot"] = {name: told(said) for name, said in steps.items()}
    if not any(said.status for said in steps.values()):
        _look(facts, promised)
    facts["seconds"] = round(time.monotonic() - began, 1)
    return facts


def _look(facts: dict[str, Any], promised: dict[str, Any]) -> None:
    facts["server"] = {"answers": start_server(), "log": SITE.server_log.read_text()[-_SAID_CHARACTERS:]}
    if not facts["server"]["answers"]:
        return
    facts["server"]["orders"] = orders_now() if promised["orders"] else 0

    def typed(*words: str, later: bool = False) -> Said:
        program = [sys.executable, *_LATER] if later else ["backupd"]
        said = type_in(*program, *words)
        facts["commands"].append({"words": [*words, *(["(two minutes later)"] if later else [])], **told(said)})
        return said

    typed("recover")
    facts["left_at_first"] = left()
    typed("recover", later=True)
    history = typed("history", "--json")
    facts["runs"] = _statuses(history)
    facts["catalogue"] = _integrity(SITE.catalogue)
    facts["left"] = left()
    facts["unfinished"] = [path.name for path in _gone_later(TARGET)]
    facts["manifests"] = {run: typed("verify", run).status for run in manifests()}
    if promised["phase"] == "restore" or promised["tree"]:
        facts["restored"] = _restored(typed, promised)
    if promised["archive"]:
        facts["archive"] = _archive(typed)


def _archive(typed: Any) -> dict[str, Any]:
    """It goes on, and all of it is there."""
    with receiving():
        goes_on = caught_up()
    status = typed("binlog", "status", "--json")
    gaps = [gap["reason"] for job in json.loads(status.out)["jobs"] for gap in job["gaps"]] if not status.status else []
    return {"goes_on": goes_on, "gaps": gaps, "verify": typed("binlog", "verify", JOB).status}


def _restored(typed: Any, promised: dict[str, Any]) -> dict[str, Any]:
    """What is in the folder; where nobody was told that it is whole, the same command makes it so."""
    before = RESTORED.is_dir() and any(RESTORED.iterdir())
    again = None
    if not promised["tree"]:
        again = typed("restore", FIRST, "--to", str(RESTORED)).status
    return {"there": before, "again": again, "tree": tree_digest(RESTORED)}


def left() -> list[str]:
    """What a run has on a host while it lives, and nobody gave back."""
    listed = type_in("lvs", "--noheadings", "--options", "lv_full_name", "@backupd").out.splitlines()
    volumes = [line.strip() for line in listed if "Retrying metadata scan" not in line]
    mapped = [path.name for path in Path("/dev/mapper").glob(f"{SITE.volume_group}-*") if "backupd" in path.name]
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [f"volume {name}" for name in volumes] + [f"device {name}" for name in mapped]
    found += [f"mount {place}" for place in mounts if Path(place).is_relative_to(_RUN_FOLDER)]
    found += [f"probe folder {path}" for path in SITE.mount_point.glob(".backupd-*")]
    found += [f"staging {path}" for path in (SITE.state / "staging").glob("*")]
    found += [f"on the target {path}" for path in _unfinished(TARGET)]
    return found + [f"a row of {row}" for row in _rows(_HELD)]


def _unfinished(target: Path) -> Sequence[Path]:
    """Backups without a manifest, and temporary names; of segments and owner records these alone."""
    backups = [path for path in target.glob(f"*/{JOB}/*") if path.is_dir() and path.name != "binlog"]
    partial = set(target.rglob(".*")) - set(_gone_later(target)) - set(target.glob(".backupd-writable-*"))
    return [path for path in backups if not (path / "manifest.json").exists()] + sorted(partial)


def _gone_later(target: Path) -> Sequence[Path]:
    """What belongs to no run, so that nothing is held for it: a segment that a receiver had begun, which goes with the
    next prune of segments, and an owner record, which goes with the next but one.
    """
    segments = [path for path in target.glob(f"*/{JOB}/.*.partial") if ".binlog." in path.name]
    return segments + list(target.glob("*/owner/.*.json.*.partial"))


def manifests() -> list[str]:
    """The runs whose manifest is on the target."""
    return sorted(path.parent.name for path in TARGET.glob(f"*/{JOB}/*/manifest.json"))


def told(said: Said) -> dict[str, Any]:
    """For a record."""
    ends = {"out": said.out[-_SAID_CHARACTERS:], "error": said.error[-_SAID_CHARACTERS:]}
    return {"status": said.status, **ends, "seconds": round(said.seconds, 2)}


def _statuses(history: Said) -> dict[str, str] | None:
    if history.status:
        return None
    return {run["run_id"]: run["status"] for run in json.loads(history.out)["runs"]}


def _integrity(catalogue: Path) -> list[str]:
    with closing(sqlite3.connect(catalogue)) as connection:
        try:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            return found + [f"foreign key {row}" for row in connection.execute("PRAGMA foreign_key_check")]
        except sqlite3.DatabaseError as error:
            return [str(error)]


def _rows(statement: str) -> list[str]:
    with closing(sqlite3.connect(SITE.catalogue)) as connection:
        return [str(row[0]) for row in connection.execute(statement)]
