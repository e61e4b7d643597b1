"""`backupd serve`: the daemon."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from backupd.config import Configuration
    from backupd.service.listening import WebProcess


def serve(
    ctx: typer.Context,
    *,
    web: Annotated[bool, typer.Option("--web/--no-web", help="Also serve pages and metrics.")] = True,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Tell the running daemon to start no new runs; return when it and its runs have ended."
        ),
    ] = False,
) -> None:
    """Run scheduled jobs and serve pages and metrics; in the foreground, until SIGTERM or Ctrl-C.

    Each job runs as a separate process, which continues if this one stops, and so do receivers of binlogs. SIGHUP
    reloads the configuration, SIGUSR1 drains: nothing is started any more, receivers are ended, and the daemon ends as
    soon as its runs have ended.
    """
    if drain:
        _drain(ctx)
        return
    import logging

    from backupd import wiring
    from backupd.cli.failure_answers import failure_answers
    from backupd.cli.run import new_run_id
    from backupd.config import locate
    from backupd.config.own_files import require_rereadable
    from backupd.config.warnings import warnings_of
    from backupd.operations import context
    from backupd.service import daemon, launch, systemd

    for noisy in ("apscheduler", "uvicorn"):  # they tell of every ring, and of their own comings and goings
        logging.getLogger(noisy).setLevel(logging.WARNING)
    path = locate(ctx.obj.config, os.environ).absolute()

    def load() -> "Configuration":
        """What a person should look at is logged each time, for whoever restarts or reloads us reads the log."""
        read = context.configuration(path)
        for warning in warnings_of(read, path):
            logging.getLogger(__name__).warning("%s", warning)
        return read

    configuration = load()
    require_rereadable(path)
    program = launch.ourselves(path)
    given = daemon.DaemonSurroundings(
        load=load,
        launcher=launch.launcher(program, configuration.paths.log, under_systemd=systemd.runs_us(os.environ)),
        notifier=wiring.notifier,
        answers=failure_answers,
        web=pages_of(configuration) if web else None,
        new_run_id=new_run_id,
        notify=systemd.Notify(os.environ),
    )
    daemon.serve(configuration, given)


def _drain(ctx: typer.Context) -> None:
    """Until there is no daemon. An interruption ends the waiting only: the daemon goes on draining."""
    import math
    import signal

    from backupd.cli.output import say, tell
    from backupd.host.claims import Claims
    from backupd.host.process import ended_by_itself, start_of_ours, was_sent
    from backupd.operations import context

    claims = Claims(context.configuration(ctx.obj.config).paths.run)
    pid = claims.daemon_pid()
    if pid is None:
        say("no daemon is running")
        return
    born = start_of_ours(pid)
    if was_sent(pid, signal.SIGUSR1):
        tell(f"the daemon (process {pid}) starts no new runs; waiting for those in progress")
    if born is not None:
        ended_by_itself(pid, born, within_seconds=math.inf)
    say("the daemon has ended")


def pages_of(configuration: "Configuration") -> "Callable[[Configuration], WebProcess]":
    """How the pages are made once there is something to show. Whatever keeps them from being shown then ends nothing.

    Raises:
        ConfigurationError: others would get in without a token.
    """
    from functools import partial

    from backupd.cli.output import tell
    from backupd.service.listening import WebProcess
    from backupd.service.web_port import require_guarded

    require_guarded(configuration.service, table="service")
    return partial(WebProcess, say=tell)
