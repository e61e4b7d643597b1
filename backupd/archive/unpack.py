"""Objects to files: the stored digest, zstd frames, the plain digest and the members' names are checked while GNU tar
unpacks.

Knows: that what was unpacked counts only when this returns. Refuses to know whose folder it is, whether it may be
written into and how an unfinished restore is marked (the story `restore`).
"""

import os
import select
from collections.abc import Iterator
from pathlib import Path

from backupd.archive import Governor
from backupd.archive.conveyor import BLOCK_BYTES, Conveyor, Station
from backupd.archive.governor import Unhindered
from backupd.archive.members import Members
from backupd.archive.stations import Decompressor, Digest, require_plain, require_stored
from backupd.archive.tarchild import TarChild
from backupd.command import ChildLedger
from backupd.errors import UsageError, VerificationError
from backupd.model import StoredObject

_TICK_MILLISECONDS = 100


def unpack(
    chunks: Iterator[bytes],
    expected: StoredObject,
    into: Path,
    *,
    governor: Governor | None = None,
    gently: bool = False,
    ledger: ChildLedger | None = None,
) -> None:
    """Unpack one object; when this returns, every file of it is there and every byte was compared.

    As root, owners are restored as numbers. The folder itself gets the root's mode and owner, and files of the same
    name are replaced: that it is empty is the caller's business. On an error what was unpacked so far stays and is
    worth nothing. The files are not yet synced to the disk. `gently` gives it the lowest priority, as a copy has.

    Raises:
        VerificationError: the object is not what was stored, or has a member that leads outside.
        UsageError: the folder cannot take it (no room, no permission, something in the way).
        TargetError: from `chunks`, when it cannot be read.
    """
    pacing = governor or Unhindered()
    with TarChild(_extract_argv(into), ledger=ledger, gently=gently) as tar:
        stored = Digest(at_most=expected.stored_bytes, what=f"{expected.name} as stored")
        plain = Digest(at_most=expected.plain_bytes, what=f"{expected.name} unpacked")
        members = Members(expected.name)
        feed = _Feed(tar.stdin)
        stations: list[Station] = [stored, Decompressor(expected.name), plain, members, feed]
        with Conveyor(stations, idle=lambda: pacing.pace(0), gently=gently) as conveyor:
            try:
                for chunk in chunks:
                    pacing.pace(len(chunk))
                    conveyor.put(chunk)
                conveyor.finish()
            except BrokenPipeError:
                pass  # tar ended early and says below why
        tar.close_stdin()
        complaint = tar.ended(idle=lambda: pacing.pace(0))
    if complaint is not None:
        raise UsageError(
            f"{expected.name} could not be unpacked into {into}: {complaint}",
            hint="choose an empty folder with enough room that may be written",
        )
    require_stored(stored, expected)
    require_plain(plain, expected)
    if members.files != expected.files:
        raise VerificationError(f"{expected.name}: expected {expected.files} files, found {members.files}")


class _Feed:
    """The end of the way: into tar's standard input, without ever being stuck in it."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)
        self._poller = select.poll()
        self._poller.register(pipe, select.POLLOUT)

    def take(self, block: bytes) -> Iterator[bytes]:
        """Nothing, now and then: that lets the conveyor end a feed whose tar is busy.

        Raises:
            BrokenPipeError: tar has ended.
        """
        view = memoryview(block)
        while view:
            if self._poller.poll(_TICK_MILLISECONDS):
                view = view[os.write(self._pipe, view) :]
            yield b""

    def end(self) -> Iterator[bytes]:
        """Nothing more."""
        yield from ()


def _extract_argv(into: Path) -> list[str]:
    return [
        "tar",
        "--extract",
        "--file=-",
        f"--directory={into}",
        "--numeric-owner",
        "--same-permissions",
        "--same-owner" if os.geteuid() == 0 else "--no-same-owner",
        "--xattrs",
        "--acls",
        f"--blocking-factor={BLOCK_BYTES // 4 // 512}",
    ]
