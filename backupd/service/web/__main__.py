"""The process of the pages, which `backupd serve` starts: `python -P -m backupd.service.web LISTENER WINDOW`.

Knows: what it is handed: a listening socket, the window to the daemon, and over that the configuration without what is
nobody's business, and the token. It ends when its standard input does, which is the daemon's end too. Refuses to know
files: it has the catalogue open, for reading, and can open nothing else.
"""

import json
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import anyio._backends._asyncio  # noqa: F401  # whatever is loaded when it is needed first: no file can be read then

from backupd.catalogue.store import Catalogue
from backupd.config.reading import understood
from backupd.service.machine_view import MachineView
from backupd.service.pages_channel import DaemonView
from backupd.service.site import Site
from backupd.service.web import rendering
from backupd.service.web.application import THREADS, application
from backupd.service.web.powerless import powerless_afterwards
from backupd.service.web.serving import run_as_child, serve_until_input_ends, settings


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
        rendering.read_templates(rendering.environment())
        pages = application(site, MachineView(window, window, window), token=given["token"])
        wanted = settings(pages)
        wanted.load()
    serve_until_input_ends(wanted, listener)


if __name__ == "__main__":
    run_as_child(main)
