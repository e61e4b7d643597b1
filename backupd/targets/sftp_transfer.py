"""One file on its way to an SFTP server or back, over as many connections as it takes.

Knows: the requests that were not answered yet, which are made again on the next connection: they name the place of
their bytes, so that one that was carried out already changes nothing.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import asyncssh
from asyncssh import SFTPClient, SFTPClientFile

from backupd.targets.outages import Unwanted, wanted
from backupd.targets.ssh import SshLine, is_answer

T = TypeVar("T")

Opened = tuple[SFTPClient, SFTPClientFile]
SftpRequest = Callable[[SFTPClientFile], Coroutine[Any, Any, T]]


class Transfer(Generic[T]):
    """Requests to one open file, several under way at once so that a long way there and back costs little.

    `reopen` opens the file again once a connection was lost, or says why it cannot be gone on with. What is in memory
    is what was not answered yet.
    """

    def __init__(
        self,
        line: SshLine,
        opened: Opened,
        *,
        doing: str,
        reopen: Callable[[SFTPClient], Coroutine[Any, Any, Opened]],
        unwanted: Unwanted = wanted,
    ) -> None:
        self._line = line
        self._sftp, self._file = opened
        self._doing = doing
        self._reopen = reopen
        self._unwanted = unwanted
        self._attempts = line.outages.attempts(unwanted=unwanted)
        self._requests: deque[tuple[SftpRequest[T], Future[T]]] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: SftpRequest[T]) -> None:
        """One more is under way. It may be made more than once."""
        self._requests.append((request, self._line.begin(request(self._file))))

    def oldest(self) -> T:
        """The answer to the request that was added first, which is then none of these any more.

        Raises:
            TargetError: nobody wants it, or the file cannot be gone on with.
            asyncssh.Error, OSError: what the server said, or what an outage that lasted too long began with.
        """
        while True:
            try:
                answer = self._line.answer(self._requests[0][1], unwanted=self._unwanted)
            except (asyncssh.Error, OSError) as error:
                if is_answer(error):
                    raise
                self._line.give_up(self._sftp)
                self._go_on(error)
            else:
                self._requests.popleft()
                self._attempts.answered()
                return answer

    def forget(self) -> None:
        """Nobody waits for those that are under way."""
        for _, answer in self._requests:
            answer.cancel()
        self._requests.clear()

    def close(self) -> None:
        """Nor for the file; on the server it is closed with its connection at the latest."""
        self.forget()
        file = self._file
        self._line.tell(lambda _: file.close(), on=self._sftp)

    def _go_on(self, lost: Exception) -> None:
        """On another connection the file is open, and what was not answered is under way again."""
        unanswered = [request for request, _ in self._requests]
        self._sftp, self._file = self._line.outlast(
            self._doing, self._reopen, unwanted=self._unwanted, attempts=self._attempts, after=lost
        )
        self.forget()
        for request in unanswered:
            self.add(request)
