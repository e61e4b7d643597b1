"""Ports of loopback for servers that have to know theirs before they start.

A port that the kernel chooses is given back before the server listens on it, and lies in the range of every client's:
on a busy machine somebody else may have it by then, or while the server is started again. Those given here lie outside
of that range, and no two processes of the tests get the same: a name in the kernel, an abstract socket, keeps each
for as long as whoever asked for it lives.
"""

import random
import socket
from pathlib import Path
from typing import Final

ADDRESS: Final = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LAST = 1024, 65_535
_kept: list[socket.socket] = []  # until this process ends


def free_port() -> int:
    """A port of `ADDRESS` at which nobody listens, and which nobody else is given."""
    dice = random.SystemRandom()
    while True:
        port = dice.choice(nobodys_ports())
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0backupd-tests-port-{port}")
            with socket.socket() as place:
                place.bind((ADDRESS, port))
        except OSError:  # somebody has it
            name.close()
        else:
            _kept.append(name)
            return port


def free_ports(count: int) -> list[int]:
    """So many, each another one."""
    return [free_port() for _ in range(count)]


def nobodys_ports() -> range:
    """Those that the kernel gives to nobody who has not asked for one of them."""
    low, high = map(int, _RANGE.read_text().split())
    return range(max(_FIRST, low // 2), low) or range(high + 1, _LAST + 1)
