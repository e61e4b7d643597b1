"""What systemd is told by a service of `Type=notify`, and what it has told us: sd_notify(3), in a few lines.

Knows: the protocol: one datagram of `KEY=VALUE` lines to the socket that the environment names. Where there is no
systemd, nothing is told and nobody misses it.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from backupd.host.launching import is_booted_by_systemd
from backupd.vocabulary.escaping import on_one_line


class Notify:
    """The way to the service manager that has started us, if one has."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_seconds = int(environment.get("WATCHDOG_USEC", 0)) / 1e6 if for_us else 0.0  # 0: none
        self._status = ""

    def ready(self) -> None:
        """The service does its work from now on."""
        self._send("READY=1")

    def alive(self) -> None:
        """The next `watchdog_seconds` begin."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """`systemctl status` shows this sentence; the same one again is not sent."""
        if text != self._status:
            self._send(f"STATUS={on_one_line(text)}")
            self._status = text

    def reloading(self) -> None:
        """The configuration is read anew; `ready` ends it. The instant is what `Type=notify-reload` asks for."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The service ends."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address  # abstract
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.setblocking(False)  # a manager that does not read must not hold up the clock
            way.sendto(message.encode(), address)


def runs_us(environment: Mapping[str, str]) -> bool:
    """Whether we are a service of the system's systemd, which can start units of their own for our runs."""
    return is_booted_by_systemd() and "INVOCATION_ID" in environment and os.geteuid() == 0
