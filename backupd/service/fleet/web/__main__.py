"""The process of a fleet's pages: `python -P -m backupd.service.fleet.web LISTENER WINDOW`.

Knows: what it is handed: a listening socket, and over the window what the fleet consists of, the address of its
database, and the token. It looks into the database for reading only, and ends when its standard input does, which is
the end of the control host's process too. No key to a host is ours to have.
"""

import json
import socket
from multiprocessing.connection import Connection

import anyio._backends._asyncio  # noqa: F401  # whatever is loaded when it is needed first
from pydantic import TypeAdapter

from backupd.fleet.records import Records
from backupd.policy.cluster_status import FleetShape
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.application import fleet_application, templates
from backupd.service.web.application import THREADS
from backupd.service.web.powerless import nothing_more_to_gain
from backupd.service.web.rendering import read_templates
from backupd.service.web.serving import run_as_child, serve_until_input_ends, settings


def main(listener: socket.socket, window: Connection) -> None:
    """Answer until whoever started us ends, or wants another to answer.

    Raises:
        BackupdError: the records cannot be read, or powers cannot be given up.
    """
    with window:
        given = json.loads(window.recv_bytes())
    nothing_more_to_gain()
    control = given["own_control"]
    site = FleetSite(
        Records.look(given["database"], connections=THREADS),
        TypeAdapter(FleetShape).validate_python(given["shape"]),
        own_control=None if control is None else (str(control[0]), int(control[1])),
    )
    read_templates(templates())
    wanted = settings(fleet_application(site, address=given["address"], token=given["token"]))
    wanted.load()
    serve_until_input_ends(wanted, listener)


if __name__ == "__main__":
    run_as_child(main)
