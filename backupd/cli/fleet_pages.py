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
    from backupd.service.fleet.listening import KEPT_UP_SECONDS, open_pages
    from backupd.service.listening import url_of, without_token

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    configuration = fleet(ctx.obj.config).configuration
    opened = open_pages(configuration)
    tell(f"pages and metrics: {url_of(opened.listener)}")
    if not opened.has_token:
        tell(f"pages: {without_token('control')}")
    try:
        while True:
            opened.keep_up()
            if ended.wait(KEPT_UP_SECONDS):
                return
    finally:
        opened.stop()
