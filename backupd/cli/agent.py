"""`backupd agent`: what a control host's SSH key may do here, and nothing else."""

import os
import select
import time

import typer

from backupd.vocabulary.errors import NotUnderstood

_STDIN = 0
_REQUEST_SECONDS = 10.0  # for the request to come


def agent(ctx: typer.Context) -> None:
    """Answer one request of a fleet's control host: JSON on stdin, JSON on stdout; not for people.

    It is the forced command of the control host's key: `command="/usr/bin/backupd agent",restrict ssh-ed25519 …` in
    authorized_keys of root. It knows five requests (describe, start, status, cancel, result), takes nothing from
    SSH_ORIGINAL_COMMAND, and ends within seconds with exit status 0, also where its answer is a refusal.
    """
    from backupd import __version__
    from backupd.cli.output import write
    from backupd.config import locate
    from backupd.host.launching import ourselves
    from backupd.operations import context
    from backupd.operations.agent.answering import AgentSurroundings, answered
    from backupd.operations.agent.starting import DetachedRuns
    from backupd.policy.agent_protocol import MOST_REQUEST_BYTES, error_text

    path = locate(ctx.obj.config, os.environ).absolute()
    given = AgentSurroundings(
        configuration=lambda: context.configuration(path),
        catalogue=context.own_catalogue,
        launcher=lambda configuration: DetachedRuns(ourselves(path), configuration.paths.log),
    )
    try:
        answer = answered(_request(_STDIN, most=MOST_REQUEST_BYTES), given)
    except NotUnderstood as error:
        answer = error_text(error, version=__version__)
    write(answer.decode())


def _request(descriptor: int, *, most: int) -> bytes:
    """One line, or all that comes before the end; one byte more than there may be is enough to know.

    Raises:
        NotUnderstood: it did not come in time.
    """
    text, until = bytearray(), time.monotonic() + _REQUEST_SECONDS
    while len(text) <= most and not text.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise NotUnderstood(
                f"no whole request came within {_REQUEST_SECONDS:g} s",
                hint="`backupd agent` is for a control host: it reads a request from stdin",
            )
        if not (piece := os.read(descriptor, most + 1 - len(text))):
            break
        text += piece
    return bytes(text)
