"""GTID sets as values: two texts are the same set whatever their order, case, spaces and splits.

Knows: MariaDB's `0-1-41,1-7-3` and MySQL's `uuid:1-5:7,uuid:tag:1-3` (tags from 8.3; a tag holds for the intervals
after it). How far a server's log has got is such a set; MariaDB's has the last transaction of each domain, or of each
domain's servers, and numbers grow within a domain.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from backupd.vocabulary.errors import ServerError

Interval = tuple[int, int]  # first and last, both included
OneGtid = tuple[int, int, int] | tuple[str, int]  # MariaDB's domain, server, number; `uuid` or `uuid:tag`, number

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PART = r"(?:[a-z_][a-z0-9_]{0,31}|[0-9]{1,20}(?:-[0-9]{1,20})?)"  # a tag, or an interval
_MARIADB = r"[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,20}"
_ITEM = rf"(?:{_UUID}(?::{_PART})+|{_MARIADB})"
_MARIADB_DASHES = 2
_MARIADB_PARTS: Final = 3
_ONE = re.compile(rf"{_UUID}:(?:[a-z_][a-z0-9_]{{0,31}}:)?[0-9]{{1,20}}|{_MARIADB}", re.ASCII | re.IGNORECASE)
_SET = re.compile(rf"(?:{_ITEM}(?:,{_ITEM})*,?)?", re.ASCII | re.IGNORECASE)


def is_set(text: str) -> bool:
    """Whether it is a set as servers write them, on one line and without blanks. No text is the empty one."""
    return _SET.fullmatch(text) is not None


def is_one(text: str) -> bool:
    """Whether it names a single transaction, as servers write it: without zeros before its number."""
    return _ONE.fullmatch(text) is not None and not text.rpartition(":")[2].rpartition("-")[2].startswith("0")


def written(one: OneGtid) -> str:
    """As servers write it."""
    return ("-" if len(one) == _MARIADB_PARTS else ":").join(map(str, one))


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


def text(sources: Mapping[str, Sequence[Interval]]) -> str:
    """MySQL's set of these intervals by `uuid` or `uuid:tag`, as the server writes it, on one line.

    Of one UUID what has no tag comes first, and its tags follow in their order.
    """
    written: list[str] = []
    before = ""
    for source in sorted(source for source, intervals in sources.items() if intervals):
        uuid, _, tag = source.partition(":")
        parts = [f"{first}-{last}" if last > first else str(first) for first, last in sources[source]]
        if uuid == before:
            written[-1] += ":" + ":".join([tag, *parts])
        else:
            written.append(":".join([uuid, *filter(None, [tag]), *parts]))
        before = uuid
    return ",".join(written)


class ExecutedGtids:
    """What one server has executed, as its log tells it, one transaction after another: MySQL's set.

    Adding a number that follows those before it costs the same however large the set is.
    """

    def __init__(self, executed: str = "") -> None:
        self._sources = {source: list(intervals) for source, intervals in members(executed).items()}

    def add_gtid(self, gtid: OneGtid) -> None:
        """This one is in it.

        Raises:
            ServerError: it is not a MySQL GTID.
        """
        if len(gtid) == _MARIADB_PARTS:
            raise ServerError(f"{written(gtid)} is not a MySQL GTID", hint="is the server MariaDB's?")
        source, number = gtid
        self.add(source, number, number)

    def add(self, source: str, first: int, last: int) -> None:
        """These numbers of `uuid` or `uuid:tag` are in it, both ends included."""
        intervals = self._sources.setdefault(source, [])
        if intervals and intervals[-1][0] <= first <= intervals[-1][1] + 1:
            intervals[-1] = (intervals[-1][0], max(last, intervals[-1][1]))
        elif not intervals or first > intervals[-1][1]:
            intervals.append((first, last))
        else:
            self._sources[source] = list(_merged([*intervals, (first, last)]))

    def include(self, executed: str) -> None:
        """All of this set are in it as well.

        Raises:
            ServerError: it is none.
        """
        for source, intervals in members(executed).items():
            self._sources[source] = list(_merged([*self._sources.get(source, ()), *intervals]))

    def __str__(self) -> str:
        return text(self._sources)


class BinlogGtids:
    """MariaDB's `gtid_binlog_pos`: of each domain the last transaction that is in the log. And `gtid_binlog_state`,
    that of each domain's every server, where it is known.
    """

    def __init__(self, executed: str = "", *, state: str = "") -> None:
        self._last: dict[int, tuple[int, int]] = {}  # by domain: server and number
        self._state: dict[tuple[int, int], int] | None = None  # by domain and server
        for entry in _entries(executed):
            self.add(*entry)
        if state:
            self._state = state_of(state)

    @classmethod
    def of_list(cls, entries: Iterable[tuple[int, int, int]]) -> "BinlogGtids":
        """As a file's beginning has them: domain, server and number. Of one domain the last entry is its last one."""
        found = cls()
        found._state = {}
        for entry in entries:
            found.add(*entry)
        return found

    def add_gtid(self, gtid: OneGtid) -> None:
        """This one is the last of its domain.

        Raises:
            ServerError: it is not a MariaDB GTID.
        """
        if len(gtid) != _MARIADB_PARTS:
            raise ServerError(f"{written(gtid)} is not a MariaDB GTID", hint="is the server MySQL's?")
        self.add(*gtid)

    def add(self, domain: int, server: int, number: int) -> None:
        """This one is the last of its domain."""
        self._last[domain] = server, number
        if self._state is not None:
            self._state[domain, server] = number

    @property
    def state(self) -> str:
        """Of each domain's every server the last transaction; empty where it is not known, or there is none."""
        return ",".join(f"{domain}-{server}-{n}" for (domain, server), n in sorted((self._state or {}).items()))

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))


