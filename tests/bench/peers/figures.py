"""What one round of one contender shows, and the table of them all. Pure.

The load's own log counts transactions, each second; a heartbeat of 20 inserts a second, how long each took.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from backupd.lab import load
from backupd.lab.load import Heartbeat, LoadSample
from backupd.lab.sizes import MIB
from backupd.vocabulary.errors import LabError
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.records import Phase, RunDetails
from tests.bench.peers.processor import Owner

BEFORE_SECONDS = 15.0  # undisturbed, just before: what it is compared with


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one backup, by the machine's wall clock."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class PeerImpact:
    """What the server's users felt of it."""

    tps_before: float
    tps: float
    lost: float  # transactions that the rate before would have done
    stall_ms: float
    p50_before_ms: float
    p99_before_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What else it took; None where the tool does not say."""

    wall: float  # seconds
    stored: int  # bytes
    disks: DiskCounters  # of the volume's disks together, for the server as well as for the backup
    memory: float  # MiB, of its processes together
    processor: Mapping[str, float]  # seconds of the machine's one while it lasted, by `Owner`
    restore: float  # seconds
    lock_held: float | None = None  # seconds
    cow: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class StageImpact:
    """Of one backup: a stage of it, and what the server did not do meanwhile."""

    name: str
    seconds: float
    lost: float  # transactions that the rate before would have done


@dataclass(frozen=True, slots=True)
class Reading:
    """One round of one contender. `failed` says why there is nothing else in it."""

    contender: str
    round: int
    calm: bool = False  # whether the server had come to rest before
    impact: PeerImpact | None = None
    cost: Cost | None = None
    parts: tuple[StageImpact, ...] = ()  # where the tool tells when its stages ended
    failed: str = ""

    @classmethod
    def from_values(cls, raw: Mapping[str, Any]) -> "Reading":
        """What `to_values` gave."""
        cost = raw["cost"] and Cost(**{**raw["cost"], "disks": DiskCounters(**raw["cost"]["disks"])})
        parts = tuple(StageImpact(**part) for part in raw["parts"])
        return cls(**{**raw, "impact": raw["impact"] and PeerImpact(**raw["impact"]), "cost": cost, "parts": parts})

    def to_values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def impact(samples: Sequence[LoadSample], beats: Sequence[Heartbeat], moments: Moments) -> PeerImpact:
    """What both logs say of the time between two moments, beside that just before.

    Raises:
        LabError: they do not cover it.
    """
    start, end = moments.began, moments.ended
    before = load.rate_between(samples, start - BEFORE_SECONDS, start)
    rate = load.rate_between(samples, start, end)
    if not before or rate is None or samples[-1].at < end - 1:
        raise LabError("the load's log does not cover the backup")
    calm = _milliseconds(beats, start - BEFORE_SECONDS, start)
    during = _milliseconds(beats, start, end)
    return PeerImpact(
        tps_before=before,
        tps=rate,
        lost=(before - rate) * (end - start),
        stall_ms=1000 * (load.longest_stall(beats, start, end) or 0.0),
        p50_before_ms=quantile(calm, 0.5),
        p99_before_ms=quantile(calm, 0.99),
        p50_ms=quantile(during, 0.5),
        p99_ms=quantile(during, 0.99),
    )


def parts(
    samples: Sequence[LoadSample], began: float, ends: Sequence[tuple[str, float]], *, undisturbed: float
) -> tuple[StageImpact, ...]:
    """What each stage cost, of which `ends` has the names and, by the wall clock, the ends; the first began then.

    Raises:
        LabError: the load's log does not cover it.
    """
    found, start = [], began
    for name, end in ends:
        lost = load.transactions_lost(samples, start, end, undisturbed=undisturbed)
        if lost is None:
            raise LabError(f"the load's log does not cover the backup's stage {name!r}")
        found.append(StageImpact(name, end - start, lost))
        start = end
    return tuple(found)


def stages(details: RunDetails, moments: Moments) -> list[tuple[str, float]]:
    """The ends of a run's stages by its record, to within some tenths of a second."""
    if details.bill is None or details.ended_at is None:
        raise LabError(f"run {details.run_id} has no bill")
    later = sum(details.phases.get(phase, 0.0) for phase in (Phase.SEND, Phase.VERIFY))
    released = details.ended_at.timestamp() - later
    return [
        ("starting", details.started_at.timestamp()),
        ("before the lock", released - details.bill.seconds),
        ("lock and snapshot", released),
        ("afterwards", moments.ended),
    ]


def read_milliseconds(use: DiskCounters) -> float | None:
    """What the disks took for each MiB that was read; None where nothing was."""
    return 1000 * use.read_seconds / (use.read_bytes / MIB) if use.read_bytes else None


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many of them do not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def pause_seconds(walls: Sequence[float]) -> float:
    """How long `nothing` takes: as long as the others, by their median; 30 s before there are any."""
    return median(walls) if walls else 30.0


