"""Objects to files: frames and the members' names are checked while GNU tar unpacks.

Knows: that what was unpacked counts only when this returns, and how far it came where it does not. Whose folder it is,
whether it may be written into and how an unfinished restore is marked is decided in `operations.restore.into_folder`.

One thread reads and compares the next frame while another one decrypts, expands and checks this one and feeds tar,
which is a process of its own: more threads would only hand each other the interpreter's lock.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from shutil import disk_usage
from typing import TYPE_CHECKING

from backupd.archive import Governor
from backupd.archive.frames import Block, Frames, Range, Reading, Selection, frames_of, proven, select
from backupd.archive.governor import Unhindered
from backupd.archive.pipeline import BLOCK_BYTES, Station
from backupd.archive.readahead import ReadAhead
from backupd.archive.restating import ATTRIBUTES
from backupd.archive.stations import Decompressor, Digest, require_plain
from backupd.archive.tarchild import Feed, TarChild, TarEnded, TarStalled
from backupd.archive.unpack_progress import Cutter, TrackedMembers, UnpackProgress
from backupd.host.exhaustion import told_as_exhausted
from backupd.host.filesystem import make_folders
from backupd.host.process import ChildLedger
from backupd.host.sandbox import Bounds
from backupd.vocabulary.errors import Unreadable, UsageError, VerificationError
from backupd.vocabulary.storage import StoredObject
from backupd.vocabulary.units import compared_sizes

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class DecryptionKey:
    """What opens encrypted objects: our identities, and whom the manifest says they were encrypted for."""

    identities: "Identities"
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnpackOptions:
    """How unpacking is done: what paces or ends it, whether it gives way to others, who is told of its children.

    Where it is not `confined`, nothing but our judgement of names and links keeps what a stranger wrote in the folder.
    """

    governor: Governor
    gently: bool = False  # the lowest priority
    ledger: ChildLedger | None = None
    confined: bool = True


def unpack(
    chunks: Iterator[bytes],
    expected: StoredObject,
    into: Path,
    *,
    governor: Governor | None = None,
    gently: bool = False,
    ledger: ChildLedger | None = None,
) -> None:
    """Unpack one object that is not encrypted; when this returns, every file is there and every byte was compared.

    For the conditions and errors see `Unpacking`.
    """

    @contextmanager
    def reading(_offset: int, _size: int | None) -> Iterator[Iterator[bytes]]:
        yield chunks

    Unpacking(expected, into, options=UnpackOptions(governor or Unhindered(), gently, ledger)).run(reading)


class Unpacking:
    """One object on its way into a folder.

    As root, owners are restored as numbers. The folder itself gets the root's mode and owner, and files of the same
    name are replaced: that it is empty is the caller's business. The files are not yet synced to the disk.
    """

    def __init__(
        self,
        expected: StoredObject,
        into: Path,
        *,
        options: UnpackOptions,
        begun: UnpackProgress | None = None,
        wanted: Sequence[Range] | None = None,
        key: DecryptionKey | None = None,
    ) -> None:
        """Go on from where it was `begun`. `wanted` are ranges of the tar stream, whole members each; None is all."""
        self._stored = expected
        self._into = into
        self._options = options
        self._begun = begun or UnpackProgress()
        self._all_wanted = wanted is None
        everything = ((0, expected.plain_bytes),) if expected.plain_bytes else ()
        self._wanted = tuple(_from(self._begun.offset, everything if wanted is None else wanted))
        self._key = key
        self._fed = 0
        self._tracked = TrackedMembers(
            expected.name, begun=self._begun, ranges=self._wanted, fed=lambda: self._fed, need=self._make_folder
        )
        self._done = self._begun.done
        self._certain: UnpackProgress | None = None  # once tar has complained of a member behind that

    @property
    def fed(self) -> int:
        """How many bytes of the tar stream tar was given by now."""
        return self._fed

    @property
    def progress(self) -> UnpackProgress:
        """What is certainly unpacked by now, though perhaps not on the disk. Any thread may ask."""
        if self._done:
            return UnpackProgress(self._stored.plain_bytes, done=True)
        return self._certain or self._tracked.progress

    def run(self, reading: Reading) -> None:
        """The wanted members are there, and every byte that was fetched for them has been compared.

        When it raises, `progress` says what is there all the same; there may be more, which is worth nothing.

        Raises:
            VerificationError: the object is not what was stored.
            Unreadable: it is, and opens to something else than was recorded, or has a member that leads outside.
            UsageError: the folder cannot take it (no room, no permission, something in the way), the kernel has nothing
                to confine tar to it, or the key is wrong.
            TargetError: it cannot be read.
        """
        if self._done:
            return
        selection = select(frames_of(self._stored), self._wanted)
        plain = _Length(selection)
        with self._gone_on(), self._tar() as tar, ExitStack() as opened:
            stations = self._stations(selection, plain, opened)
            with suppress(TarEnded):  # and says below why
                feed = Feed(tar.stdin, self._count)
                for folder in self._begun.folders:
                    self._drain(feed.take(folder.headers), tar)
                self._fed = 0
                with self._read_ahead(selection, reading) as blocks:
                    for block in blocks:
                        self._drain(_through([*stations, feed], block), tar)
                self._drain(_ended([*stations, feed]), tar)
            tar.close_stdin()
            complaint = tar.ended(idle=lambda: self._options.governor.pace(0))
            unconfined = tar.not_confined()
        if unconfined is not None:
            raise unconfined
        if complaint is not None:
            raise self._cannot_take(complaint)
        with _behind_equal_frames():
            self._require_whole(selection, plain)
        self._done = True

    def _tar(self) -> TarChild:
        bounds = Bounds((self._into,)) if self._options.confined else None
        return TarChild(_extract_argv(self._into), bounds, ledger=self._options.ledger, gently=self._options.gently)

    def _stations(self, selection: Selection, plain: "_Length", opened: ExitStack) -> list[Station]:
        to_the_end = bool(self._wanted) and self._wanted[-1][1] == self._stored.plain_bytes
        cutter = Cutter(selection.cuts, ends_itself=to_the_end)
        stations: list[Station] = [Decompressor(self._stored.name), plain, cutter, self._tracked]
        if self._stored.encrypted:
            stations.insert(0, opened.enter_context(decryptor(self._stored, self._key)))
        return stations

    def _read_ahead(self, selection: Selection, reading: Reading) -> ReadAhead:
        governor = self._options.governor

        def make(require_wanted: Callable[[], None]) -> Iterator[Block]:
            def pace(size: int) -> None:
                require_wanted()
                governor.pace(size)

            return proven(selection, reading, pace=pace)

        return ReadAhead(make, name=self._stored.name, idle=lambda: governor.pace(0))

    def _drain(self, pieces: Iterator[bytes], tar: TarChild) -> None:
        """Nothing comes of it but what is done on the way; a disk that is full ends it there."""
        with _behind_equal_frames():
            for _ in pieces:
                self._options.governor.pace(0)
                if (complaint := tar.not_written()) is not None:
                    raise self._cannot_take(complaint)
                if tar.complained and self._certain is None:
                    self._certain = self._tracked.progress  # some MiB behind what tar was given

    @contextmanager
    def _gone_on(self) -> Iterator[None]:
        """A tar that hangs ends the block, in words: its disk does not answer, most likely."""
        try:
            yield
        except TarStalled as stalled:
            raise UsageError(
                f"{self._stored.name} could not be unpacked into {self._into}: {stalled}",
                hint="see whether its disk answers: dmesg, df; the same restore then continues where it stopped",
            ) from None

    def _cannot_take(self, complaint: str) -> UsageError:
        hint = "choose an empty, writable folder with enough space"
        with suppress(OSError):
            if disk_usage(self._into).free < BLOCK_BYTES:  # of a short write tar does not say why
                return UsageError(f"no space left in {self._into} for {self._stored.name}", hint=hint)
        return UsageError(f"{self._stored.name} could not be unpacked into {self._into}: {complaint}", hint=hint)

    def _make_folder(self, folder: PurePosixPath) -> None:
        """It is there; where it cannot be, tar will say so.

        Of two tars that both miss a folder, the one that comes second to make it gives its file up (GNU tar 1.34).
        """
        with suppress(OSError):
            make_folders(folder.parts, beneath=self._into)

    def _count(self, size: int) -> None:
        self._fed += size

    def _require_whole(self, selection: Selection, plain: "_Length") -> None:
        if plain.size != selection.plain_bytes:
            raise plain.wrong()
        if self._all_wanted and self._tracked.files != self._stored.files:
            raise VerificationError(
                f"{self._stored.name}: expected {self._stored.files} files, found {self._tracked.files}"
            )


@told_as_exhausted("an object that is held in it")
def frames_in(
    stored: StoredObject, reading: Reading, *, key: DecryptionKey | None, governor: Governor, at_most: int
) -> bytearray:
    """A small object's zstd frames, in memory; what they expand to was compared, and is not kept.

    Raises:
        Unreadable: it has more than `at_most` bytes as stored, and was not read; or it opens to something else.
        VerificationError: it is not what was stored.
        UsageError: the key is wrong.
        TargetError: it cannot be read.
        HostExhausted: there is no memory for it here.
    """
    if stored.stored_bytes > at_most:
        is_large, held = compared_sizes(stored.stored_bytes, at_most)
        raise Unreadable(
            f"{stored.name} is {is_large} large as stored, and at most {held} of it are held in memory",
            hint="restore --to without --tables keeps the files, not compared (status 9); or unpack with zstd and tar",
        )
    frames: Frames = frames_of(stored)
    plain = Digest(at_most=stored.plain_bytes, what=f"{stored.name} unpacked")
    kept = _Kept()
    stations: list[Station] = [kept, Decompressor(stored.name), plain]
    with ExitStack() as opened:
        if stored.encrypted:
            stations.insert(0, opened.enter_context(decryptor(stored, key)))
        whole = select(frames, ((0, stored.plain_bytes),))
        for block in proven(whole, reading, pace=governor.pace):
            with _behind_equal_frames():
                for _ in _through(stations, block):
                    pass
        with _behind_equal_frames():
            for _ in _ended(stations):
                pass
            require_plain(plain, stored)
    return kept.content


@contextmanager
def _behind_equal_frames() -> Iterator[None]:
    """The stored bytes were compared: what they open to is no damage of theirs, for no verification would find it.

    Raises:
        Unreadable: in place of a VerificationError.
    """
    try:
        yield
    except VerificationError as error:
        raise Unreadable(error.message, hint=error.hint) from error


@contextmanager
def decryptor(stored: StoredObject, key: DecryptionKey | None) -> Iterator[Station]:
    """What opens this object; its thread is gone after the block.

    Raises:
        UsageError: there is no key.
    """
    if key is None:
        raise UsageError(f"{stored.name} is encrypted", hint="pass the file with its identity: --identity FILE")
    from backupd.archive.encryption import Decryptor

    with Decryptor(key.identities, stored.name, recipients=key.recipients) as station:
        yield station


class _Kept:
    """Keeps a copy of what passes."""

    def __init__(self) -> None:
        self.content = bytearray()

    def take(self, block: bytes) -> Iterator[bytes]:
        """The block itself."""
        self.content += block
        yield block

    def end(self) -> Iterator[bytes]:
        """Nothing more."""
        yield from ()


class _Length:
    """Counts what passes, and refuses to pass more than the frames are recorded with.

    Their stored bytes were compared before, and zstd compares a checksum of what it makes of each (RFC 8878,
    "Content_Checksum"): another SHA-256 of the same costs a third of the processor time of a restore.
    """

    def __init__(self, selection: Selection) -> None:
        self.size = 0
        self._selection = selection

    def take(self, block: bytes) -> Iterator[bytes]:
        """The block itself, counted."""
        self.size += len(block)
        if self.size > self._selection.plain_bytes:
            raise self.wrong()
        yield block

    def end(self) -> Iterator[bytes]:
        """Nothing more."""
        yield from ()

    def wrong(self) -> VerificationError:
        """There are more of them, or fewer."""
        return VerificationError(
            f"{self._selection.frames.stored.name}: expected {self._selection.plain_bytes} plain bytes in the frames"
            f" that were read, found {self.size}{' or more' if self.size > self._selection.plain_bytes else ''}",
            hint="the backup does not match its manifest: restore another one",
        )


def _through(stations: Sequence[Station], block: Block) -> Iterator[bytes]:
    """What the stations make of this block, one after the other, in this thread; of a large one a piece at a time."""
    view = memoryview(block)
    for begin in range(0, len(view), BLOCK_BYTES):
        yield from _passed_on(stations, bytes(view[begin : begin + BLOCK_BYTES]))


def _passed_on(stations: Sequence[Station], block: bytes) -> Iterator[bytes]:
    if not stations:
        yield block
        return
    for piece in stations[0].take(block):
        yield from _passed_on(stations[1:], piece)


def _ended(stations: Sequence[Station]) -> Iterator[bytes]:
    """What is left in the stations."""
    for i, station in enumerate(stations):
        for piece in station.end():
            yield from _passed_on(stations[i + 1 :], piece)


def _from(offset: int, ranges: Sequence[Range]) -> Iterator[Range]:
    """What of the ranges is not before the offset."""
    return ((max(begin, offset), end) for begin, end in ranges if end > offset)


def _extract_argv(into: Path) -> list[str]:
    as_root = os.geteuid() == 0
    return [
        "tar",
        "--extract",
        "--file=-",
        f"--directory={into.absolute()}",
        "--absolute-names",  # or a link with `..` is an empty file until tar ends; the kernel keeps it inside
        "--numeric-owner",
        "--same-permissions",
        "--same-owner" if as_root else "--no-same-owner",
        "--xattrs",
        *(f"--xattrs-include={names}*" for names in ATTRIBUTES),  # else `user.*` alone
        f"--blocking-factor={BLOCK_BYTES // 4 // 512}",
    ]
