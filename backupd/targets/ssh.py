"""One SSH connection to an SFTP server: made when it is first needed, and again after it was lost.

Knows: asyncssh; who the server must be and who we are (a key file and
nothing else: no agent, no password, no configuration file of a person's); that no answer within the target's timeout is
a failure; what the errors of all this mean.

An answer that is late ends the connection: whatever was under way on it fails, and what comes next connects anew. Who
wants to outlast that asks by `outlast`. Who we are and who the server is are no matter of patience: a refusal is final.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from math import inf
from typing import Any, Generic, TypeVar

import asyncssh

from backupd.config import SftpConfig
from backupd.host.event_loop import LoopThread
from backupd.host.ssh_trust import CONNECTION, KnownHosts
from backupd.targets.outages import Attempts, Outages, Patience, Unwanted, wanted
from backupd.targets.ssh_keys import host_key_algorithms, known_hosts, private_key, unknown_server
from backupd.vocabulary.errors import TargetAway, TargetError

T = TypeVar("T")

_KEEP_ALIVES = 3  # unanswered, and the connection is lost
_END_SECONDS = 2.0
_TICK_SECONDS = 0.1
_BROKEN = (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.SFTPBadMessage)


class Unreachable(TargetAway):
    """There is no connection, or none any more, and nobody has said why: that may pass."""


def is_answer(error: BaseException) -> bool:
    """Whether the server has said so, and what was asked for was not done. Otherwise nobody knows whether it was.

    That a file system is not mounted there, which may pass as well, is an answer.
    """
    if isinstance(error, asyncssh.SFTPError):
        return not isinstance(error, _BROKEN)
    return isinstance(error, TargetError) and not isinstance(error, Unreachable)


class SshLine:
    """The connection, and the thread that speaks on it. Any thread may ask; an ask can be interrupted by a signal."""

    def __init__(self, config: SftpConfig, patience: Patience) -> None:
        self._config = config
        self.outages = Outages(self.where, patience, at_most_seconds=config.outage_seconds)
        self._thread = LoopThread("sftp", at_end=lambda: self._drop(self._sftp))
        self._connecting = asyncio.Lock()
        self._connection: asyncssh.SSHClientConnection | None = None
        self._sftp: asyncssh.SFTPClient | None = None

    def ask(
        self,
        work: Callable[[asyncssh.SFTPClient], Coroutine[Any, Any, T]],
        *,
        at_most_seconds: float = inf,
        unwanted: Unwanted = wanted,
    ) -> T:
        """Do this within the timeout, on a connection that works.

        Raises:
            TargetError: it cannot be connected, `work` says so, or nobody wants it.
            asyncssh.Error, OSError: as they come; `sentence` puts them into words.
        """
        future = self.begin(self._within(work, None, min(at_most_seconds, self._config.timeout_seconds)))
        try:
            return self.answer(future, unwanted=unwanted, at_most_seconds=inf)
        finally:
            future.cancel()

    def outlast(
        self,
        doing: str,
        work: Callable[[asyncssh.SFTPClient], Coroutine[Any, Any, T]],
        *,
        unwanted: Unwanted = wanted,
        attempts: Attempts | None = None,
        after: Exception | None = None,
    ) -> T:
        """`ask`, and again whenever the connection was lost: for work that may be done twice, or looks first.

        `attempts` are those that have failed already, `after` what they have failed with last.

        Raises:
            As `ask` does: what the server said, or what an outage that lasted too long ended with.
        """
        trying = attempts or self.outages.attempts(unwanted=unwanted)
        failed = after
        while True:
            if failed is not None and not trying.again(f"could not {doing} it: {self._reason(failed)}"):
                raise failed
            try:
                answer = self.ask(work, unwanted=unwanted)
            except (TargetError, asyncssh.Error, OSError) as error:
                if is_answer(error):
                    raise
                failed = error
            else:
                if attempts is None:
                    trying.answered()
                return answer

    def answer(self, future: "Future[T]", *, unwanted: Unwanted = wanted, at_most_seconds: float | None = None) -> T:
        """What has come of something that was started. Without other seconds it is waited for as long as the timeout.

        Raises:
            TimeoutError: nothing.
            TargetError: nobody wants it.
            asyncssh.Error, OSError: as they come.
        """
        until = time.monotonic() + (self._config.timeout_seconds if at_most_seconds is None else at_most_seconds)
        while not future.done():
            if unwanted():
                raise TargetError(f"nothing is waiting for {self.where} any longer")
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            wait([future], timeout=min(left, _TICK_SECONDS))
        return future.result()

    def tell(self, work: Callable[[asyncssh.SFTPClient], Coroutine[Any, Any, T]], *, on: asyncssh.SFTPClient) -> None:
        """The same, when nobody needs the answer."""
        self.begin(self._within(work, on, self._config.timeout_seconds))

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start this on the connection's thread."""
        return self._thread.begin(work)

    def give_up(self, sftp: asyncssh.SFTPClient) -> None:
        """End the connection that this belongs to, at once; another one that was made meanwhile goes on."""
        self._thread.soon(lambda: self._drop(sftp))

    def close(self) -> None:
        """Nothing is connected and no thread runs any more."""
        self._thread.close(within_seconds=_END_SECONDS)

    def sentence(self, error: Exception, doing: str) -> TargetError:
        """What this error means to a person; `doing` completes "could not ..."."""
        where = self.where
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"{where} did not answer for {self._config.timeout_seconds:g} s",
                hint=(
                    "is that machine, its network or its storage overloaded or down? `timeout` sets how long"
                    " backupd waits"
                ),
            )
        if isinstance(error, asyncssh.SFTPOpUnsupported):
            return TargetError(
                f"{where} lacks what a durable backup needs: {error.reason}",
                hint="OpenSSH's SFTP server has it since 6.5",
            )
        if isinstance(error, asyncssh.SFTPPermissionDenied):
            return TargetError(
                f"could not {doing} {where}: permission denied",
                hint=f"{self._config.user} must own {self._config.path} there and be able to write to it",
            )
        if isinstance(error, asyncssh.SFTPError) and is_answer(error):
            return TargetError(
                (f"could not {doing} {where}: {error.reason}"), hint="check the log of sshd on that machine"
            )
        return Unreachable(
            f"lost the connection to {where}: {_reason(error)}",
            hint="check the log of sshd on that machine, and the network in between",
        )

    def _reason(self, error: Exception) -> str:
        return (
            f"no answer for {self._config.timeout_seconds:g} s" if isinstance(error, TimeoutError) else _reason(error)
        )

    @property
    def where(self) -> str:
        """The target as a person knows it."""
        config = self._config
        return f"target {config.name} ({config.user}@{config.address}:{config.port}:{config.path})"

    async def _within(
        self,
        work: Callable[[asyncssh.SFTPClient], Awaitable[T]],
        on: asyncssh.SFTPClient | None,
        seconds: float,
    ) -> T:
        if on is not None and (on is not self._sftp or self._is_lost()):
            raise asyncssh.SFTPConnectionLost("the connection was lost earlier")
        sftp = on or await self._connected(seconds)
        try:
            async with asyncio.timeout(seconds):
                return await work(sftp)
        except (asyncssh.Error, OSError) as error:
            if not is_answer(error):
                self._drop(sftp)
            raise

    async def _connected(self, seconds: float) -> asyncssh.SFTPClient:
        async with self._connecting:
            if self._sftp is None or self._is_lost():
                self._connection, self._sftp = await self._connect(seconds)
            return self._sftp

    def _is_lost(self) -> bool:
        return self._connection is None or self._connection.is_closed()

    def _drop(self, sftp: asyncssh.SFTPClient | None) -> None:
        if sftp is self._sftp and self._connection is not None:
            self._connection.abort()
            self._connection = self._sftp = None

    async def _connect(self, seconds: float) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        """Connect, prove who is there, prove who we are, ask for SFTP."""
        config = self._config
        key, known = private_key(config), known_hosts(config)
        every = max(1.0, config.timeout_seconds / _KEEP_ALIVES)
        try:
            async with asyncio.timeout(seconds):
                connection = await asyncssh.connect(
                    config.address,
                    config.port,
                    username=config.user,
                    known_hosts=known,
                    server_host_key_algs=host_key_algorithms(config, known),
                    client_keys=[key],
                    keepalive_interval=every,
                    keepalive_count_max=_KEEP_ALIVES,
                    **CONNECTION,
                )
                try:
                    sftp = await connection.start_sftp_client(path_errors="surrogateescape")
                except BaseException:
                    connection.abort()
                    raise
        except (asyncssh.Error, OSError) as error:
            raise self._not_connected(error, known) from error
        return connection, sftp

    def _not_connected(self, error: Exception, known: KnownHosts) -> TargetError:
        config = self._config
        server = f"{config.user}@{config.address}:{config.port}"
        failed = f"could not connect to target {config.name} ({server})"
        if isinstance(error, asyncssh.HostKeyNotVerifiable | asyncssh.KeyExchangeFailed):
            return unknown_server(config, known, error)
        if isinstance(error, asyncssh.PermissionDenied):
            return TargetError(
                f"{failed}: it does not accept {config.user} with the key {config.key_file}",
                hint=(
                    f"add its public half to ~{config.user}/.ssh/authorized_keys there; check the log of sshd for"
                    f" the reason"
                ),
            )
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"{failed}: no answer for {config.timeout_seconds:g} s",
                hint="is it up, and can this host reach that port?",
            )
        if isinstance(error, asyncssh.ChannelOpenError | asyncssh.SFTPError):
            return TargetError(
                f"{failed}: it does not serve SFTP: {error.reason}",
                hint="sshd_config needs: Subsystem sftp internal-sftp",
            )
        return Unreachable(f"{failed}: {_reason(error)}", hint="is sshd running there, and is the address right?")


class Flight(Generic[T]):
    """Requests that are under way at once, so that a long way there and back costs little. Oldest first."""

    def __init__(self, line: SshLine, sftp: asyncssh.SFTPClient, timeout_seconds: float) -> None:
        self._line = line
        self._sftp = sftp
        self._timeout_seconds = timeout_seconds
        self._requests: deque[Future[T]] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Coroutine[Any, Any, T]) -> None:
        """One more is under way."""
        self._requests.append(self._line.begin(request))

    def oldest(self) -> T:
        """The answer to the request that was added first, which is then none of these any more.

        Raises:
            TimeoutError: nothing came for as long as we wait; the connection is given up.
            asyncssh.Error, OSError: as they come.
        """
        try:
            return self._requests.popleft().result(self._timeout_seconds)
        except (asyncssh.Error, OSError) as error:
            if not is_answer(error):
                self._line.give_up(self._sftp)
            raise


def _reason(error: Exception) -> str:
    if isinstance(error, TargetError):
        return error.message
    if isinstance(error, asyncssh.Error):
        return error.reason or type(error).__name__
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
