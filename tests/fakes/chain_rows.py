"""The rows that the catalogue would make of segments, for tests that have no catalogue."""

from collections.abc import Iterable

from backupd.policy.binlog_chain import ChainRow, leads_on
from backupd.vocabulary.binlogs import BinlogSegment


def rows(segments: Iterable[BinlogSegment]) -> tuple[ChainRow, ...]:
    """All rows without a gap, as long as they can be, by chain and number; the order of the segments means nothing.

    A segment that is there several times counts once. Where its copies differ in what they say of it, it is in no row.
    """
    by_name: dict[tuple[str, str, str, int], BinlogSegment] = {}
    ambiguous: set[tuple[str, str, str, int]] = set()
    for segment in segments:
        key = (segment.machine, segment.job, segment.chain, segment.number)
        if by_name.setdefault(key, segment).digest != segment.digest:
            ambiguous.add(key)
    found: list[ChainRow] = []
    row: list[BinlogSegment] = []
    for key in sorted(by_name):
        segment = by_name[key]
        if row and (reason := _parts(row[-1], segment, key in ambiguous)):
            found.append(ChainRow(tuple(row), "" if row[-1].chain != segment.chain else reason))
            row = []
        if key not in ambiguous:
            row.append(segment)
    return (*found, *([ChainRow(tuple(row), "")] if row else []))


def _parts(before: BinlogSegment, after: BinlogSegment, ambiguous: bool) -> str:
    return f"{after.name} is there with different contents" if ambiguous else leads_on(before, after)
