"""How fast a snapshot was read, and why: each change of it in words."""

from collections.abc import Sequence

from backupd.report.words import columns, duration, size
from backupd.vocabulary.penalty import PaceChange


def pace_table(changes: Sequence[PaceChange]) -> str:
    """A line for each change: since the snapshot, of full speed, about how much a second, why."""
    return columns(
        ((duration(change.at_seconds), *_speed(change), change.reason) for change in changes), right=(0, 1, 2)
    )


def pace_words(change: PaceChange) -> str:
    """One change in a line."""
    share, rate = _speed(change)
    return f"{share}{f' ({rate})' if rate else ''}: {change.reason}"


def _speed(change: PaceChange) -> tuple[str, str]:
    rate = "" if change.bytes_per_second is None else f"{size(change.bytes_per_second)}/s"
    return f"{change.share:.0%}", rate
