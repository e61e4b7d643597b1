"""How a probe goes, on stderr: what it will cost, each step, and on a terminal what each PV does."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from backupd.cli.output import tell
from backupd.operations.measure.ground import Ground
from backupd.operations.measure.probe_steps import ProbeTelling
from backupd.policy.probe_plan import ProbeCost
from backupd.policy.snapshot_plan import free_bytes
from backupd.report.words import duration, many, size
from backupd.vocabulary.escaping import plain

_BAR = 20  # characters


@contextmanager
def probe_progress(*, quiet: bool) -> Iterator[ProbeTelling]:
    """Tell a probe's progress while the block lasts; what it will cost is told even when it is to be quiet."""
    if quiet:
        yield ProbeTelling(bill=_bill)
    elif sys.stderr.isatty():
        with _display() as telling:
            yield telling
    else:
        yield ProbeTelling(bill=_bill, step=tell)


def disk_lines(rates: Mapping[str, float], latency_ms: float) -> list[str]:
    """A line for each PV, with a bar as long as its share, and one for the volume."""
    total, widest = sum(rates.values()), max(map(len, rates), default=0)
    lines = []
    for pv, rate in rates.items():
        share = rate / total if total else 0.0
        bar = "#" * round(share * _BAR)
        lines.append(f"  {pv:{widest}}  {bar:{_BAR}}  {share:4.0%}  {rate:6.0f} requests/s")
    return [*lines, f"  a write to the volume takes {latency_ms:.1f} ms"]


def _bill(bill: ProbeCost, ground: Ground) -> None:
    volume, free = ground.volume, free_bytes(ground.volume, ground.group)
    tell(f"probing {volume.full_name} ({volume.layout}, {ground.mount.filesystem} on {ground.mount.path})")
    if bill.file_bytes:
        again = f", {many(bill.rewrites, 'time')} again" if bill.rewrites else ""
        tell(
            f"writes a file of {size(bill.file_bytes)} there{again}, then writes into it for at most"
            f" {duration(bill.writing_seconds)} as fast as the disks allow"
            f" ({size(bill.written_bytes(10 << 20))} at 10 MiB/s)"
        )
    else:
        tell("writes nothing itself")
    where = f"{volume.vg}/{volume.pool.name}" if volume.pool is not None else volume.vg
    count = many(bill.snapshots, "snapshot")
    tell(f"takes {count} in all, at most {size(bill.cow_bytes)} of {where}'s free {size(free)} at once")
    tell(f"measures for at most {duration(bill.seconds)}; Ctrl-C stops and cleans up")


@contextmanager
def _display() -> Iterator[ProbeTelling]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    shown = {"step": "", "disks": ""}
    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:

        def refresh() -> None:
            live.update(Text(plain("\n".join(filter(None, shown.values())))))

        def step(words: str) -> None:
            shown["step"] = words
            refresh()

        def disks(rates: Mapping[str, float], latency_ms: float) -> None:
            shown["disks"] = "\n".join(disk_lines(rates, latency_ms))
            refresh()

        yield ProbeTelling(bill=_bill, step=step, disks=disks)
