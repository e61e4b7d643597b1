"""How long the lock is held around our snapshot, beside a plain `lvcreate -s`: `make bench-lock`, inside the lab.

Both are taken in turn, under the same load, with the same lock; only what happens under it differs. The clock is the
receipt's: from the last lock statement granted to the unlock returned.
"""

import sys
from collections.abc import Callable
from statistics import median

from backupd import wiring
from backupd.config import JobConfig
from backupd.host.process import run
from backupd.operations import context
from backupd.operations.tools import Tools
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.vocabulary.volumes import Volume

ROUNDS = 5
_LVM_SECONDS = 60.0
_PLAIN = "plain"


def main() -> int:
    """Measure, print both series and the ratio of their medians; 0 when it is at most a half."""
    configuration = context.configuration(None)
    job = context.job(configuration, "nightly")
    with context.catalogue(configuration) as catalogue:
        tools = wiring.tools(configuration, job, catalogue.identity().name)
    facts = tools.server.facts()
    mount = tools.files.mount_of(facts.datadir)
    volume = tools.snapshots.volume_at(mount.device)
    ours: list[float] = []
    plain: list[float] = []
    for number in range(ROUNDS):
        tools.files.sync(mount.path)
        ours.append(_held_around_ours(job, tools, volume, f"bench-{number}"))
        tools.files.sync(mount.path)
        plain.append(_held_around_plain(tools, volume))
    ratio = median(ours) / median(plain)
    _print(f"lock held around our snapshot        {_series(ours)}")
    _print(f"lock held around plain lvcreate -s   {_series(plain)}")
    _print(f"ratio of the medians                 {ratio:.2f} (at most 0.50)")
    return 0 if ratio <= 0.5 else 1


def _held_around_ours(job: JobConfig, tools: Tools, volume: Volume, run_id: str) -> float:
    plan = plan_snapshot(volume, tools.snapshots.group(volume.vg), run_id, job.snapshot)
    with tools.snapshots.prepared(plan) as creator:
        seconds = _held(tools, creator.create)
    tools.snapshots.remove(volume.vg, plan.name, run_id)
    return seconds


def _held_around_plain(tools: Tools, volume: Volume) -> float:
    create = ["lvcreate", "-s", "-l", "20%ORIGIN", "-n", _PLAIN, volume.full_name]
    seconds = _held(tools, lambda: run(create, timeout_seconds=_LVM_SECONDS, must_finish=True))
    run(["lvremove", "-y", f"{volume.vg}/{_PLAIN}"], timeout_seconds=_LVM_SECONDS, must_finish=True)
    return seconds


def _held(tools: Tools, create: Callable[[], object]) -> float:
    with tools.lock.held(tools.server.facts().datadir) as lock:
        create()
    return lock.receipt.hold_seconds


def _series(seconds: list[float]) -> str:
    each = " ".join(f"{value * 1000:.0f}" for value in seconds)
    return f"median {median(seconds) * 1000:.0f} ms of {each}"


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
