"""What an archive of the binlog costs its server, beside what the servers' own client alone costs: rounds, and a table.

Each round has five parts: nothing, the client program alone (`--raw --stop-never` into a folder: less no receiver can
take), nothing, the archive, nothing. What one of the two lost is judged by the parts before and behind it; the same of
the part in the middle, of which there is no reason to lose anything, is the noise.

An archive that lags behind saves for later what it costs: so how long it takes, from the end of its part, until all is
on the target that had been committed by then.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.mysql.binlog.client import environment, matching_client, option_file, receiving_argv
from backupd.mysql.binlog.source import binlog_source
from backupd.mysql.login import Login
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import connector
from backupd.vocabulary.errors import LabError

LOST_PERCENT = 1.0
BEHIND_SECONDS = 10.0

_CLIENTS_ID = 0xFEFE_0001
_LOOK_SECONDS, _LONGEST_SECONDS = 0.2, 300.0
_START_SECONDS = 1.0  # a receiver has begun by then, and has what is there


@dataclass(frozen=True, slots=True)
class Ways:
    """How a part is measured. Processes are told by their ids."""

    rate: Callable[[], float]  # transactions a second, in one part
    client: Callable[[], AbstractContextManager[int]]
    archive: Callable[[], AbstractContextManager[int]]
    catch_up: Callable[[], float]  # seconds until all that has been committed by now is on the target


@dataclass(frozen=True, slots=True)
class Part:
    """Transactions a second, and processor seconds of each second that were spent beside the server."""

    rate: float
    processors: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """Five parts."""

    before: Part
    client: Part
    between: Part
    archive: Part
    after: Part
    behind: float  # seconds, of the archive when its part ended

    @property
    def lost_by_client(self) -> float:
        """Per cent."""
        return _lost(self.client, self.before, self.between)

    @property
    def lost(self) -> float:
        """The same of the archive."""
        return _lost(self.archive, self.between, self.after)

    @property
    def noise(self) -> float:
        """The same of nothing."""
        return _lost(self.between, self.before, self.after)


def one_round(ways: Ways) -> Round:
    """The five parts, one after the other."""
    before = Part(ways.rate())
    with ways.client() as pid:
        client = _part(ways, pid)
    between = Part(ways.rate())
    with ways.archive() as pid:
        archive = _part(ways, pid)
        behind = ways.catch_up()
    return Round(before, client, between, archive, Part(ways.rate()), behind)


def tell(name: str, rounds: Sequence[Round]) -> bool:
    """Print them; whether a limit is missed."""
    per_transaction = [1e6 * one.archive.processors / one.archive.rate for one in rounds]
    lost, behind = ([one.lost for one in rounds], [one.behind for one in rounds])
    say(f"{name}, {len(rounds)} rounds: median (from - to)")
    say(f"    transactions a second           {spread([one.before.rate for one in rounds], '7.0f')}")
    say(f"    beside the client alone         {spread([one.client.rate for one in rounds], '7.0f')}")
    say(f"    beside the archive              {spread([one.archive.rate for one in rounds], '7.0f')}")
    say(f"    lost beside the client, %       {spread([one.lost_by_client for one in rounds], '7.1f')}")
    say(f"    lost beside the archive, %      {spread(lost, '7.1f')}")
    say(f"    noise: lost beside nothing, %   {spread([one.noise for one in rounds], '7.1f')}")
    say(f"    the client's processors         {spread([one.client.processors for one in rounds], '7.3f')}")
    say(f"    the archive's, with its client  {spread([one.archive.processors for one in rounds], '7.3f')}")
    say(f"    that is of a transaction, µs    {spread(per_transaction, '7.0f')}")
    say(f"    behind at the part's end, s     {spread(behind, '7.1f')}")
    return statistics.median(lost) > LOST_PERCENT or max(behind) > BEHIND_SECONDS


def caught_up(reached: Callable[[str], bool], executed: str) -> float:
    """How many seconds it takes until that is on the target."""
    began = time.monotonic()
    _wait_until(lambda: reached(executed), "the archive has not caught up")
    return time.monotonic() - began


@contextmanager
def client_alone(login: Login, folder: Path) -> Iterator[int]:
    """The server's client receives what is written from now on into the folder, and nobody reads it."""
    connect = connector(login)
    client = matching_client(MysqlServer(connect).facts())
    with connect() as session:
        start = binlog_source(session).end
    if start is None:
        raise LabError("the server's binlog is off")
    folder.mkdir()
    argv = receiving_argv(client, folder, start=start, server_id=_CLIENTS_ID)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment()) as process:
        assert process.stdin is not None
        process.stdin.write(option_file(login, client.flavour).encode())
        process.stdin.close()
        try:
            _wait_until(lambda: any(folder.iterdir()), "the client has received nothing")
            yield process.pid
            if process.poll() is not None:
                raise LabError("the client ended before its part was over")
        finally:
            process.terminate()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def processor_seconds(pid: int) -> float:
    """What a process and its children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [
        int(child) for each in Path(f"/proc/{pid}/task").glob("*/children") for child in each.read_text().split()
    ]
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_seconds, children))


def spread(values: Sequence[float], form: str) -> str:
    """The median, the least and the most."""
    median, least, most = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} - {most})"


def say(line: str) -> None:
    """At once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{otherwise} within {_LONGEST_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)


def _part(ways: Ways, pid: int) -> Part:
    time.sleep(_START_SECONDS)
    used, began = processor_seconds(pid), time.monotonic()
    rate = ways.rate()
    return Part(rate, (processor_seconds(pid) - used) / (time.monotonic() - began))


def _lost(part: Part, before: Part, after: Part) -> float:
    return 100 * (1 - 2 * part.rate / (before.rate + after.rate))
