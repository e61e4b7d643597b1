"""Other people on the server, and a run that holds its lock for as long as a test wants."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lab.inside.host import GATE_OFF, Changes, Host, Running, until

THEIRS = ("CREATE TABLE IF NOT EXISTS theirs (n INT)",)


@contextmanager
def session(host: Host, *statements: str, last: str = "SELECT 1") -> Iterator[None]:
    """A client that has had its answers to the statements and is at the last one while the block lasts."""
    argv = ["mariadb", "--batch", "--unbuffered", "--skip-column-names", "sbtest"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        print(*statements, "SELECT CONNECTION_ID()", last, sep=";\n", end=";\n", file=client.stdin, flush=True)
        connection = int(client.stdout.readline())
        try:
            yield
        finally:
            host.sql(f"KILL {connection}")
            client.kill()


@contextmanager
def under_the_lock(host: Host, *, hold_budget_seconds: int) -> Iterator[tuple[Running, int]]:
    """A run that has the lock, and the LVM shell that it waits for, which does nothing until it gets SIGCONT."""
    changes: Changes = {
        **GATE_OFF,
        "jobs.nightly.lock.strategy": "ftwrl",
        "jobs.nightly.lock.wait_timeout": "60s",
        "jobs.nightly.lock.hold_budget": f"{hold_budget_seconds}s",
    }
    with host.running(changes) as run:
        with session(host, *THEIRS, "LOCK TABLES theirs WRITE"):
            until(lambda: "FLUSH TABLES WITH READ LOCK" in _said_by_backupd(host))
            [shell] = _children(run.process.pid, "lvm")
            os.kill(shell, signal.SIGSTOP)
        try:
            until(lambda: _said_by_backupd(host) == {"NULL"})
            yield run, shell
        finally:
            with suppress(ProcessLookupError):
                os.kill(shell, signal.SIGCONT)


def _said_by_backupd(host: Host) -> set[str]:
    """What its sessions are executing; NULL is nothing."""
    return {row[0] for row in host.sql("SELECT info FROM information_schema.processlist WHERE user = 'backupd'")}


def _children(parent: int, name: str) -> list[int]:
    """By proc(5): the name stands in parentheses, and two words behind it the parent."""
    told = (stat.read_text() for stat in Path("/proc").glob("[0-9]*/stat"))
    found = (line for line in told if f"({name}) " in line and int(line.rpartition(")")[2].split()[1]) == parent)
    return [int(line.split()[0]) for line in found]
