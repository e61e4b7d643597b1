"""How far tar has come: up to which member everything is unpacked, and what has to be known to go on from there.

Knows: that tar has done with a member once it was given some MiB more, and that it sets a folder's mode and times
only when it leaves it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from backupd.archive.frames import Range
from backupd.archive.index import Member
from backupd.archive.members import Members
from backupd.archive.restating import restated

BEHIND_BYTES = 4 << 20  # a pipe holds 1 MiB at most, tar reads 256 KiB at a time


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that unpacking is inside of: tar is told of it again, and sets its mode and times in the end."""

    name: str
    headers: bytes  # as tar is given them


@dataclass(frozen=True, slots=True)
class UnpackProgress:
    """All members of an object that begin before `offset` of its tar stream are unpacked; another begins there."""

    offset: int = 0
    files: int = 0  # of them; folders are none
    links: tuple[str, ...] = ()  # symbolic ones among them: nothing may be unpacked through one
    folders: tuple[Folder, ...] = ()
    done: bool = False  # the object is unpacked


class TrackedMembers(Members):
    """The judge of a stream's members, who tells tar of each in our own words, and writes down where each one began.

    What comes is what is in `ranges` of the tar stream, each of which begins with a member. `fed` says how much of
    it tar was given. `need` is given the folder that a member lies in before tar is told of the member.
    """

    def __init__(
        self,
        archive: str,
        *,
        begun: UnpackProgress,
        ranges: Sequence[Range],
        fed: Callable[[], int],
        need: Callable[[PurePosixPath], None] = lambda _folder: None,
    ) -> None:
        self._met: list[Member] = []
        self._need = need
        self._asked_for = PurePosixPath()
        super().__init__(archive, told=self._met.append)
        self.files = begun.files
        self._links.update(begun.links)
        self._links_in_order = list(begun.links)
        self._folders = begun.folders
        self._ranges = ranges
        self._fed = fed
        self._given = 0  # bytes that were passed on
        self._forgetting = threading.Lock()
        self._marks: deque[tuple[int, UnpackProgress, int]] = deque([(0, begun, len(begun.links))])

    @property
    def progress(self) -> UnpackProgress:
        """The latest that tar has certainly reached. Any thread may ask."""
        _, progress, links = self._forget()
        return UnpackProgress(progress.offset, progress.files, tuple(self._links_in_order[:links]), progress.folders)

    def take(self, block: bytes) -> Iterator[bytes]:
        """Its content, and each header as we would write it; only of members that were judged.

        Raises:
            VerificationError: a header in it is damaged, or asks for something that no backup needs.
        """
        passed = []
        for piece in self._pieces(block):
            self._given += len(piece)
            passed.append(piece)
        yield b"".join(passed)

    def _collected(self, held: bytes) -> bytes:
        files, links = self.files, len(self._links)
        super()._collected(held)
        if not self._met:
            return b"" if any(held) else held
        member = self._met.pop()
        header = restated(member, self._content, sparse=self._sparse)
        path = PurePosixPath(member.name)
        around = tuple(folder for folder in self._folders if PurePosixPath(folder.name) in path.parents)
        if path.parent not in (self._asked_for, PurePosixPath()):
            self._asked_for = path.parent
            self._need(path.parent)
        mark = UnpackProgress(self._place(member.offset), files, folders=around)
        self._marks.append((self._given, mark, len(self._links_in_order)))
        if len(self._links) > links:
            self._links_in_order.append(str(path))
        if self.files == files:
            around = (*around, Folder(member.name, header))
        self._folders = around
        self._forget()
        return header

    def _forget(self) -> tuple[int, UnpackProgress, int]:
        """Of the marks that tar is past only the last one matters."""
        reached = self._fed() - BEHIND_BYTES
        with self._forgetting:
            while len(self._marks) > 1 and self._marks[1][0] <= reached:
                self._marks.popleft()
            return self._marks[0]

    def _place(self, at: int) -> int:
        """Where in the tar stream what passed as byte `at` lies."""
        for begin, end in self._ranges[:-1]:
            if at < end - begin:
                return begin + at
            at -= end - begin
        return self._ranges[-1][0] + at


class Cutter:
    """Lets the cuts of a stream pass, and ends what is left as an archive where its own end was cut off."""

    def __init__(self, cuts: Sequence[Range], *, ends_itself: bool) -> None:
        self._cuts = deque(cuts)
        self._ends_itself = ends_itself
        self._at = 0

    def take(self, block: bytes) -> Iterator[bytes]:
        """What of it is in a cut."""
        begin, end = self._at, self._at + len(block)
        self._at = end
        while self._cuts and self._cuts[0][0] < end:
            first, last = self._cuts[0]
            if first <= begin and end <= last:
                yield block
            elif last > begin:
                yield block[max(0, first - begin) : last - begin]
            if last > end:
                return
            self._cuts.popleft()

    def end(self) -> Iterator[bytes]:
        """Two empty blocks end an archive (pax(1), "ustar Interchange Format")."""
        if not self._ends_itself:
            yield bytes(1024)
