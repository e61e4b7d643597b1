"""`backupd fleet pages`: the fleet's pages without a control host, for whoever only looks."""

import typer


def pages(ctx: typer.Context) -> None:
    """Serve the pages and metrics of the fleet from its records, until SIGTERM or Ctrl-C. Backs up nothing.

    `backupd fleet serve` shows the same pages. This is for another machine that reaches the database.
    """
    import signal
    import threading

    from backupd.cli.output import tell
    from backupd.operations.fleet.fleet_context import fleet
    from backupd.service.fleet.listening import KEPT_UP_SECONDS, fleet_pages

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    opened = fleet_pages(fleet(ctx.obj.config).configuration, tell)
    opened.open()
    try:
        while True:
            opened.keep_up()
            if ended.wait(KEPT_UP_SECONDS):
                return
    finally:
        opened.stop()
