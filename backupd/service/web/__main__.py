"""The process of the pages, which `backupd serve` starts: `python -P -m backupd.service.web LISTENER WINDOW`.

Knows: what it is handed: a listening socket, the window to the daemon, and over that the configuration without what is
nobody's business, and the token. It ends when its standard input does, which is the daemon's end too. Refuses to know
files: it has the catalogue open, for reading, and can open nothing else.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import anyio._backends._asyncio  # noqa: F401  # whatever is loaded when it is needed first: no file can be read then
import uvicorn

from backupd.catalogue.store import Catalogue
from backupd.config.reading import understood
from backupd.service.outlook import MachineView
from backupd.service.site import Site
from backupd.service.web import looks
from backupd.service.web.application import THREADS, application
from backupd.service.web.powerless import powerless_afterwards
from backupd.service.web.serving import LAST_WORD_SECONDS, settings
from backupd.service.window import DaemonView
from backupd.vocabulary.errors import BackupdError

_QUIET_SECONDS = 60.0


class OncePerMinute(logging.Filter):
    """Visitors cannot fill the log: the same complaint is not repeated within a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is said."""
        what, now = str(record.msg)[:200], time.monotonic()
        if now - self._said.get(what, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        if len(self._said) > 1000:
            self._said.clear()
        self._said[what] = now
        return True


def main(listener: socket.socket, connection: Connection) -> None:
    """Answer until the daemon ends, or wants another to answer.

    Raises:
        BackupdError: the catalogue cannot be read, or powers cannot be given up.
    """
    given = json.loads(connection.recv_bytes())
    configuration = understood(given["configuration"], Path("the configuration"))
    window = DaemonView(connection)
    with powerless_afterwards():
        site = Site(configuration, Catalogue.look(configuration.catalogue.path, connections=THREADS))
        looks.read_templates()
        pages = application(site, MachineView(window, window, window), token=given["token"])
        wanted = settings(pages)
        wanted.load()
    server = uvicorn.Server(wanted)
    threading.Thread(target=_end_with_the_daemon, args=(server,), daemon=True).start()
    server.run(sockets=[listener])


def _end_with_the_daemon(server: uvicorn.Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True
    time.sleep(LAST_WORD_SECONDS + 1)
    os._exit(0)  # whatever a thread is at


if __name__ == "__main__":
    complaints = logging.StreamHandler()
    complaints.addFilter(OncePerMinute())
    logging.basicConfig(
        level=logging.WARNING,
        handlers=[complaints],
        format="%(asctime)s %(levelname)-7s pages: %(message)s",
        datefmt="%H:%M:%S",
    )
    try:
        main(socket.socket(fileno=int(sys.argv[1])), Connection(int(sys.argv[2])))
    except BackupdError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")
