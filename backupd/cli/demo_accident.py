"""The end of the demonstration: somebody drops a table of the loaded server, and it comes back with every row.

Read `accident` aloud. Knows: the runbook "somebody dropped a table", as its steps are typed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from backupd.cli.output import print_text
from backupd.host.process import spawned
from backupd.lab import server
from backupd.lab.configuration import add_archive
from backupd.lab.options import ServerKind
from backupd.lab.orders import TABLE, Orders
from backupd.lab.site import LabSite, guest_site
from backupd.vocabulary.errors import LabError

_ORDERS_SECONDS = 10.0
_ARCHIVED_SECONDS = 120.0  # some seconds are enough on an idle machine
_COUNT = f"SELECT COUNT(*) FROM {TABLE}"  # noqa: S608 - our own


def accident(job: str, typed: Callable[..., None]) -> None:
    """`typed` runs a command of backupd's as a person types it.

    Raises:
        LabError: the table did not come back as it was.
    """
    site = guest_site()
    add_archive(site, job)
    server.execute(site, "GRANT REPLICATION SLAVE ON *.* TO backupd@localhost")
    print_text(f"\nthe accident: orders come in beside the load, and somebody drops {TABLE}")
    log = site.runtime / "receiver.log"
    with _archiving(job, log):
        with Orders(site.socket) as orders:
            time.sleep(_ORDERS_SECONDS)  # so that there is something to lose
            _say("mariadb", f"-e 'DROP TABLE {TABLE}'")
            server.execute(site, f"DROP TABLE {TABLE}")
        gtid = _archived_drop(job, log)
        typed("binlog", "list", job)
        typed("binlog", "search", job, "--table", TABLE, "--kind", "drop")
        to = site.state / "restored" / "data"
        typed("restore", "--to", str(to), "--before-gtid", gtid)
        _bring_back(site, to.parent)
        print_text(_outcome(server.execute(site, _COUNT).strip(), orders.acknowledged))


@contextmanager
def _archiving(job: str, log: Path) -> Iterator[None]:
    """As `backupd serve` does it."""
    _say("backupd", f"binlog receive {job} &")
    with (
        log.open("wb") as said,
        spawned([sys.argv[0], "binlog", "receive", job], stdout=subprocess.DEVNULL, stderr=said),
    ):
        yield


def _archived_drop(job: str, log: Path) -> str:
    """The drop's GTID, as soon as the archive has it.

    Raises:
        LabError: it never came there.
    """
    search = [sys.argv[0], "binlog", "search", job, "--table", TABLE, "--kind", "drop", "--json"]
    deadline = time.monotonic() + _ARCHIVED_SECONDS
    while time.monotonic() < deadline:
        found = json.loads(subprocess.run(search, check=True, capture_output=True).stdout)["transactions"]
        if found:
            return str(found[0]["gtid"])
        time.sleep(1)  # between two looks: the archive tells nobody that it has stored a segment
    raise LabError(
        f"the drop of {TABLE} was not archived within {_ARCHIVED_SECONDS:g} s",
        hint=f"the receiver's log:\n{log.read_text(errors='replace')}",
    )


def _bring_back(site: LabSite, volume: Path) -> None:
    """The table alone, from a server on the restored files into the live one."""
    beside = replace(
        site, mount_point=volume, runtime=site.runtime / "restored", socket=site.runtime / "restored.sock", port=0
    )
    beside.runtime.mkdir()
    with server.running(beside, ServerKind.MARIADB_10):
        schema, _, table = TABLE.partition(".")
        script = f"mariadb-dump --no-defaults --socket={beside.socket} {schema} {table} | mariadb {schema}"
        print_text(f"\n$ {script}")
        subprocess.run(["sh", "-c", script], check=True)


def _outcome(back: str, acknowledged: int) -> str:
    """What the witness says.

    Raises:
        LabError: rows are missing, or too many.
    """
    if back != str(acknowledged):
        raise LabError(f"{acknowledged} orders were acknowledged before the drop, and {back} are back")
    return f"\n{acknowledged} orders were acknowledged before the drop: all {back} are back, in the live server"


def _say(program: str, words: str) -> None:
    print_text(f"\n$ {program} {words}")
    sys.stdout.flush()
