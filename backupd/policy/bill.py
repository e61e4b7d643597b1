"""What a backup cost its server, from what was recorded: transactions, seconds of writing, bytes copied on write.

Pure: from series to figures. Knows: which of a server's counters stands for a transaction, what may be believed of a
series, and how sure an estimate is.

**What is a transaction.** Tried on MariaDB 10.11.19 and MySQL 9.7.4, with InnoDB. `Handler_commit` is none: it counts
each statement's end as well as the COMMIT, reads included, and each of them once for every engine that takes part; and
the binlog is one of them. An INSERT in autocommit counted 2 with the binlog (1 without), a transaction of three
writing statements 8 (4), one of two SELECTs 3. `Com_commit` lacks what is written in autocommit, and counts COMMITs
after reads. What is exact is the binlog's own books: `Binlog_cache_use` + `Binlog_stmt_cache_use` grew by 1 for each of
them that wrote something, whether by autocommit, explicitly, prepared or in a procedure, and by 0 for reads; by 1 also
for what was rolled back. Where the binlog is off, and on a replica that does not write what it applies to a binlog of
its own, the statements remain: `Com_commit` where clients commit, else the number of writing statements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median

from backupd.vocabulary.penalty import Counted, Losses, Sample

_FEWEST_STEPS = 3  # before the lock: of fewer no spread can be told
_STATEMENTS_A_COMMIT = 20  # where there is a COMMIT for so many writing statements, it is by COMMIT that clients write
_JUMP = 20.0  # times the usual rate: a counter that grows faster has jumped
_LEAST_USUAL = 50.0  # a second: below it, bursts are no jumps
_SLACK_SECONDS = 2.0  # the server tells whole seconds of its uptime
_SURE = 2.0  # standard deviations


@dataclass(frozen=True, slots=True)
class Count:
    """What a server had counted at one instant, since it was started."""

    at: float  # seconds, of a clock that never jumps
    uptime_seconds: int
    logged: int  # transactions, and statements outside one, in the binlog's books
    commits: int
    statements: int  # that write


@dataclass(frozen=True, slots=True)
class _Step:
    """From one look to the next, where both can be believed."""

    seconds: float
    done: int

    @property
    def rate(self) -> float:
        return self.done / self.seconds


def losses(before: Sequence[Count], during: Sequence[Count], after: Sequence[Count] = ()) -> Losses | None:
    """What the server did from the first look of `during` to its last, beside what it did a second `before`.

    Lost is rate before * seconds - done. The noise is two standard deviations of that where nothing is lost: the rate
    is known from few seconds, and the server does not do the same in each. With `v` the variance of one second's count
    (at least that of a Poisson process), B seconds before and T during, it is 2 √(v (T² ÷ B + T)). A rate that drifts
    by itself is not in it: the rate after is told beside.

    Steps over a restart, of counters that stand still while the clock runs on, and over a jump are left out; what the
    others cover is `seconds`. A gap between two looks is none: counters go on counting. None where there are fewer
    than three steps before, or none during.
    """
    counted = _counted(before)
    steps = _plausible(list(_steps(before, counted)))
    if len(steps) < _FEWEST_STEPS:
        return None
    base_seconds = sum(step.seconds for step in steps)
    rate = sum(step.done for step in steps) / base_seconds
    meanwhile = _plausible(list(_steps(during, counted)), usual=rate)
    seconds = sum(step.seconds for step in meanwhile)
    if seconds <= 0:
        return None
    afterwards = _plausible(list(_steps(after, counted)), usual=rate)
    return Losses(
        counted=counted,
        seconds=seconds,
        rate_before=rate,
        rate_after=_rate(afterwards) if len(afterwards) >= _FEWEST_STEPS else None,
        done=sum(step.done for step in meanwhile),
        noise=_SURE * sqrt(_variance(steps, rate) * (seconds**2 / base_seconds + seconds)),
    )


def penalty_seconds(samples: Sequence[Sample], life_seconds: float) -> float | None:
    """Seconds of writing that the snapshot's life cost: ∑ (1 - what writes could do ÷ baseline) dt over that life.

    What writes could do is 1 ÷ ratio of the probe's last window, and before the first window that of the first. Where
    no probe ran, it is the baseline's mean write latency ÷ that of the kernel's counters since the last look; a look
    without writes says what the one before said. Never below 0: writes that were faster than before give nothing back.
    None where neither was measured.
    """
    since = [sample for sample in samples if sample.stage != "baseline"]
    shares = [(sample.at_seconds, 1 - 1 / sample.ratio) for sample in since if sample.ratio]
    shares = shares or _by_latency(samples, since)
    if not shares:
        return None
    ends = [at for at, _ in shares[1:]] + [max(life_seconds, shares[-1][0])]
    begins = [0.0, *ends[:-1]]
    return sum(max(0.0, share) * (end - begin) for (_, share), begin, end in zip(shares, begins, ends, strict=True))


def copied_on_write(samples: Sequence[Sample], *, pooled: bool) -> int | None:
    """Bytes that were written to keep the snapshot, its metadata included; None where nobody could see.

    A COW area only grows, so that all of it is the snapshot's; of a thin pool, which is everybody's, what it grew by
    between the looks.
    """
    used = [sample.cow_used for sample in samples if sample.cow_used is not None]
    if not used:
        return None
    grown = sum(max(0, later - earlier) for earlier, later in pairwise(used))
    return grown if pooled else used[0] + grown


def _by_latency(samples: Sequence[Sample], since: Sequence[Sample]) -> list[tuple[float, float]]:
    usual = [sample.write_latency_ms for sample in samples if sample.stage == "baseline" and sample.write_latency_ms]
    if not usual:
        return []
    latencies = ((sample.at_seconds, sample.write_latency_ms) for sample in since)
    return [(at, 1 - median(usual) / latency) for at, latency in latencies if latency]


def _counted(before: Sequence[Count]) -> Counted:
    """By what grew: the binlog's books, or what clients sent."""
    grown = {counted: sum(step.done for step in _steps(before, counted)) for counted in Counted}
    if grown[Counted.LOGGED] or not (grown[Counted.COMMITS] or grown[Counted.STATEMENTS]):
        return Counted.LOGGED
    by_commit = grown[Counted.COMMITS] * _STATEMENTS_A_COMMIT >= grown[Counted.STATEMENTS]
    return Counted.COMMITS if by_commit else Counted.STATEMENTS


