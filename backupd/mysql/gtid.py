"""GTID sets as values: two texts are the same set whatever their order, case, spaces and splits.

Knows: MariaDB's `0-1-41,1-7-3` and MySQL's `uuid:1-5:7,uuid:tag:1-3` (tags from 8.3; a tag holds for the intervals
after it). Refuses to know servers.
"""

from collections import defaultdict

Interval = tuple[int, int]  # first and last, both included


def same(one: str | None, other: str | None) -> bool:
    """Whether both texts are the same set. No text is the empty one."""
    return members(one) == members(other)


def members(text: str | None) -> dict[str, tuple[Interval, ...]]:
    """By source (`uuid` or `uuid:tag`; of MariaDB the whole GTID) the intervals, in order and merged."""
    found: dict[str, list[Interval]] = defaultdict(list)
    for item in filter(None, "".join((text or "").split()).lower().split(",")):
        uuid, *parts = item.split(":")
        source = uuid
        if not parts:
            found[source] = []
        for part in parts:
            if not part[:1].isdigit():
                source = f"{uuid}:{part}"
                continue
            first, _, last = part.partition("-")
            found[source].append((int(first), int(last or first)))
    return {source: _merged(intervals) for source, intervals in found.items()}


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
