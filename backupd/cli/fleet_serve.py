"""`backupd fleet serve`: the control host's process."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from backupd.config.fleet import FleetConfiguration
    from backupd.config.fleet_reading import FleetFile
    from backupd.fleet import Engine
    from backupd.fleet.records import Records
    from backupd.notifications.fanout import Fanout


def serve(
    ctx: typer.Context,
    *,
    web: Annotated[bool, typer.Option("--web/--no-web", help="Also serve pages and metrics.")] = True,
) -> None:
    """Plan each night when it begins and see to its backups; in the foreground, until SIGTERM or Ctrl-C.

    One control host acts on a database: a second one waits as a standby and takes over when the first has ended. It may
    be killed at any moment; what runs at hosts goes on, and whoever starts next goes on with all of it. SIGHUP reloads
    the configuration, if it has no faults.
    """
    import signal
    import threading

    from backupd import wiring
    from backupd.cli.output import say
    from backupd.config.fleet_reading import locate_fleet
    from backupd.config.own_files import require_rereadable
    from backupd.host import spawning
    from backupd.operations.fleet.fleet_context import fleet, notified
    from backupd.operations.fleet.fleet_notices import with_page
    from backupd.operations.fleet.serving import FleetSurroundings, control_host, reload
    from backupd.service.fleet.listening import pages_beside
    from backupd.service.web_port import require_guarded

    def begin_anew(reason: str) -> NoReturn:
        """As after a kill: nothing of what this process knew is believed any more."""
        say(f"{reason}: the control host restarts")
        spawning.replace_ourselves()

    def load() -> "FleetFile":
        """Raises ConfigurationError: it cannot be used, so that a process which restarts with it would not start."""
        read = fleet(ctx.obj.config)
        if web:
            require_guarded(read.configuration.control, table="control")
        notified(read.configuration.control)
        return read

    spawning.reap()
    file = load()
    require_rereadable(locate_fleet(ctx.obj.config, os.environ))
    configuration = file.configuration
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: _end())
    signal.signal(signal.SIGINT, lambda *_: _end())
    signal.signal(signal.SIGHUP, lambda *_: reload(load, say, begin_anew))
    engine = _engine(configuration, begin_anew)
    records = _records(configuration)
    if web:
        pages_beside(lambda: load().configuration, say)
    with wiring.fleet_agents(configuration) as agents:
        given = FleetSurroundings(
            configuration=configuration,
            load=load,
            records=records,
            agents=agents,
            engine=engine,
            tell=with_page(_notifier(configuration).tell_somebody, configuration.control.public_url),
            say=say,
            begin_anew=begin_anew,
            problems=file.problems,
        )
        control_host(given).serve(ended)


def _engine(configuration: "FleetConfiguration", lost: "Callable[[str], None]") -> "Engine":
    """What carries the fleet's backups; `lost` ends this process when another control host may act.

    Raises:
        UsageError: the packages of a fleet are not installed.
    """
    from backupd.fleet.dbos_engine import DbosEngine
    from backupd.operations.fleet.fleet_context import database_url

    slots = {name: target.slots for name, target in configuration.targets.items()}
    return DbosEngine(database_url(configuration.control), slots, lost)


def _notifier(configuration: "FleetConfiguration") -> "Fanout":
    """Whoever the configuration of backupd on the control host wants to be told; nobody where none is named. That it
    leaves people without word of failed backups is said at once.

    Raises:
        ConfigurationError: it cannot be used.
    """
    from backupd import wiring
    from backupd.cli.output import tell_findings
    from backupd.notifications.fanout import Fanout
    from backupd.operations.fleet.fleet_context import notified
    from backupd.operations.fleet.fleet_findings import unheard

    configured = notified(configuration.control)
    if configured is None:
        return Fanout([])
    notifier = wiring.notifier(configured)
    tell_findings(unheard(notifier.subscribers))
    return notifier


def _records(configuration: "FleetConfiguration") -> "Records":
    """The fleet's, as soon as its database answers."""
    import time

    from backupd.cli.output import say
    from backupd.fleet.records import Records
    from backupd.operations.fleet.fleet_context import database_url
    from backupd.vocabulary.errors import FleetDatabaseAway

    wait = 1.0
    while True:
        try:
            return Records.open(database_url(configuration.control))
        except FleetDatabaseAway as error:
            say(f"{error.message}; trying again in {wait:.0f} s")
            time.sleep(wait)
            wait = min(wait * 2, 30.0)


def _end() -> NoReturn:
    """At once: threads that wait for hosts or for a window need no farewell, and whatever they did is written down."""
    sys.stdout.flush()
    os._exit(0)