def _steps(counts: Sequence[Count], counted: Counted) -> Iterator[_Step]:
    for earlier, later in pairwise(counts):
        seconds, done = later.at - earlier.at, _value(later, counted) - _value(earlier, counted)
        passed = later.uptime_seconds - earlier.uptime_seconds
        if seconds > 0 and done >= 0 and passed >= seconds - _SLACK_SECONDS and passed >= 0:
            yield _Step(seconds, done)


def _value(count: Count, counted: Counted) -> int:
    return {Counted.LOGGED: count.logged, Counted.COMMITS: count.commits, Counted.STATEMENTS: count.statements}[counted]


def _plausible(steps: Sequence[_Step], *, usual: float | None = None) -> list[_Step]:
    """Without those in which the counter has jumped; `usual` is the rate, by default these steps' own median."""
    if usual is None:
        usual = median(step.rate for step in steps) if steps else 0.0
    return [step for step in steps if step.done <= _JUMP * max(_LEAST_USUAL, usual) * max(1.0, step.seconds)]


def _rate(steps: Sequence[_Step]) -> float:
    return sum(step.done for step in steps) / sum(step.seconds for step in steps)


def _variance(steps: Sequence[_Step], rate: float) -> float:
    """Of what is done in one second."""
    spread = sum((step.done - rate * step.seconds) ** 2 / step.seconds for step in steps) / (len(steps) - 1)
    return max(spread, rate)
