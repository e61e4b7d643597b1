"""What a binlog archive costs a server that waits for its disks: part of `make bench-archive`, in the lab.

The load is the lab's closed loop: four clients, each of which goes on as soon as its transaction is durable, with
`sync_binlog = 1` on disks that take as long as the real ones. Spool and target lie on other disks. Rounds as
`archive_cost` has them.

Started in a machine, as `backupd lab run --load closed -- python -m tests.bench.bench_archive_lab [--rounds N]
[--round-seconds N]`. The exit status is 1 where a limit is missed: 1 % of the transactions lost at the median, 10 s
behind at the end of a part.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backupd.lab import load, server
from backupd.lab.configuration import add_archive
from backupd.lab.site import LabSite, guest_site
from backupd.mysql.login import Login
from backupd.policy import gtid
from tests.bench.archive_cost import (
    BEHIND_SECONDS,
    LOST_PERCENT,
    Ways,
    caught_up,
    client_alone,
    one_round,
    say,
    tell,
)

_JOB = "nightly"
_WARM_UP_SECONDS = 15.0  # a server that has just started gets faster for a while


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="bench_archive_lab")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-seconds", type=float, default=20.0, help="of each of a round's five parts")
    asked = parser.parse_args(arguments)
    site = guest_site()
    add_archive(site, _JOB)
    server.execute(site, "GRANT REPLICATION SLAVE ON *.* TO backupd@localhost")
    password = site.password_file.read_text(encoding="utf-8").strip()
    login = Login("backupd", socket=site.socket, password=password)
    ways = Ways(
        rate=lambda: _rate(site, asked.round_seconds),
        client=lambda: client_alone(login, site.state / "raw"),
        archive=lambda: _archive(site),
        catch_up=lambda: caught_up(lambda executed: _stored(site, executed), _executed(site)),
    )
    time.sleep(_WARM_UP_SECONDS)
    missed = tell("the lab's closed loop of four clients", [one_round(ways) for _ in range(asked.rounds)])
    say(f"at most {LOST_PERCENT:g} % lost, {BEHIND_SECONDS:g} s behind: {'MISSED' if missed else 'kept'}")
    return int(missed)


def _rate(site: LabSite, seconds: float) -> float:
    begin = time.time()
    time.sleep(seconds + 1)  # the load tells of each second when it is over
    samples = load.parse_load(site.load_log.read_text(encoding="utf-8"))
    return load.rate_between(samples, begin, begin + seconds) or 0.0


@contextmanager
def _archive(site: LabSite) -> Iterator[int]:
    """As `backupd serve` does it."""
    log = site.runtime / "receiver.log"
    with log.open("wb") as said:
        command = [sys.executable, "-P", "-m", "backupd", "binlog", "receive", _JOB]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as process:
            try:
                caught_up(lambda executed: _stored(site, executed), _executed(site))
                yield process.pid
            finally:
                process.terminate()


def _executed(site: LabSite) -> str:
    return server.execute(site, "SELECT @@gtid_binlog_pos").strip()


def _stored(site: LabSite, executed: str) -> bool:
    """Whether the newest segment on the target reaches so far."""
    newest: Path | None = max(site.backups.glob(f"*/{_JOB}/binlog/*.binlog"), default=None)
    if newest is None:
        return False
    with newest.open("rb") as file:
        return gtid.is_within(executed, json.loads(file.readline())["gtid_end"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
