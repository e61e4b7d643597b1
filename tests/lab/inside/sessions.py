"""Other people on the server, and a run that holds its lock for as long as a test wants."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
def under_the_lock(host: Host, *, hold_budget_seconds: int) -> Iterator[Running]:
    """A run that has the lock, and waits for a shell of LVM's that does nothing until the block has ended."""
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
            yield run
        finally:
            os.kill(shell, signal.SIGCONT)


def _said_by_backupd(host: Host) -> set[str]:
    """What its sessions are executing; NULL is nothing."""
    return {row[0] for row in host.sql("SELECT info FROM information_schema.processlist WHERE user = 'backupd'")}


def _children(parent: int, name: str) -> list[int]:
    told = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in told if Path(f"/proc/{pid}/comm").read_text().strip() == name]
