"""Ports for servers of the tests: nobody else's, neither now nor by the time that the server listens."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.servers.ports import free_port, nobodys_ports

ROOT = Path(__file__).parents[2]


def test_a_port_can_be_listened_on_and_is_none_that_the_kernel_chooses() -> None:
    port = free_port()
    assert port in nobodys_ports()
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", 0)) as other:
        assert other.getsockname()[1] not in nobodys_ports()


def test_a_port_that_somebody_was_given_is_given_to_nobody_else() -> None:
    given = [free_port() for _ in range(20)]
    assert len(set(given)) == len(given)
    script = (
        "import sys; from tests.servers import ports\n"
        "given = set(map(int, sys.argv[1:]))\n"
        "ports.nobodys_ports = lambda: [port + more for port in given for more in range(2)]\n"
        "print(*(ports.free_port() for _ in range(5)))"
    )
    argv = [sys.executable, "-c", script, *map(str, given)]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert set(map(int, said.stdout.split())).isdisjoint(given)
