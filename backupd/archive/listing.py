"""What an archive will hold, and how it is divided into streams and objects.

Knows: that a million entries take some 15 bytes each, names compressed in blocks and numbers in arrays; that the
names of one file stay together, and that every object has the folders its files lie in.
"""

import heapq
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from backupd.archive.redo import RedoCut

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OBJECT_NAMES = 50_000  # as an object has them; tar keeps some 75 bytes of each, a restore restarts with an object
_NAMES_IN_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that an archive will hold."""

    name: bytes  # relative to the root
    size: int  # an estimate of its share of the tar stream: holes, and a file's second name, are not counted
    folder: bool
    linked: tuple[int, int] | None = None  # device and inode of a file that has several names


@dataclass(frozen=True)
class Listing:
    """What an archive will hold, in its order: a folder before what is in it. Summed up once: of many it takes long."""

    entries: Sequence[Entry]
    redo: RedoCut | None = None  # a file of which not all is stored

    @property
    def files(self) -> int:
        """All that is not a folder."""
        return sum(not entry.folder for entry in self.entries)

    @cached_property
    def size(self) -> int:
        """An estimate of the tar stream's length."""
        return sum(entry.size for entry in self.entries)

    @cached_property
    def largest(self) -> int:
        """Of the entries, the one that takes most of the stream."""
        return max((entry.size for entry in self.entries), default=0)


class Packed(Sequence[Entry]):
    """Entries in little memory; each is recreated when it is asked for, soonest where its neighbour was the last."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._blocks: list[bytes] = []  # of names, compressed; none has a NUL
        self._open = 0, list[bytes]()  # the block that was asked for last, and its names
        self._sizes = array("q")
        self._folders = bytearray()
        self._linked: dict[int, tuple[int, int]] = {}
        names: list[bytes] = []
        for number, entry in enumerate(entries):
            if len(names) == _NAMES_IN_BLOCK:
                self._close(names)
            names.append(entry.name)
            self._sizes.append(entry.size)
            self._folders.append(entry.folder)
            if entry.linked is not None:
                self._linked[number] = entry.linked
        self._close(names)

    def _close(self, names: list[bytes]) -> None:
        self._blocks.append(zstd.compress(b"\0".join(names), level=1))
        names.clear()

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, number: int) -> Entry: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Entry]: ...
    def __getitem__(self, number: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(number, slice):
            return _Chosen(self, range(len(self))[number])
        number = range(len(self))[number]
        return Entry(self._name(number), self._sizes[number], bool(self._folders[number]), self._linked.get(number))

    def _name(self, number: int) -> bytes:
        block, place = divmod(number, _NAMES_IN_BLOCK)
        opened, names = self._open
        if opened != block or not names:
            names = zstd.decompress(self._blocks[block]).split(b"\0")
            self._open = block, names
        return names[place]


class _Chosen(Sequence[Entry]):
    """Some of the entries, by their numbers."""

    def __init__(self, entries: Sequence[Entry], numbers: Sequence[int]) -> None:
        self._entries = entries
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> Entry: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Entry]: ...
    def __getitem__(self, number: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(number, slice):
            return _Chosen(self._entries, self._numbers[number])
        return self._entries[self._numbers[number]]


def divide(listing: Listing, streams: int, *, object_size: int) -> tuple[tuple[Listing, ...], ...]:
    """At most that many streams of about the same size; of each, the objects that it becomes, one after the other.

    Each file is in one object, in the order that it had, and the names of one file stay together. An object ends before
    the file that would take it past `object_size`: only a file that is larger makes it larger. It also ends once it has
    `OBJECT_NAMES`: only further names of its files make them more. Each has the folders that its files lie in, so that
    any of them can be unpacked by itself; the very first has the empty folders too. None is without a file, except when
    there is no file.
    """
    units = _Units(listing.entries)
    share_of = units.shared(streams)
    objects: list[list[array[int]]] = [[array("I")] for _ in range(max(share_of, default=0) + 1)]
    filled = [0] * len(objects)
    place = array("I", bytes(4 * len(units.leads)))  # of a unit: which of its stream's objects it is in
    for number, lead in enumerate(units.leads):
        if units.is_folder(number):
            continue
        share = share_of[lead]
        if number == lead:
            past = filled[share] + units.sizes[lead] > object_size or len(objects[share][-1]) >= OBJECT_NAMES
            if objects[share][-1] and past:
                objects[share].append(array("I"))
                filled[share] = 0
            filled[share] += units.sizes[lead]
            place[lead] = len(objects[share]) - 1
        objects[share][place[lead]].append(number)
    every_folder = sorted(units.folders.values())
    return tuple(
        tuple(
            Listing(units.with_folders(chosen, every_folder if (share, count) == (0, 0) else None), listing.redo)
            for count, chosen in enumerate(chosen_of_share)
        )
        for share, chosen_of_share in enumerate(objects)
    )


class _Units:
    """Entries that stay together: all names of a file. A unit is called by the number of its first entry, its lead."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.leads = array("I")  # of each entry, its unit's
        self.sizes = array("q")  # of each lead, its unit's; 0 elsewhere
        self.folders: dict[bytes, int] = {}
        self._entries = entries
        self._is_folder = bytearray()
        first: dict[tuple[int, int], int] = {}
        for number, entry in enumerate(entries):
            lead = number if entry.linked is None else first.setdefault(entry.linked, number)
            self.leads.append(lead)
            self.sizes.append(0)
            self.sizes[lead] += entry.size
            self._is_folder.append(entry.folder)
            if entry.folder:
                self.folders[entry.name] = number

    def is_folder(self, number: int) -> bool:
        """Whether this entry is one."""
        return bool(self._is_folder[number])

    def shared(self, streams: int) -> Sequence[int]:
        """Of each lead the stream that takes it: the smallest so far takes the largest that is left."""
        leads = [number for number, lead in enumerate(self.leads) if number == lead and not self.is_folder(number)]
        leads.sort(key=self.sizes.__getitem__, reverse=True)
        shares = [(0, 0, share) for share in range(max(1, min(streams, len(leads))))]
        share_of = bytearray(len(self.leads))
        for lead in leads:
            size, files, share = shares[0]
            heapq.heapreplace(shares, (size + self.sizes[lead], files + 1, share))
            share_of[lead] = share
        return share_of

    def with_folders(self, chosen: Sequence[int], folders: Sequence[int] | None) -> Sequence[Entry]:
        """These entries with these folders among them, or with those that they lie in."""
        if folders is None:
            around = {name.rpartition(b"/")[0] for name in (self._entries[number].name for number in chosen)}
            needed = {folder for name in around for folder in _and_around(name)}
            folders = sorted(self.folders[folder] for folder in needed & self.folders.keys())
        return _Chosen(self._entries, array("I", heapq.merge(folders, chosen)))


def _and_around(folder: bytes) -> Iterator[bytes]:
    """A folder and those that it is in, the root too."""
    yield b"."
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]
