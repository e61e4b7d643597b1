"""In the lab's machine: record once, then cut the power again and again, and look at what is left.

    python -m tests.power.inside --seed TEXT --cuts 0,1,2 [--plant FAULT] [--seconds N]

`/run/lab/out`, a folder outside, gets `recording`, `marks.jsonl`, `recorded` once both are whole, and a line in
`results.jsonl` for each cut. A recording that is there is used.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.power.check import facts_after
from tests.power.chosen import Cut, cuts, promised
from tests.power.judge import violations
from tests.power.places import (
    LVMS_OWN,
    OUT,
    STATE,
    STORE,
    ask,
    forgetful_disks,
    leave_the_labs_own,
    new_boot,
    power_off,
    type_in,
)
from tests.power.record import Marks, configure, record
from tests.power.recording import requests

_KERNEL_LINES = 30


def main(words: Sequence[str]) -> int:
    """0 when each cut was looked at for which there was time, whatever was found."""
    parser = argparse.ArgumentParser(prog="tests.power.inside")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--cuts", required=True, help="their indexes")
    parser.add_argument("--plant", default="")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no further cut is begun")
    asked = parser.parse_args(words)
    until = time.monotonic() + asked.seconds
    leave_the_labs_own()
    recorded(OUT, planted=asked.plant)
    wanted = [int(index) for index in asked.cuts.split(",")]
    for result in looked_at(OUT, asked.seed, wanted, until=until):
        with (OUT / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return 0


def recorded(folder: Path, *, planted: str = "") -> None:
    """The folder has a whole recording."""
    if (folder / "recorded").exists():
        return
    with forgetful_disks(folder / "recording", replay=False):
        new_boot()
        configure()
        began = time.monotonic()
        record(Marks(folder / "marks.jsonl"), planted=planted)
    (folder / "recorded").write_text(f"{time.monotonic() - began:.1f} s\n")


def looked_at(folder: Path, seed: str, indexes: Sequence[int], *, until: float = float("inf")) -> Any:
    """What was found after each of these cuts, with what is wrong with it."""
    marks = [json.loads(line) for line in (folder / "marks.jsonl").read_text().splitlines()]
    with forgetful_disks(folder / "recording", replay=True):
        for cut in cuts(marks, instants_of_ours(folder / "recording"), seed, indexes):
            if time.monotonic() > until:
                return
            yield _look(cut, promised(marks, cut), seed)


def instants_of_ours(recording: Path) -> list[int]:
    """Just before and just after something reached a disk that backupd writes to, or LVM's own part of another one."""
    found = set()
    with recording.open("rb") as file:
        for instant, request in enumerate(requests(file.fileno())):
            if request.disk in (STATE.number, STORE.number) or (request.length and request.offset < LVMS_OWN):
                found |= {instant, instant + 1}
    return sorted(found)


def _look(cut: Cut, promises: dict[str, Any], seed: str) -> dict[str, Any]:
    began = time.monotonic()
    asked = {"do": "cut", "instant": cut.instant, "mode": cut.mode, "seed": cut.seed}
    forgotten = ask(asked)
    try:
        facts = facts_after(promises)
    finally:
        power_off()
    found = violations(facts)
    result = {"seed": seed, "index": cut.index, "phase": cut.phase, "instant": cut.instant, "mode": cut.mode}
    result |= {
        **forgotten,
        "violations": found,
        "late": facts.get("left_at_first", []),
        "unfinished": facts.get("unfinished", []),
        "seconds": round(time.monotonic() - began, 1),
    }
    if found:
        kernel = type_in("dmesg").out.splitlines()[-_KERNEL_LINES:]
        result |= {"facts": facts, "kernel": kernel}
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
