"""A binlog archive in few segments: what can be restored is told by those that backups lie in, and by where rows end.

Knows: that segments of one binlog that follow one another without a gap, and in which no backup lies, are as good as
one that reaches from the first to the last. An archive may have a million segments; of it as many are held as backups
and binlogs make. Pure values.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from backupd.policy.binlog_chain import ChainRow, PlacedBackup, follows, is_same_server
from backupd.policy.segment_file import FIRST_OFFSET
from backupd.vocabulary.binlogs import BinlogSegment

_Piece = tuple[BinlogSegment, BinlogSegment, BinlogSegment]  # the first, the last, and one that is as good as all


def condensed_rows(segments: Iterable[BinlogSegment], backups: Iterable[PlacedBackup]) -> tuple[ChainRow, ...]:
    """As `rows` of all of a job's segments, for whoever looks for what follows these backups.

    The segments, of which each comes once, are read one after the other; little is held where they come as they were
    received.
    """
    places = _places(backups)
    pieces: dict[str, list[_Piece]] = defaultdict(list)
    for segment in segments:
        told = replace(segment, changes=(), signature=None)
        of_chain = pieces[segment.chain]
        joined = _joined(of_chain[-1], told, places) if of_chain else None
        if joined is None:
            of_chain.append((told, told, told))
        else:
            of_chain[-1] = joined
    return tuple(row for chain in sorted(pieces) for row in _rows(pieces[chain]))


def _places(backups: Iterable[PlacedBackup]) -> dict[str, list[int]]:
    """By binlog, in which offsets backups lie."""
    found: dict[str, set[int]] = defaultdict(set)
    for backup in backups:
        found[backup.place.file].add(backup.place.offset)
    return {file: sorted(offsets) for file, offsets in found.items()}


def _joined(piece: _Piece, segment: BinlogSegment, places: dict[str, list[int]]) -> _Piece | None:
    first, last, whole = piece
    if last.file != segment.file or not is_same_server(last.origin, segment.origin) or follows(last, segment):
        return None
    if last.start == FIRST_OFFSET:  # a backup at the end of the binlog before it asks when this one was received
        return None
    if _has_any(places.get(segment.file, ()), first.start, segment.end):
        return None
    joined = replace(
        whole,
        end=segment.end,
        file_ended=segment.file_ended,
        gtid_end=segment.gtid_end,
        gtid_state=segment.gtid_state,
        within_transaction=segment.within_transaction,
        first_at=whole.first_at or segment.first_at,
        last_at=segment.last_at or whole.last_at,
        received_at=segment.received_at,
        digest=segment.digest,
    )
    return first, segment, joined


def _has_any(offsets: Sequence[int], start: int, end: int) -> bool:
    return bisect_left(offsets, start) < bisect_right(offsets, end)


def _rows(pieces: Sequence[_Piece]) -> list[ChainRow]:
    """A clock that was set back puts segments into another order than that of their numbers."""
    found: list[ChainRow] = []
    row: list[_Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece[0].number):
        if row and (reason := follows(row[-1][1], piece[0])):
            found.append(_row(row, reason))
            row = []
        row.append(piece)
    return [*found, _row(row, "")]


def _row(pieces: Sequence[_Piece], ended: str) -> ChainRow:
    return ChainRow(tuple(whole for _, _, whole in pieces), ended)
