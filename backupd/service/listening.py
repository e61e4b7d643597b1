"""The pages' process: it comes and goes without the daemon's noticing more than its end.

Knows: what the process is handed. That comes over a socket: neither its command line nor its environment has the token,
and of the configuration it gets nothing that tells where others are told.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

from backupd.config import Configuration
from backupd.config.effective import as_toml
from backupd.service.machine_view import own_eyes
from backupd.service.pages_channel import answer
from backupd.service.pages_process import PagesProcess, StartedPages, start_module

log = logging.getLogger(__name__)


class WebProcess(PagesProcess):
    """The pages of the daemon."""

    def __init__(self, configuration: Configuration, *, say: Callable[[str], None]) -> None:
        super().__init__(configuration.service, table="service", say=say)
        self._configuration = configuration

    def show(self, configuration: Configuration) -> None:
        """From now on this is what is looked at: by another process, while the one before says its last word."""
        self._configuration = configuration
        self.begin_anew()

    def start(self, listener: socket.socket) -> StartedPages:
        """Its window is looked after by a thread, which hands it what it needs first: it may be slow to take it.

        Where that fails halfway, the process ends, for its window is closed.

        Raises:
            OSError, RuntimeError: there is no room for one more process, its sockets or its thread.
        """
        started = start_module("backupd.service.web", listener)
        try:
            window = Connection(os.dup(started.window.fileno()))
            threading.Thread(target=self._attend, args=(started, window), name="window", daemon=True).start()
        except BaseException:
            started.window.close()
            raise
        return started

    def _attend(self, started: StartedPages, window: Connection) -> None:
        shown = shown_of(self._configuration)
        with window:
            try:
                window.send_bytes(json.dumps({"configuration": as_toml(shown), "token": self.token}).encode())
                answer(window, own_eyes(shown))
            except ConnectionError:
                return  # it has ended, which `keep_up` sees
            except (ValueError, RecursionError) as error:
                log.error("stopped the pages' process, because it made a request that is not allowed: %s", error)
                started.kill()


def shown_of(configuration: Configuration) -> Configuration:
    """Without where others are told and what is run: the address of a webhook is a secret, a command may have one."""
    jobs = {name: replace(job, hooks={}) for name, job in configuration.jobs.items()}
    return replace(configuration, jobs=jobs, notifications={})
