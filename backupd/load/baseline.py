"""What writes cost before the snapshot: by windows of a probe, or by the kernel's counters alone.

Knows: how many looks make a baseline, and what a look at the counters says.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from backupd.load import WriteProbe
from backupd.policy.settle_gate import BASELINE
from backupd.vocabulary.errors import CommandError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.penalty import Sample, Window


class PassiveMeter:
    """How long writes to a disk took, from one reading of the kernel's counters to the next; no load of ours.

    Counters that cannot be read, or none at all, are no measurement; the first reason for it is kept as `trouble`.
    """

    def __init__(self, read: Callable[[], DiskCounters] | None) -> None:
        self.trouble: str | None = None
        self._read = read
        self._last: DiskCounters | None = None

    def look(self) -> float | None:
        """Milliseconds that a write took on average since the last look; None at the first one, and without writes."""
        if self._read is None:
            return None
        before, self._last = self._last, None
        try:
            self._last = self._read()
        except (CommandError, UnexpectedOutput) as error:
            self.trouble = self.trouble or error.message
            return None
        return self._last.since(before).write_latency_ms if before is not None else None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What writes cost before the snapshot."""

    iops: float | None  # the windows' median; None without a probe
    spread: float  # (highest - lowest) ÷ median
    bytes_written: int
    samples: tuple[Sample, ...]  # `at_seconds` counts back from the baseline's own end, thus is 0 or below
    write_latency_ms: float | None = None  # of all writes, median; with a probe that of its windows


def measure_baseline(
    probe: WriteProbe,
    folder: Path,
    *,
    windows: int,
    seconds: float,
    meter: PassiveMeter | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Baseline:
    """Run so many windows on the prepared probe file, one after the other.

    Raises:
        CommandError: a window failed, or no window managed a single write.
        UnexpectedOutput: the probe printed what we do not know.
    """
    meter = meter or PassiveMeter(None)
    measured: list[tuple[float, Window, float | None]] = []
    for _ in range(max(1, windows)):
        meter.look()
        window = probe.window(folder, seconds)
        measured.append((clock(), window, meter.look()))
    ended = measured[-1][0]
    iops = [window.iops for _, window, _ in measured]
    middle = median(iops)
    if middle <= 0:
        raise CommandError(
            f"no write to the probe file in {folder} finished within {seconds:g} s",
            hint="the disk may have stalled: check the kernel log (dmesg)",
        )
    samples = tuple(window_sample(window, at - ended, BASELINE, latency=latency) for at, window, latency in measured)
    written = sum(window.bytes_written for _, window, _ in measured)
    return Baseline(middle, (max(iops) - min(iops)) / middle, written, samples, _typical(samples))


def watch_baseline(
    meter: PassiveMeter,
    *,
    looks: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Baseline:
    """Watch the kernel's counters for so many stretches of so many seconds; nothing is written."""
    meter.look()
    seen: list[tuple[float, float | None]] = []
    for _ in range(max(1, looks)):
        pause(seconds)
        latency = meter.look()
        seen.append((clock(), latency))
    ended = seen[-1][0]
    samples = tuple(Sample(at - ended, BASELINE, write_latency_ms=latency) for at, latency in seen)
    return Baseline(None, 0.0, 0, samples, _typical(samples))


def window_sample(
    window: Window, at_seconds: float, stage: str, *, ratio: float | None = None, latency: float | None = None
) -> Sample:
    """What a window of the probe says; whoever knows more of that moment adds it."""
    return Sample(
        at_seconds=at_seconds,
        stage=stage,
        iops=window.iops,
        ratio=ratio,
        latency_p95_ms=window.latency_p95_ms,
        probe_bytes=window.bytes_written,
        write_latency_ms=latency,
    )


def _typical(samples: tuple[Sample, ...]) -> float | None:
    latencies = [sample.write_latency_ms for sample in samples if sample.write_latency_ms is not None]
    return median(latencies) if latencies else None
