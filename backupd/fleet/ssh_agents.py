"""Hosts' agents by SSH: a connection for each question, by the control host's one key, to host keys that are known.

Knows: asyncssh; which errors mean that a host is away and which that it
will not have us. Any number of threads may ask; so many connections at once go out, and the others wait their turn.
What an agent prints is read to a limit and within a time, and what it prints beside its answer is not believed.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from backupd.fleet import HostAway, HostRefuses
from backupd.fleet.asking_agent import AskingAgent
from backupd.host.event_loop import LoopThread
from backupd.host.ssh_trust import CONNECTION, KnownHosts, KnownHostsFile, KnownServer, private_key
from backupd.policy.agent_protocol import MOST_ANSWER_BYTES
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.escaping import on_one_line

if TYPE_CHECKING:
    from backupd.config.fleet import FleetConfiguration

COMMAND = "backupd agent"  # a forced command takes its place on the host; for a host without one it is what to type

_SAID_BYTES = 4096  # of what an agent prints on stderr: the first of it may help a person
_SAID_CHARACTERS = 200
_PIECE = 1 << 16
_NO_ANSWER_HINT = "is the forced command of the control host's key there exactly `/usr/bin/backupd agent`?"


@dataclass(frozen=True, slots=True)
class SshHost:
    """Where a host's sshd is, and who we are there."""

    name: str
    address: str
    port: int
    user: str  # as whom backupd runs there


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Who the control host is to all hosts, which keys they have, and how patient it is."""

    key_file: Path
    known_hosts: Path
    connect_seconds: float
    answer_seconds: float  # from the connection to the whole answer
    at_once: int  # connections


class SshAgents:
    """The contract's `Agents`. Close it: then no thread and no connection is left."""

    def __init__(self, access: SshAccess, host_of: Callable[[str], SshHost]) -> None:
        """`host_of` raises a KeyError where it knows no host of a name: whoever asks it hears that it refuses."""
        self._access = access
        self._host_of = host_of
        self._thread = LoopThread("agents")
        self._places = asyncio.Semaphore(access.at_once)
        self._known_hosts = KnownHostsFile(access.known_hosts)
        self._reading = asyncio.Lock()  # of that file
        self.close = weakref.finalize(self, self._thread.close)

    def agent(self, host: str) -> AskingAgent:
        """This host's; nothing is asked yet."""
        return AskingAgent(host, partial(self._exchange, host))

    def _exchange(self, name: str, request: bytes) -> bytes:
        try:
            host = self._host_of(name)
        except KeyError as error:  # it was taken out while a backup of it waited, or ran
            raise HostRefuses(
                f"{name} is no longer in the fleet", hint="its runs go on: see `backupd history` on that host"
            ) from error
        future = self._thread.begin(self._placed(host, request))
        try:
            return future.result()
        finally:
            future.cancel()  # where a signal ends the waiting

    async def _placed(self, host: SshHost, request: bytes) -> bytes:
        async with self._places:
            return await self._asked(host, request)

    async def _asked(self, host: SshHost, request: bytes) -> bytes:
        connection = await self._connected(host)
        try:
            async with asyncio.timeout(self._access.answer_seconds):
                answer, said, status = await self._answer(connection, host, request)
        except TimeoutError as error:
            raise HostAway(
                f"{_named(host)} did not answer within {self._access.answer_seconds:g} s",
                hint="is that host, or its disk, overloaded?",
            ) from error
        except asyncssh.ChannelOpenError as error:
            raise HostRefuses(f"{_named(host)} opens no session: {_reason(error)}", hint=_NO_ANSWER_HINT) from error
        except (asyncssh.Error, OSError) as error:
            raise _lost(host, _reason(error)) from error
        finally:
            connection.abort()
        if status is None or status < 0:
            raise _lost(host, "it, or the agent, ended in the middle of the answer")
        if status or not answer:
            raise HostRefuses(
                f"the agent of {_named(host)} ended with status {status} and without an answer"
                f"{': ' if said else ''}{said}",
                hint=_NO_ANSWER_HINT,
            )
        return answer

    async def _answer(
        self, connection: asyncssh.SSHClientConnection, host: SshHost, request: bytes
    ) -> tuple[bytes, str, int | None]:
        process = await connection.create_process(COMMAND, encoding=None)
        process.stdin.write(request)
        process.stdin.write_eof()
        said = asyncio.ensure_future(_first_of(process.stderr))
        try:
            answer = bytearray()
            while piece := await process.stdout.read(_PIECE):
                answer += piece
                if len(answer) > MOST_ANSWER_BYTES:
                    raise HostRefuses(
                        f"the agent of {_named(host)} sent more than {MOST_ANSWER_BYTES >> 20} MiB",
                        hint=_NO_ANSWER_HINT,
                    )
            await process.wait_closed()
            return bytes(answer), await said, process.returncode
        finally:
            said.cancel()

    async def _connected(self, host: SshHost) -> asyncssh.SSHClientConnection:
        """Connect, prove who is there, prove who we are."""
        access = self._access
        server = KnownServer(host.address, host.port, self._known_hosts, "known_hosts")
        try:
            key = private_key(access.key_file, named="key_file")
            known, algorithms = await self._trusted(server)
        except ConfigurationError as error:
            raise HostRefuses(error.message, hint=error.hint) from error.__cause__
        try:
            async with asyncio.timeout(access.connect_seconds):
                return await asyncssh.connect(
                    host.address,
                    host.port,
                    username=host.user,
                    known_hosts=known,
                    server_host_key_algs=algorithms,
                    client_keys=[key],
                    **CONNECTION,
                )
        except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
            fact, hint = server.stranger(known, error)
            raise HostRefuses(f"{host.name}: {fact}", hint=hint) from error
        except asyncssh.PermissionDenied as error:
            raise HostRefuses(
                f"{_named(host)} does not accept the control host's key {access.key_file}",
                hint=(
                    f"add to ~{host.user}/.ssh/authorized_keys there: "
                    f'command="/usr/bin/backupd agent",restrict and the public key'
                ),
            ) from error
        except TimeoutError as error:
            raise HostAway(
                f"{_named(host)} did not answer for {access.connect_seconds:g} s",
                hint="is it up, and can the control host reach that port?",
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise HostAway(
                f"could not connect to {_named(host)}: {_reason(error)}",
                hint="is sshd running there, and is the address right?",
            ) from error

    async def _trusted(self, server: KnownServer) -> tuple[KnownHosts, Sequence[str]]:
        """What is known of whom, and which of the server's keys to ask for.

        Beside the loop, and before the deadline of a connection: a file of all a company's machines takes seconds.
        """

        def look() -> tuple[KnownHosts, Sequence[str]]:
            known = server.read()
            return known, server.algorithms(known)

        async with self._reading:
            return await asyncio.to_thread(look)


async def _first_of(stream: "asyncssh.SSHReader[bytes]") -> str:
    """The first line of what is printed there; all of it is read, or its writer would wait for ever."""
    kept = bytearray()
    while piece := await stream.read(_PIECE):
        kept += piece[: max(0, _SAID_BYTES - len(kept))]
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return on_one_line(lines[0])[:_SAID_CHARACTERS] if lines else ""


def _named(host: SshHost) -> str:
    return f"{host.name} ({host.user}@{host.address}:{host.port})"


def _lost(host: SshHost, reason: str) -> HostAway:
    return HostAway(
        f"lost the connection to {_named(host)}: {reason}",
        hint="it may well have done what it was asked for: ask for the run's status",
    )


def _reason(error: Exception) -> str:
    said = error.reason if isinstance(error, asyncssh.Error) else isinstance(error, OSError) and error.strerror
    return on_one_line(said or str(error) or type(error).__name__)[:_SAID_CHARACTERS]


@contextmanager
def ssh_agents(configuration: "FleetConfiguration") -> Iterator[SshAgents]:
    """Those of a fleet's hosts, as its file says how they are reached; no connection is left behind the block."""
    control = configuration.control

    def host_of(name: str) -> SshHost:
        host = configuration.hosts[name]
        return SshHost(name, host.address or name, host.port, host.user or control.user)

    access = SshAccess(
        key_file=control.key_file,
        known_hosts=control.known_hosts,
        connect_seconds=control.connect_timeout_seconds,
        answer_seconds=control.answer_timeout_seconds,
        at_once=control.ask_at_once,
    )
    agents = SshAgents(access, host_of)
    try:
        yield agents
    finally:
        agents.close()