def _milliseconds(beats: Sequence[Heartbeat], start: float, end: float) -> list[float]:
    return [beat.milliseconds for beat in beats if start <= beat.at < end]


# --- the table -------------------------------------------------------------------------------------------------------


def _of_impact(value: Callable[[PeerImpact], float]) -> Callable[[Reading], float | None]:
    return lambda reading: value(reading.impact) if reading.impact else None


def _of_cost(value: Callable[[Cost], float | None]) -> Callable[[Reading], float | None]:
    return lambda reading: value(reading.cost) if reading.cost else None


def _mib(size: int | None) -> float | None:
    return None if size is None else size / MIB


COLUMNS: Mapping[str, Callable[[Reading], float | None]] = {
    "wall s": _of_cost(lambda cost: cost.wall),
    "stored MiB": _of_cost(lambda cost: _mib(cost.stored)),
    "tps before": _of_impact(lambda impact: impact.tps_before),
    "lost": _of_impact(lambda impact: impact.lost),
    "stall ms": _of_impact(lambda impact: impact.stall_ms),
    "p50 before ms": _of_impact(lambda impact: impact.p50_before_ms),
    "p50 ms": _of_impact(lambda impact: impact.p50_ms),
    "p99 before ms": _of_impact(lambda impact: impact.p99_before_ms),
    "p99 ms": _of_impact(lambda impact: impact.p99_ms),
    "lock ms": _of_cost(lambda cost: None if cost.lock_held is None else 1000 * cost.lock_held),
    "COW MiB": _of_cost(lambda cost: _mib(cost.cow)),
    "read MiB": _of_cost(lambda cost: _mib(cost.disks.read_bytes)),
    "read ms/MiB": _of_cost(lambda cost: read_milliseconds(cost.disks)),
    "disks busy s": _of_cost(lambda cost: cost.disks.busy_seconds),
    "memory MiB": _of_cost(lambda cost: cost.memory),
    "processor s": _of_cost(lambda cost: cost.processor[Owner.BACKUP]),
    "restore s": _of_cost(lambda cost: cost.restore),
}


def table(readings: Sequence[Reading]) -> str:
    """A Markdown table: for each contender the medians, and from the least to the most that was seen."""
    lines = [f"| | {' | '.join(COLUMNS)} |", f"|---{'|---' * len(COLUMNS)}|"]
    for name in dict.fromkeys(reading.contender for reading in readings):
        seen = [reading for reading in readings if reading.contender == name]
        good = [reading for reading in seen if not reading.failed]
        head = name if len(good) == len(seen) else f"{name} ({len(good)} of {len(seen)} rounds)"
        lines.append(f"| {head} | {' | '.join(cell([value(one) for one in good]) for value in COLUMNS.values())} |")
    return "\n".join(lines)


def parts_table(readings: Sequence[Reading]) -> str:
    """A Markdown table of the stages of those that tell them; empty where nobody does."""
    telling = [reading for reading in readings if reading.parts]
    if not telling:
        return ""
    names = [part.name for part in telling[0].parts]
    lines = [f"| | {' | '.join(f'{name} s | lost' for name in names)} |", f"|---{'|---' * 2 * len(names)}|"]
    for name in dict.fromkeys(reading.contender for reading in telling):
        stages = zip(*(reading.parts for reading in telling if reading.contender == name), strict=True)
        cells = [(cell([one.seconds for one in stage]), cell([one.lost for one in stage])) for stage in stages]
        lines.append(f"| {name} | {' | '.join(f'{seconds} | {lost}' for seconds, lost in cells)} |")
    return "\n".join(lines)


def processor_table(readings: Sequence[Reading]) -> str:
    """A Markdown table of whose the processor was meanwhile, in seconds; the rest of its time is not accounted for."""
    costs = [(reading.contender, reading.cost) for reading in readings if reading.cost]
    if not costs:
        return ""
    lines = [f"| processor s | {' | '.join(Owner)} | of wall s |", f"|---{'|---' * (len(Owner) + 1)}|"]
    for name in dict.fromkeys(contender for contender, _cost in costs):
        seen = [cost for contender, cost in costs if contender == name]
        cells = [cell([cost.processor[owner] for cost in seen]) for owner in Owner]
        lines.append(f"| {name} | {' | '.join(cells)} | {cell([cost.wall for cost in seen])} |")
    return "\n".join(lines)


def cell(values: Sequence[float | None]) -> str:
    """`MEDIAN (LEAST-MOST)`, of those that are known; one decimal where all are small."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    digits = 1 if max(map(abs, known)) < 10 else 0
    middle, least, most = (f"{value + 0.0:.{digits}f}" for value in (median(known), min(known), max(known)))
    return middle if len(known) == 1 else f"{middle} ({least}-{most})"
