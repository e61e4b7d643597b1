"""Agents as processes of this machine, which speak the same protocol over pipes.

Knows: how long a process may take and how much it may say. Refuses to know what its documents mean.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import IO

from backupd.fleet import HostAway, HostRefuses
from backupd.fleet.asking_agent import AskingAgent
from backupd.host.process import spawned
from backupd.policy.agent_protocol import MOST_ANSWER_BYTES
from backupd.vocabulary.errors import CommandError

ANSWER_SECONDS = 30.0
_HINT = "run the agent by hand on that host: echo '{}' | backupd agent"


class ProcessAgents:
    """The contract's `Agents`; `argv` names the command of each host's agent."""

    def __init__(self, argv: Callable[[str], Sequence[str]], *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._argv = argv
        self._answer_seconds = answer_seconds

    def agent(self, host: str) -> AskingAgent:
        """This host's; nothing is asked yet."""
        return AskingAgent(host, partial(self._exchange, host))

    def _exchange(self, host: str, request: bytes) -> bytes:
        try:
            with spawned(
                self._argv(host), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(BrokenPipeError):  # it may answer without having read; a pipe holds a whole request
                    process.stdin.write(request)
                    process.stdin.close()
                answer = _until_end(host, process.stdout, within_seconds=self._answer_seconds)
                status = process.wait(self._answer_seconds)
        except CommandError as error:
            raise HostRefuses(f"the agent of {host} cannot be started: {error.message}", hint=error.hint) from error
        except subprocess.TimeoutExpired as error:
            raise _late(host, self._answer_seconds) from error
        if status < 0:
            raise HostAway(
                f"the agent of {host} was killed by {signal.Signals(-status).name}",
                hint="is that host short of memory?",
            )
        if status or not answer:
            raise HostRefuses(f"the agent of {host} ended with status {status} and without an answer", hint=_HINT)
        return answer


def _until_end(host: str, stream: IO[bytes], *, within_seconds: float) -> bytes:
    """All that it says, until it closes its end.

    Raises:
        HostAway: it does not, in this time.
        HostRefuses: it sent more than any agent does.
    """
    said, until = bytearray(), time.monotonic() + within_seconds
    while True:
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise _late(host, within_seconds)
        if not (piece := os.read(stream.fileno(), 1 << 16)):
            return bytes(said)
        said += piece
        if len(said) > MOST_ANSWER_BYTES:
            raise too_much(host)


def too_much(host: str) -> HostRefuses:
    """An agent has said more than any agent does."""
    return HostRefuses(
        f"the agent of {host} sent more than {MOST_ANSWER_BYTES >> 20} MiB",
        hint="is the forced command of the control host's key on that host exactly `backupd agent`?",
    )


def _late(host: str, seconds: float) -> HostAway:
    return HostAway(
        f"the agent of {host} did not answer within {seconds:g} s", hint="is that host, or its disk, overloaded?"
    )
