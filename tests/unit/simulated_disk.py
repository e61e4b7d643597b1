"""A disk that a server writes to, a snapshot copies from and a copy reads, in steps of a tenth of a second.

A model, not a record: mean values of a queue. Writers in an open loop come whatever happens (M/M/1: what they wait for
explodes where writes and reads together keep the disk busy); those in a closed loop write again when they were served.
What a write costs with a snapshot falls with time, as chunks are copied once only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, inf
from random import Random

from backupd.policy.pace_trial import PaceLook
from backupd.policy.pacing import Pace

TICK = 0.1
READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """What the server does at one instant."""

    busy: float = 0.0  # share of the disk's time that writes want in an open loop, without a snapshot
    writers: int = 0  # in a closed loop, at once

    @property
    def held(self) -> float:
        """The share of the time in which something is in flight."""
        return 1.0 if self.writers else min(1.0, self.busy)


@dataclass(slots=True)
class SimulatedDisk:
    """Says what a tenth of a second is like in which reads take a share of the disk's time."""

    load: Callable[[float], Load]
    write_seconds: float = 0.005
    read_seconds: float = 0.05  # of 4 MiB, alone
    cow: float = 0.2  # what a write costs more for as long as there is the snapshot, as a share of what it costs
    shock: float = 0.2  # the same, that falls with time
    settles: float = 15.0  # seconds in which it falls to a third
    queued: bool = True  # reads and writes queue as one; else one read is in flight at a time, and no more in its way
    noise: float = 0.0
    random: Random = field(default_factory=lambda: Random(0))

    def state(self, at: float, reading: float) -> tuple[float, float, float]:
        """Writes a second, seconds of each, and the share of the disk's time that reads got of what they wanted."""
        load = self.load(at)
        cost = self.write_seconds * (1 + self.cow + self.shock * exp(-at / self.settles))
        if load.writers:
            reads = min(reading, self.read_seconds / (self.read_seconds + load.writers * cost))
            latency = load.writers * cost / (1 - reads)
            return load.writers / latency, latency, reads
        wanted = min(0.96, load.busy * cost / self.write_seconds)
        reads = min(reading, 0.98 * (1 - wanted))
        if not wanted:
            return 0.0, 0.0, reads
        queue = cost / (1 - wanted - reads) if self.queued else (cost + reads * self.read_seconds) / (1 - wanted)
        return load.busy / self.write_seconds, queue, reads

    def usual_seconds(self) -> float:
        """What a write took before the snapshot."""
        load = self.load(0.0)
        if load.writers:
            return load.writers * self.write_seconds
        return self.write_seconds / (1 - load.busy)

    def drawn(self) -> float:
        """About 1: what is counted in a tenth of a second is a matter of chance."""
        return 1 + self.noise * (2 * self.random.random() - 1)

    def full(self, at: float) -> float:
        """The share that a copy at full speed gets."""
        return self.state(at, 1.0)[2]


@dataclass(slots=True)
class Course:
    """How a copy went."""

    seconds: float = 0.0
    cost: float = 0.0  # seconds of writes that would not have waited without us
    costs: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # of full speed, at each look
    full_shares: list[float] = field(default_factory=list)  # of full speed, that it went at
    ratios: list[float] = field(default_factory=list)  # latency ÷ with the snapshot alone
    offs: list[float] = field(default_factory=list)  # when nothing was read
    abort: str | None = None
    done: bool = False

    def seconds_of_ratio(self, above: float, *, since: float, until: float) -> float:
        """How long writes took more than so many times what they take with the snapshot alone."""
        return TICK * sum(ratio > above for ratio in self.ratios[round(since / TICK) : round(until / TICK)])

    @property
    def turns(self) -> int:
        """How often the speed changed its direction."""
        moves = [b - a for a, b in pairwise(self.shares) if b != a]
        return sum(a * b < 0 for a, b in pairwise(moves))


def copied(disk: SimulatedDisk, size: int, share: float, *, cheaper_than: float = inf) -> Course:
    """A copy at a constant share of full speed, for as long as it is cheaper."""
    course, left, tick = Course(), float(size), 5 * TICK
    while left > 0 and course.cost < cheaper_than:
        left -= _step(disk, course, share * disk.full(course.seconds), tick)[1]
    course.done = left <= 0
    return course


def governed(
    disk: SimulatedDisk,
    size: int,
    pace: Pace,
    *,
    at_most: float = 10_000.0,
    seconds_left: Callable[[float], float | None] = lambda _at: None,
) -> Course:
    """A copy that does what the law says."""
    course, left, under_way = Course(), float(size), 0.0
    while left > 0 and course.seconds < at_most:
        decision = pace.decision
        full = disk.full(course.seconds)
        one = disk.read_seconds / full
        wait = decision.pause_seconds + decision.hold_seconds * disk.load(course.seconds).held
        share = 0.0 if decision.off else one / (one + wait)
        writes, read, latency = _step(disk, course, share * full)
        course.shares.append(decision.share)
        course.full_shares.append(share)
        if decision.off:
            course.offs.append(course.seconds)
        left -= read
        under_way += read
        ended = int(under_way / READ_BYTES)
        under_way -= ended * READ_BYTES
        count = round(writes * TICK * disk.drawn())
        look = PaceLook(
            TICK,
            count,
            count * latency * disk.drawn(),
            in_flight=round(writes * latency),
            reads=ended,
            read_bytes=ended * READ_BYTES,
            reading_seconds=ended * one,
            held_seconds=TICK * (1 - share),
            bytes_left=int(left),
            deadline_seconds=seconds_left(course.seconds),
        )
        pace = pace.after(look)
        course.abort = pace.abort
        if pace.abort is not None:
            break
    return course


def _step(disk: SimulatedDisk, course: Course, reading: float, tick: float = TICK) -> tuple[float, float, float]:
    writes, latency, reads = disk.state(course.seconds, reading)
    alone = disk.state(course.seconds, 0.0)[1]
    load = disk.load(course.seconds)
    usual = load.writers * disk.write_seconds if load.writers else disk.write_seconds / (1 - min(0.96, load.busy))
    cost = tick * max(0.0, writes * (latency - usual))
    course.costs.append(cost)
    course.cost += cost
    course.ratios.append(latency / alone if alone else 1.0)
    course.seconds += tick
    return writes, reads * tick / disk.read_seconds * READ_BYTES, latency
