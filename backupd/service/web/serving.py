"""How uvicorn serves an application: the one place for its settings, and how a process of pages ends."""

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import uvicorn
from starlette.types import ASGIApp

from backupd.service.web.connections import LONGEST_HEAD, PatientProtocol
from backupd.vocabulary.errors import BackupdError

LAST_WORD_SECONDS = 1  # of what is being answered when the server is to end
_QUIET_SECONDS = 60.0
_BACKLOG = 128  # that wait to be accepted, and that are accepted at a time


def settings(application: ASGIApp, *, port: int = 0) -> uvicorn.Config:
    """Nothing but HTTP/1.1, from whoever connects: no header of a proxy is believed, and nothing is logged but faults.

    On this machine's own address, at a free port unless one is named; or on the sockets that the server is given.
    """
    return uvicorn.Config(
        application,
        host="127.0.0.1",
        port=port,
        loop="asyncio",
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        timeout_graceful_shutdown=LAST_WORD_SECONDS,
    )


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


def log_complaints() -> None:
    """From now on warnings are told on stderr, as those of the pages."""
    complaints = logging.StreamHandler()
    complaints.addFilter(OncePerMinute())
    logging.basicConfig(
        level=logging.WARNING,
        handlers=[complaints],
        format="%(asctime)s %(levelname)-7s pages: %(message)s",
        datefmt="%H:%M:%S",
    )


def run_as_child(main: Callable[[socket.socket, Connection], None]) -> None:
    """The process of some pages: it is handed a listening socket and a window to who started it, by their numbers."""
    log_complaints()
    try:
        main(socket.socket(fileno=int(sys.argv[1])), Connection(int(sys.argv[2])))
    except BackupdError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")


def serve_until_input_ends(wanted: uvicorn.Config, listener: socket.socket) -> None:
    """Answer until our standard input ends, as it does when the process ends that started us."""
    server = uvicorn.Server(wanted)
    threading.Thread(target=_end_with_the_input, args=(server,), daemon=True).start()
    server.run(sockets=[listener])


def _end_with_the_input(server: uvicorn.Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True
    time.sleep(LAST_WORD_SECONDS + 1)
    os._exit(0)  # whatever a thread is at
