"""The process of a fleet's pages: it comes and goes without the control host's noticing more than its end.

Knows: what the process is handed. That comes over a socket: neither its command line nor its environment has the token
or the address of the database, which may have a password.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import NoReturn

from pydantic import TypeAdapter

from backupd.config.fleet import FleetConfiguration
from backupd.operations.fleet.fleet_context import database_url
from backupd.policy.cluster_status import FleetShape
from backupd.service.fleet.site import shape_of
from backupd.service.pages_process import PagesProcess, StartedPages, start_module
from backupd.service.web_port import ListenAddress, require_guarded
from backupd.vocabulary.errors import BackupdError

_LOADED_AGAIN_AFTER = 300  # looks

log = logging.getLogger(__name__)

KEPT_UP_SECONDS = 1.0  # between looks whether the process is there


@dataclass(frozen=True, slots=True)
class ShownFleet:
    """What is shown, from where, to whom."""

    shape: FleetShape
    database: str  # its URL
    address: str  # that is listened at
    token: str | None = None  # None: nobody sees a page
    own_control: tuple[str, int] | None = None  # host and process, as this control host tells the records; None: none

    def text(self) -> bytes:
        """As the process is handed it."""
        return json.dumps(TypeAdapter(ShownFleet).dump_python(self, mode="json")).encode()


def pages_beside(load: Callable[[], FleetConfiguration], say: Callable[[str], None]) -> threading.Thread:
    """From now on a thread keeps the pages up beside this control host, leader or standby, and tells where they are.

    Nothing that goes wrong with them ends the control host; a port that is taken is tried again. They end with it. What
    the fleet consists of is read again every few minutes, for an inventory changes by itself.

    Raises:
        ConfigurationError: the database's password cannot be read, or others would get in without a token.
    """
    pages = fleet_pages(load(), say, own_control=(socket.gethostname(), os.getpid()))

    def keep() -> NoReturn:
        never, said = threading.Event(), ""
        while True:
            for _ in range(_LOADED_AGAIN_AFTER):
                pages.keep_up()
                lacking = "" if pages.lacking is None else pages.lacking.message
                if lacking and lacking != said:
                    log.warning("no pages: %s; trying again", lacking)
                said = lacking
                never.wait(KEPT_UP_SECONDS)
            try:
                pages.show(shape_of(load()))
            except BackupdError as error:
                log.warning("the pages show the fleet as it was: %s", error.message)

    keeping = threading.Thread(target=keep, name="pages", daemon=True)
    keeping.start()
    return keeping


def fleet_pages(
    configuration: FleetConfiguration, say: Callable[[str], None], *, own_control: tuple[str, int] | None = None
) -> "FleetPages":
    """The pages of this fleet, which do not listen yet.

    Raises:
        ConfigurationError: the database's password cannot be read, or others would get in without a token.
    """
    control = configuration.control
    require_guarded(control, table="control")
    shown = ShownFleet(shape_of(configuration), database_url(control), control.address, own_control=own_control)
    return FleetPages(control, shown, say)


class FleetPages(PagesProcess):
    """The pages of a fleet, in a process of their own. `keep_up` starts it, and is to be called again and again."""

    def __init__(self, place: ListenAddress, shown: ShownFleet, say: Callable[[str], None]) -> None:
        super().__init__(place, table="control", say=say)
        self._shown = shown

    def show(self, shape: FleetShape) -> None:
        """From now on the fleet consists of this: another process shows it. Nothing happens where it did before."""
        if shape != self._shown.shape:
            self._shown = replace(self._shown, shape=shape)
            self.begin_anew()

    def start(self, listener: socket.socket) -> StartedPages:
        """A thread tells it, for it may be slow to listen, and a large fleet is more than a socket holds.

        Raises:
            OSError, RuntimeError: there is no room for one more process, its sockets or its thread.
        """
        started = start_module("backupd.service.fleet.web", listener)
        try:
            self._tell(started)
        except BaseException:
            started.window.close()
            raise
        return started

    def _tell(self, started: StartedPages) -> None:
        window, text = Connection(os.dup(started.window.fileno())), replace(self._shown, token=self.token).text()

        def telling() -> None:
            with window:
                try:
                    window.send_bytes(text)
                except OSError:
                    return  # it has ended, which `keep_up` sees

        threading.Thread(target=telling, name="window", daemon=True).start()
