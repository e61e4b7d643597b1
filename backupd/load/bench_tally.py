"""From the windows of a load to the figures of its cell. Pure."""

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from backupd.load.disk_watch import Usage
from backupd.vocabulary.benches import Cell, CellResult
from backupd.vocabulary.penalty import Window


def cell_result(layout: str, cell: Cell, measured: Sequence[tuple[Window, Usage]]) -> CellResult:
    """Medians over the repeats. A record that is read and written back counts once.

    The shares are those of the window in the middle: they add up as the disks' requests did, and a window in which the
    file system wrote its own journal (XFS does every 30 s, in whole stripes) is hardly that one.
    """
    rates = [max(window.bytes_read, window.bytes_written) / window.seconds for window, _ in measured]
    middle = median(rates)
    usages = [usage for _, usage in measured]
    in_the_middle = sorted(range(len(rates)), key=rates.__getitem__)[(len(rates) - 1) // 2]
    return CellResult(
        layout=layout,
        operation=cell.operation,
        record=cell.record,
        threads=cell.threads,
        medium=cell.medium,
        iops=median(window.iops for window, _ in measured),
        bytes_per_second=middle,
        spread=(max(rates) - min(rates)) / middle if middle else 0.0,
        repeats=len(measured),
        latency_p95_ms=median(window.latency_p95_ms for window, _ in measured),
        shares=usages[in_the_middle].shares,
        system=_mean(usage.system for usage in usages),
        iowait=_mean(usage.iowait for usage in usages),
    )


def _mean(shares: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None
