"""Two backups side by side: what each cost, in which circumstances they differ, and which differences are large.

Knows: which figures are comparable, and from when on a difference is worth words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from backupd.mysql import UNLOCKED
from backupd.policy.write_penalty import penalty_of
from backupd.report.side_by_side import Difference, beginning, document
from backupd.report.words import columns, count, duration, ratio, size, speed
from backupd.vocabulary.penalty import Bill
from backupd.vocabulary.records import Phase, RunDetails, SnapshotFacts

LARGE = 1.5  # times


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both runs; None where a run has none."""

    key: str
    name: str
    a: float | None
    b: float | None
    say: Callable[[float | None], str]

    @property
    def ratio(self) -> float | None:
        """b ÷ a; None where that means nothing."""
        if self.a is None or self.b is None or self.a <= 0 or not isfinite(self.b / self.a):
            return None
        return self.b / self.a

    @property
    def is_large(self) -> bool:
        """More than half as much again, in either direction."""
        return self.ratio is not None and (self.ratio > LARGE or self.ratio < 1 / LARGE)

    @property
    def words(self) -> str:
        """`lock held: 6.0x as much, 180 ms instead of 30 ms`."""
        times = f"{self.ratio:.1f}x as much" if (self.ratio or 0.0) >= 1 else f"{1 / (self.ratio or 1.0):.1f}x less"
        if self.ratio == 0:
            times = "nothing"
        return f"{self.name}: {times}, {self.say(self.b)} instead of {self.say(self.a)}"


def figures(a: RunDetails, b: RunDetails) -> list[Compared]:
    """Every figure that at least one of them has, in the order in which a run comes to them."""
    both = zip(_figures(a), _figures(b), strict=True)
    found = (Compared(key, name, of_a, of_b, say) for (key, name, of_a, say), (_, _, of_b, _) in both)
    return [one for one in found if one.a is not None or one.b is not None]


def circumstances(a: RunDetails, b: RunDetails) -> list[Difference]:
    """What is known of both and is not the same."""
    both = zip(_circumstances(a), _circumstances(b), strict=True)
    return [
        Difference(key, of_a, of_b, name, _or_none(say))
        for (key, name, of_a, say), (_, _, of_b, _) in both
        if of_a != of_b and None not in (of_a, of_b)
    ]


def compare_text(a: RunDetails, b: RunDetails) -> str:
    """Both runs, their figures in pairs, in what they differ, and what is large."""
    compared, parts = figures(a, b), beginning(a, b, (a.job, b.job), circumstances(a, b))
    if not compared:
        return "\n\n".join([*parts, "neither has anything that could be measured"])
    pairs = [(one.name, one.say(one.a), one.say(one.b), ratio(one.ratio)) for one in compared]
    parts.append(columns([("", "A", "B", "B/A"), *pairs], right=(1, 2, 3)))
    large = sorted((one for one in compared if one.is_large), key=_how_far, reverse=True)
    if large:
        parts.append("\n".join([f"b differs from a by more than {LARGE:g}x in", *(f"  {one.words}" for one in large)]))
    else:
        parts.append(f"no figure differs by more than {LARGE:g}x")
    return "\n\n".join(parts)


def compare_document(a: RunDetails, b: RunDetails) -> dict[str, Any]:
    """What `compare --json` prints: sizes in bytes, times in seconds, ratios as b ÷ a."""
    return {
        **document(a, b, circumstances(a, b)),
        "figures": [
            {"name": one.key, "a": one.a, "b": one.b, "ratio": one.ratio, "large": one.is_large}
            for one in figures(a, b)
        ],
    }


Figure = tuple[str, str, float | None, Callable[[float | None], str]]


def _figures(run: RunDetails) -> Iterator[Figure]:
    locked = run.lock if run.lock is not None and run.lock.strategy != UNLOCKED else None
    penalty, backup, phases = penalty_of(run.samples), next(iter(run.backups), None), run.phases
    copy = phases.get(Phase.COPY)
    yield "lock_wait_seconds", "lock waited for", None if locked is None else locked.wait_seconds, duration
    yield "lock_hold_seconds", "lock held", None if locked is None else locked.hold_seconds, duration
    yield from _bill(run)
    yield "snapshot_seconds", "snapshot taken in", phases.get(Phase.SNAPSHOT), duration
    yield "penalty_initial_ratio", "penalty at first", penalty.initial_ratio, ratio
    yield "penalty_settled_ratio", "penalty when copying", penalty.settled_ratio, ratio
    yield "settle_seconds", "settle wait", phases.get(Phase.SETTLE), duration
    yield "copy_seconds", "copied in", copy, duration
    yield "copy_bytes_per_second", "copy rate", backup.bytes_read / copy if backup and copy else None, speed
    for stage in ("read", "compress", "encrypt"):
        rate = next((one.rate for one in run.throughput if one.stage == stage), None)
        yield f"{stage}_bytes_per_second", f"{stage}, alone", rate, speed
    yield "verify_seconds", "verified in", phases.get(Phase.VERIFY), duration
    yield "read_bytes", "read", None if backup is None else backup.bytes_read, size
    yield "stored_bytes", "stored", None if backup is None else backup.bytes_stored, size
    area = _own_area(run)
    yield "cow_used_peak_bytes", "COW area used", None if area is None else area.cow_used_peak, size
    yield "total_seconds", "in all", run.seconds, duration


def _own_area(run: RunDetails) -> SnapshotFacts | None:
    """None also where the snapshot was in a thin pool: what is used of that is everybody's."""
    return run.snapshot if run.snapshot is not None and run.snapshot.pool is None else None


def _bill(run: RunDetails) -> Iterator[Figure]:
    losses, lock, bill = run.losses, run.lock, run.bill or Bill(0.0)
    yield "transactions_lost", "transactions lost", None if losses is None else losses.lost, count
    yield "stalled_statements", "statements stalled", None if lock is None else lock.stalled, count
    yield "penalty_seconds", "writes delayed by", bill.penalty_seconds, duration
    yield "copied_on_write_bytes", "copied on write", bill.copied_on_write, size
    yield "disk_seconds", "disks busy for", bill.disk_seconds, duration
    yield "disk_read_seconds", "reads took", bill.disk_read_seconds, duration


def _circumstances(run: RunDetails) -> Iterator[tuple[str, str, Any, Callable[[Any], str]]]:
    snapshot, area, verdict, lock = run.snapshot, _own_area(run), run.verdict, run.lock
    yield "job", "job", run.job, str
    yield "host", "host", run.host, str
    yield "status", "status", run.status.value, str
    yield "error", "error", run.error.code if run.error else None, str
    yield "lock_strategy", "kind of lock", lock.strategy if lock else None, str
    yield "volume", "volume", snapshot.volume if snapshot else None, str
    yield "layout", "layout", snapshot.layout.value if snapshot else None, str
    yield "stripes", "stripes", snapshot.stripes if snapshot else None, str
    yield "stripe_size", "stripe size", snapshot.stripe_size or 0 if snapshot else None, size
    yield "chunk_size", "chunk size", snapshot.chunk_size if snapshot else None, size
    yield "cow_size", "COW area", area.cow_size if area else None, size
    yield "pool", "thin pool", snapshot.pool or "" if snapshot else None, str
    yield "gate", "the gate", f"{verdict.outcome} ({verdict.reason})" if verdict else None, str
    yield "targets", "targets", [backup.target for backup in run.backups] or None, ", ".join


def _or_none(say: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: say(value) if value not in ("", 0) else "none"


def _how_far(one: Compared) -> float:
    found = one.ratio or 0.0
    return max(found, 1 / found if found else float("inf"))
