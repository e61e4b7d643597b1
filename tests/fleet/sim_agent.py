"""The agent of a simulated host: one request of the real protocol on stdin, one answer on stdout: `WORLD HOST`.

It imports nothing of backupd, so that hundreds of starts a minute cost little. Runs are files with the instant at which
they will have ended: they go on whoever lives. Hosts know each other here, and write down what must never happen: two
runs in a cluster at a time, more in a target than it has slots, one run id started twice, a cluster done twice.
"""

# ruff: noqa: PTH123 - pathlib takes longer to load than all the rest

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(world: str, host: str) -> None:
    """Answer, or be away."""
    with open(f"{world}/hosts/{host}.json") as file:
        facts = json.load(file)
    now = time.time()
    with open(f"{world}/began") as file:
        since = now - float(file.read())
    if any(begin <= since < end for begin, end in facts["away"]):
        os.kill(os.getpid(), 9)
    request = json.loads(sys.stdin.readline())
    run_id = request.get("run_id", "")
    if request["ask"] == "describe":
        answer = described(world, host, facts, now)
    elif request["ask"] == "start":
        answer = started(world, host, facts, run_id, now)
        if drawn(facts, run_id, "heard") < facts["unheard"] and first(f"{world}/unheard-{run_id}"):
            os.kill(os.getpid(), 9)  # it has started; nobody hears of it
    elif request["ask"] == "cancel" or request["ask"] == "status":
        answer = state(runs_of(world, facts).get(run_id), host, run_id, now)
    else:
        answer = result(runs_of(world, facts)[run_id], host, run_id)
    sys.stdout.write(json.dumps({"protocol": 1, "backupd": "0.1.0", "speaks": [1, 1], "answer": answer}))


def described(world: str, host: str, facts: dict[str, Any], now: float) -> dict[str, Any]:
    """The host, its job, its server."""
    live = [run_id for run_id, run in runs_of(world, facts).items() if run["host"] == host and run["ends"] > now]
    job = {
        "job": "nightly",
        "targets": facts["targets"],
        "role": facts["role"],
        "lag_seconds": facts["lag"],
        "running": live[0] if live else "",
        "expected_seconds": facts["seconds"],
        "expected_bytes": 1 << 30,
    }
    return {"machine": f"{host}-0badcafe", "version": "0.1.0", "protocols": [1, 1], "clock": iso(now), "jobs": [job]}


def started(world: str, host: str, facts: dict[str, Any], run_id: str, now: float) -> dict[str, Any]:
    """The run is started, unless it was."""
    cluster = facts["cluster"]
    with open(f"{world}/{cluster}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = runs_of(world, facts)
        if run_id in runs:
            if runs[run_id]["host"] != host:
                violate(world, "a run id at two hosts", run_id, host)
            return state(runs[run_id], host, run_id, now)
        for other, run in runs.items():
            if run["ends"] > now:
                violate(world, "two runs in a cluster", run_id, other)
            if run["good"]:
                violate(world, "a cluster done twice", run_id, other)
        good = drawn(facts, run_id, "good") >= facts["failing"] or run_id.endswith(".3")
        seconds = facts["seconds"] * (1.0 if good else 0.2 + 0.6 * drawn(facts, run_id, "seconds"))
        run = {"host": host, "begun": now, "ends": now + seconds, "good": good, "targets": facts["targets"]}
        take_slots(world, facts, run_id, run, now)
        with open(f"{world}/{cluster}.runs", "a") as file:
            file.write(json.dumps([run_id, run]) + "\n")
        return state(run, host, run_id, now)


def take_slots(world: str, facts: dict[str, Any], run_id: str, run: dict[str, Any], now: float) -> None:
    """The run is among those of each of its targets, of which there are no more than it has slots."""
    for target in facts["targets"]:
        with open(f"{world}/target-{target}", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            live = sum(json.loads(line)[1] > now for line in file)
            if live >= facts["slots"][target]:
                violate(world, "more runs than slots", run_id, target)
            file.write(json.dumps([run_id, run["ends"]]) + "\n")


def runs_of(world: str, facts: dict[str, Any]) -> dict[str, Any]:
    """All of the cluster, by id."""
    try:
        with open(f"{world}/{facts['cluster']}.runs") as file:
            return dict(json.loads(line) for line in file if line.endswith("\n"))
    except FileNotFoundError:
        return {}


def state(run: dict[str, Any] | None, host: str, run_id: str, now: float) -> dict[str, Any]:
    """How far it is."""
    if run is None or run["host"] != host:
        return {"run_id": run_id, "status": None}
    told = {"run_id": run_id, "started_at": iso(run["begun"]), "expected_bytes": 1 << 30}
    if run["ends"] > now:
        share = (now - run["begun"]) / (run["ends"] - run["begun"])
        return {**told, "status": "running", "phase": "copy", "copied_bytes": int(share * 4) << 28}
    ended = {**told, "status": "success" if run["good"] else "failed", "ended_at": iso(run["ends"])}
    if run["good"]:
        return {**ended, "stored_bytes": 1 << 29, "lost_transactions": 7}
    error = {"code": "target", "message": "the target is full", "hint": "free space on it", "exit_status": 8}
    return {**ended, "error": error}


def result(run: dict[str, Any], host: str, run_id: str) -> dict[str, Any]:
    """What its catalogue has of it."""
    status = "success" if run["good"] else "failed"
    whose = {"run_id": run_id, "job": "nightly", "host": host, "machine": f"{host}-0badcafe", "status": status}
    return {**whose, "started_at": iso(run["begun"]), "ended_at": iso(run["ends"])}


def first(path: str) -> bool:
    """Nobody has asked so before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def violate(world: str, *what: str) -> None:
    """What must never happen has."""
    with open(f"{world}/violations", "a") as file:
        file.write(json.dumps(what) + "\n")


def drawn(facts: dict[str, Any], *what: str) -> float:
    """From 0 to 1, the same for the same."""
    return zlib.crc32(":".join((str(facts["seed"]), *what)).encode()) / 2**32


def iso(instant: float) -> str:
    """In UTC."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(instant))
    return f"{whole}.{int(instant % 1 * 1e6):06}+00:00"


if __name__ == "__main__":
    main(*sys.argv[1:])
