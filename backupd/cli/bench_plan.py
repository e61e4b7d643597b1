"""What a bench will do, told before it does it, and the question whether it may."""

import sys
from collections.abc import Iterable, Iterator

from backupd.report.probe_combinations import short_pv
from backupd.report.words import columns, duration, many, size
from backupd.vocabulary.benches import BenchPlan, PlannedLayout, PublishedTable
from backupd.vocabulary.errors import Cancelled, UsageError
from backupd.vocabulary.scratch_layouts import LayoutKind

_YES = ("y", "yes")


def plan_lines(
    plan: BenchPlan, *, tables: Iterable[PublishedTable], repeat: int, free: int | None, name: str
) -> Iterator[str]:
    """Everything that is made, written and taken, line by line.

    `free` is what the volume group has, in bytes; None on named disks. `name` is what the names of all scratch volumes
    begin with, and the name of groups and arrays on named disks.
    """
    loads = sum(len(volume.cells) for volume in plan.volumes)
    volumes, names = many(len(plan.volumes), "scratch volume"), [table.value for table in tables]
    named = f"table{'s' if len(names) > 1 else ''} {', '.join(names)}"
    if free is None:
        yield f"makes {volumes} on the whole of {', '.join(plan.disks)}, which are empty before and afterwards."
        yield f"One after the other, in a group or as an array called {name}; each is removed before the next:"
    else:
        yield f"makes {volumes} in free extents of {plan.vg}; no existing volume is touched."
        yield f"One after the other, called {name}-LAYOUT; each is removed before the next:"
    yield columns(_row(volume) for volume in plan.volumes)
    if free is not None:
        beside = ", snapshot included" if plan.snapshots else ""
        yield f"takes at most {size(plan.taken)} of the free {size(free)} at once{beside}"
    yield (
        f"measures {many(loads, 'load')} ({named}) on a file of {size(plan.file_size)} in {plan.filesystem},"
        f" each {many(repeat, 'time')}"
    )
    if plan.snapshots:
        yield "takes snapshots of each scratch volume, to see what they cost and how fast they are read"
    yield (
        f"writes at most {size(plan.written)}, and takes about {duration(plan.seconds)} if each disk writes"
        f" {plan.disk_rate / 1e6:.0f} MB/s;"
    )
    yield "slower disks take longer; on faster disks more is written"
    yield from (f"note: {words}" for words in plan.notes)
    yield "Ctrl-C stops and cleans up"


def require_consent(*, yes: bool) -> None:
    """Somebody has said that it may be done.

    Raises:
        UsageError: there is nobody to ask.
        Cancelled: the answer was not yes.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("confirmation is needed, and stdin is not a terminal", hint="--yes confirms without asking")
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    if sys.stdin.readline().strip().lower() not in _YES:
        raise Cancelled("cancelled: the answer was no", hint="nothing was touched")


def _row(volume: PlannedLayout) -> tuple[str, ...]:
    layout = volume.layout
    taken = "the whole disks" if layout.kind is LayoutKind.RAID0 else size(volume.size)
    return (
        f"  {layout.name}",
        taken,
        many(len(volume.cells), "load"),
        f"on {', '.join(map(short_pv, layout.disks))}",
    )