def state_of(text: str) -> dict[tuple[int, int], int]:
    """By domain and server the number of its last transaction: MariaDB's `gtid_binlog_state`.

    Raises:
        ServerError: it is no such set.
    """
    found: dict[tuple[int, int], int] = {}
    for domain, server, number in _entries(text):
        found[domain, server] = max(number, found.get((domain, server), 0))
    return found


def _entries(text: str) -> Iterator[tuple[int, int, int]]:
    """Of MariaDB's set: domain, server and number."""
    for gtid in members(text):
        if gtid.count("-") != _MARIADB_DASHES:
            raise ServerError(f"this is not a set of MariaDB's GTIDs: {text!r:.80}", hint="is it MySQL's?")
        domain, server, number = map(int, gtid.split("-"))
        yield domain, server, number


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def holds(text: str | None, one: str) -> bool:
    """Whether a log that has got as far as this set has the single transaction `one` behind it.

    Raises:
        ServerError: one of them is no set.
    """
    return is_within(one, text)


def source_and_number(one: str) -> tuple[str, int]:
    """Of a single transaction: its source, or MariaDB's domain, and its number there."""
    if ":" in one:
        source, _, number = one.lower().rpartition(":")
        return source, int(number)
    domain, _, number = one.split("-")
    return domain, int(number)


def behind(text: str | None) -> dict[str, tuple[Interval, ...]]:
    """By source the numbers that a log has behind it that has got as far as this set: as `members`, but of MariaDB by
    domain, of each of which all numbers up to the highest.

    Raises:
        ServerError: it is no set.
    """
    found: dict[str, tuple[Interval, ...]] = {}
    for source, intervals in members(text).items():
        if intervals:
            found[source] = intervals
            continue
        domain, _, number = source.split("-")
        highest = max(int(number), *(last for _, last in found.get(domain, ((0, 0),))))
        found[domain] = ((0, highest),)
    return found


def lasts(text: str | None) -> Iterator[str]:
    """Single transactions of the set, of which the one that was executed last is one.

    Raises:
        ServerError: it is no set.
    """
    for source, intervals in members(text).items():
        yield from (f"{source}:{last}" for _, last in intervals)
        if not intervals:
            yield source


def is_within(one: str | None, other: str | None) -> bool:
    """Whether a log that has got as far as `other` has all of `one` behind it.

    Raises:
        ServerError: one of them is no set.
    """
    there = behind(other)
    return all(
        any(first <= least and most <= last for first, last in there.get(source, ()))
        for source, intervals in behind(one).items()
        for least, most in intervals
    )


def has_any_between(text: str | None, start: str | None, end: str | None) -> bool:
    """Whether a log that has got as far as the set has behind it anything that came between `start` and `end`.

    Raises:
        ServerError: one of them is no set.
    """
    before, there = behind(start), behind(text)
    return any(
        max(first, least) <= min(last, most)
        for source, intervals in behind(end).items()
        for first, last in _without(intervals, before.get(source, ()))
        for least, most in there.get(source, ())
    )


def _without(intervals: Iterable[Interval], gone: Iterable[Interval]) -> Iterator[Interval]:
    """What is left of intervals; those of `gone` are in order and do not touch."""
    gone = tuple(gone)
    for first, last in intervals:
        at = first
        for least, most in gone:
            if at < least <= last:
                yield at, least - 1
            if least <= last and most >= at:
                at = most + 1
        if at <= last:
            yield at, last
