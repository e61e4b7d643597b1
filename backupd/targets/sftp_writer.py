"""One object on its way to an SFTP server, under a temporary name, over as many connections as it takes.

Knows: in which blocks it is sent, when it is synced, and that a server which lost some of it is not gone on with.
"""

from dataclasses import dataclass
from threading import Event

from asyncssh import SFTPClient

from backupd.targets.names import MANIFEST, is_proof
from backupd.targets.sftp_files import make_durable
from backupd.targets.sftp_root import SftpRoot
from backupd.targets.sftp_transfer import Opened, Transfer
from backupd.vocabulary.errors import TargetError

BLOCK_BYTES = 255 << 10  # of a request: what OpenSSH takes at most. A server that names no limit gets 16 KiB
UNDER_WAY_BYTES = 8 << 20  # of each object that is being written or read: the most memory it takes
_SYNC_BYTES = 512 << 20  # so that the last fsync has little left to do, and is answered in time


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """Where one object goes, and whether anybody wants it."""

    name: str
    folder: str
    final: str
    unfinished: str
    given_up: Event | None

    @property
    def doing(self) -> str:
        """Completes "could not ..."."""
        return f"write {self.name} to"

    @property
    def is_linked(self) -> bool:
        """It gets its name by a rename that makes a link, and so never replaces."""
        return self.name == MANIFEST or is_proof(self.name)

    def unwanted(self) -> bool:
        """Nobody does any more."""
        return self.given_up is not None and self.given_up.is_set()


class SftpWriter:
    """An object that is being written under a temporary name, over as many connections as it takes."""

    def __init__(self, root: SftpRoot, place: ObjectPlace, opened: Opened) -> None:
        self._root = root
        self._place = place
        self._transfer: Transfer[int | None] = Transfer(
            root.line, opened, doing=place.doing, reopen=self._reopened, unwanted=place.unwanted
        )
        self._block = bytearray()
        self._block_bytes = min(BLOCK_BYTES, opened[0].limits.max_write_len)
        self._sent = self._synced = self._acknowledged = 0

    def write(self, data: bytes) -> None:
        """Append; see the contract."""
        view = memoryview(data)
        with self._root.explained(self._place.doing):
            while view:
                taken = view[: self._block_bytes - len(self._block)]
                self._block += taken
                view = view[len(taken) :]
                if len(self._block) == self._block_bytes:
                    self._send()

    def flushed(self) -> int:
        """The bytes that were written, when the server has said so of each."""
        if self._block:
            self._send()
        while len(self._transfer):
            self._settle()
        return self._sent

    def finish(self) -> None:
        """All of it is durable under its temporary name."""
        if self._block:
            self._send()
        size = self._sent
        self._transfer.add(lambda file: make_durable(file, size))
        self.flushed()

    def close(self) -> None:
        """Nobody waits for what is still under way, nor for the file."""
        self._transfer.close()

    def _send(self) -> None:
        block, self._block = bytes(self._block), bytearray()
        at = self._sent
        self._transfer.add(lambda file: file.write(block, at))
        self._sent += len(block)
        if self._sent - self._synced >= _SYNC_BYTES:
            self._transfer.add(lambda file: file.fsync())
            self._synced = self._sent
        while len(self._transfer) * self._block_bytes >= UNDER_WAY_BYTES:
            self._settle()

    def _settle(self) -> None:
        self._acknowledged += self._transfer.oldest() or 0

    async def _reopened(self, sftp: SFTPClient) -> Opened:
        """The same file on another connection. A server that restarted may have lost what it had not synced.

        Such a file is not gone on with: what it lacks is in nobody's memory any more. That a server kept the length and
        lost the bytes is seen when the run reads its copies back.
        """
        await self._root.present(sftp)
        file = await sftp.open(self._place.unfinished, "r+b", block_size=0)
        size = (await file.stat()).size or 0
        if size < self._acknowledged:
            raise TargetError(
                f"{self._root.line.where} has {size} bytes of {self._place.name} where it acknowledged"
                f" {self._acknowledged}",
                hint="that machine has restarted, or its storage loses writes: check its kernel log",
            )
        return sftp, file
