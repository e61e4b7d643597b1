"""The folder on another machine that backups lie in, and what is said when something there fails.

Knows: that it must be there and, where a sentinel is named, be mounted; what SFTP's few errors hide.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncssh
from asyncssh import SFTPClient

from backupd.config import SftpConfig
from backupd.targets.ssh import SshLine
from backupd.vocabulary.errors import NoRoom, TargetAway, TargetError

FAILURES = (asyncssh.Error, OSError)
TIDY_SECONDS = 1.0  # for each thing that is done after a failure that is told already
_READ_ONLY = 1  # SSH_FXE_STATVFS_ST_RDONLY
_LITTLE_BYTES = 1 << 20


class SftpRoot:
    """The folder at the end of a line."""

    def __init__(self, config: SftpConfig, line: SshLine) -> None:
        self.path = str(config.path)
        self.line = line
        self._sentinel = config.sentinel
        self._server = f"sftp://{config.user}@{config.address}:{config.port}"

    def url(self, path: str) -> str:
        """As `sftp` takes it."""
        return f"{self._server}{path}"

    async def present(self, sftp: SFTPClient) -> SFTPClient:
        """The folder is there and, where a sentinel is named, its file system is mounted.

        Raises:
            TargetAway: it is not, and may be later.
            TargetError: something else is there.
        """
        if self._sentinel is not None and await sftp.exists(f"{self.path}/{self._sentinel}"):
            return sftp
        if not await sftp.isdir(self.path):
            hint = "mount its file system there, or create the folder"
            if await sftp.exists(self.path):
                raise TargetError(f"{self.line.where} is not a folder", hint=hint)
            raise TargetAway(f"{self.line.where} does not exist", hint=hint)
        if self._sentinel is not None:
            raise TargetAway(
                f"the file system of {self.line.where} is not mounted: there is no {self._sentinel} in it",
                hint=f"mount it on that machine; only if it is mounted: touch {self.path}/{self._sentinel} there",
            )
        return sftp

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """What SFTP says becomes a sentence with a hint."""
        try:
            yield
        except asyncssh.SFTPFailure as error:
            raise self._failure(error, doing) from error
        except FAILURES as error:
            raise self.line.sentence(error, doing) from error

    def _failure(self, error: asyncssh.SFTPFailure, doing: str) -> TargetError:
        """The server has said no more than "Failure": look for what is known to be behind it."""
        try:
            room = self.line.ask(lambda sftp: sftp.statvfs(self.path), at_most_seconds=TIDY_SECONDS)
        except (TargetError, *FAILURES):
            return self.line.sentence(error, doing)
        if room.flags & _READ_ONLY:
            return TargetError(
                f"{self.line.where} is mounted read-only", hint="check that machine's kernel log for the reason"
            )
        if room.bavail * room.frsize < _LITTLE_BYTES or (room.files and not room.favail):
            return NoRoom(
                f"no space left on {self.line.where}", hint="free space there, or let retention keep fewer backups"
            )
        return TargetError(
            f"could not {doing} {self.line.where}: {error.reason}",
            hint="a quota, a file size limit, or something else with this name; check the log of its sshd",
        )
