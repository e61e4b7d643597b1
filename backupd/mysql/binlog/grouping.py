"""Where a transaction begins and ends in a binlog: the one place that decides it.

Knows: MariaDB's groups, which a GTID event begins and says of whether they are one statement without COMMIT; MySQL's,
which begin with a GTID or an anonymous one, and of which the first statement tells. Refuses to know offsets and files.
"""

from typing import Final

from backupd.mysql.binlog import layout

_STANDALONE = 1  # MariaDB's flag of a group that is one statement without COMMIT: DDL, XA COMMIT
_WITHIN_STANDALONE: Final = frozenset(  # rows, maps, variables and annotations
    (*range(17, 27), *range(29, 33), 5, 13, 14, 39, 160, *range(166, 172))
)
_QUERIES: Final = frozenset((layout.QUERY, layout.QUERY_COMPRESSED))
_LAST: Final = frozenset((layout.XID, layout.XA_PREPARE, layout.TRANSACTION_PAYLOAD, layout.INCIDENT))
_OF_TRANSACTIONS: Final = _WITHIN_STANDALONE | layout.BEGINNINGS | _QUERIES | _LAST
_QUERY_HEAD = 13  # bytes: thread, seconds, length of the schema's name, error, length of the status variables
_BEGINS = (b"BEGIN", b"XA START", b"XA BEGIN")
_ENDS = (b"COMMIT", b"ROLLBACK")

#: What an event has to be read of, for its group to be told; of all others the type says enough.
TELLING: Final = frozenset((layout.QUERY, layout.QUERY_COMPRESSED, layout.MARIADB_GTID))

#: What never ends a transaction that is open, nor says anything of one.
MORE_OF_ONE: Final = _WITHIN_STANDALONE - _LAST


class Grouping:
    """Follows the events of one file, from between two transactions on."""

    def __init__(self) -> None:
        self.within = False  # a transaction is open
        self._standalone = False
        self._undecided = False  # MySQL's: its first statement tells what it is

    def follow(self, kind: int, body: bytes | memoryview) -> bool:
        """Whether a transaction ends with this event, or is this event; the body is looked at of `TELLING` types.

        It may be cut off behind its first 64 KiB, and may still have its checksum. Of logs without GTIDs, whatever
        belongs to a transaction begins one.
        """
        if kind in layout.BETWEEN_TRANSACTIONS or not (self.within or kind in _OF_TRANSACTIONS):
            return False
        if kind in layout.BEGINNINGS:
            self.within = True
            self._standalone = kind == layout.MARIADB_GTID and standalone(body)
            self._undecided = kind != layout.MARIADB_GTID
            return False
        if not self.within:
            self._standalone, self._undecided = False, True
        ended = self._ends(kind, body)
        self.within = not ended
        return ended

    def _ends(self, kind: int, body: bytes | memoryview) -> bool:
        if kind in _LAST:
            return True
        if self._standalone:
            return kind not in _WITHIN_STANDALONE
        if kind not in _QUERIES:
            return False
        said = query_text(body)
        undecided, self._undecided = self._undecided, False
        return _is(said, _ENDS) or (undecided and not said.startswith(_BEGINS))


def standalone(body: bytes | memoryview) -> bool:
    """Whether the group that this event of MariaDB's begins is one statement without COMMIT."""
    return len(body) > 12 and bool(body[12] & _STANDALONE)


def query_text(body: bytes | memoryview, most: int = 64) -> bytes:
    """The first `most` bytes of what a Query event says, as it is stored; empty where it is damaged."""
    at = query_text_offset(body)
    return bytes(body[at : at + most])


def query_text_offset(body: bytes | memoryview) -> int:
    """Where a Query event's text begins: behind its head, its status variables and the schema's name."""
    if len(body) < _QUERY_HEAD:
        return len(body)
    return _QUERY_HEAD + int.from_bytes(body[11:13], "little") + body[8] + 1


def _is(said: bytes, words: tuple[bytes, ...]) -> bool:
    return said in words or said[: -layout.CHECKSUM_BYTES] in words
