"""GTID sets as values: two texts are the same set whatever their order, case, spaces and splits.

Knows: MariaDB's `0-1-41,1-7-3` and MySQL's `uuid:1-5:7,uuid:tag:1-3` (tags from 8.3; a tag holds for the intervals
after it).
"""

import re
from collections import defaultdict

from backupd.vocabulary.errors import ServerError

Interval = tuple[int, int]  # first and last, both included

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PART = r"(?:[a-z_][a-z0-9_]{0,31}|[0-9]{1,20}(?:-[0-9]{1,20})?)"  # a tag, or an interval
_ITEM = rf"(?:{_UUID}(?::{_PART})+|[0-9]{{1,10}}-[0-9]{{1,10}}-[0-9]{{1,20}})"
_SET = re.compile(rf"(?:{_ITEM}(?:,{_ITEM})*,?)?", re.ASCII | re.IGNORECASE)


def is_set(text: str) -> bool:
    """Whether it is a set as servers write them, on one line and without blanks. No text is the empty one."""
    return _SET.fullmatch(text) is not None


def same(one: str | None, other: str | None) -> bool:
    """Whether both texts are the same set. No text is the empty one.

    Raises:
        ServerError: one of them is no set.
    """
    return members(one) == members(other)


def members(text: str | None) -> dict[str, tuple[Interval, ...]]:
    """By source (`uuid` or `uuid:tag`; of MariaDB the whole GTID) the intervals, in order and merged.

    Raises:
        ServerError: it is no set.
    """
    one_line = "".join((text or "").split()).lower()
    if not is_set(one_line):
        raise ServerError(f"this is not a set of GTIDs: {text!r:.80}", hint="is it a MariaDB or MySQL server?")
    found: dict[str, list[Interval]] = defaultdict(list)
    for item in filter(None, one_line.split(",")):
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
