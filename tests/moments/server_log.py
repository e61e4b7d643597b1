"""A server's own binlogs, as the server's own program prints them: which transactions, where, when, in which order.

Knows: the text of `mariadb-binlog` and of `mysqlbinlog`. A witness has times and places from it: nothing of it comes
from backupd's own reader, nor from the archive.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.moments.tables import DATABASE

_AT = re.compile(r"# at (\d+)$")
_EVENT = re.compile(r"#(\d{6} [ \d]\d:\d\d:\d\d) server id \d+ +end_log_pos (\d+)\b[^\t]*\t(\w+)")
_GTID = re.compile(r"\tGTID (\d+-\d+-\d+)|^SET @@SESSION\.GTID_NEXT= *'([^']+:\d+)'")
_COMMITTED = re.compile(r"immediate_commit_timestamp=(\d+)")
_TOKEN = re.compile(r"###   @1=(\d+)")
_INSERTED = f"### INSERT INTO `{DATABASE}`."
_ENDS = ("Xid", "Query")
_BETWEEN = ("Rotate", "Stop", "Start", "Binlog", "Gtid", "Previous")  # a file's beginning and end, checkpoints
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Logged:
    """One transaction."""

    file: str
    start: int
    gtid: str = ""
    end: int = 0  # nothing, as long as what ends it has not come
    at: datetime = _EPOCH  # of its commit, as the log has it: MySQL to the microsecond, MariaDB to the second
    exact: bool = False
    token: int | None = None  # the id of the first row that it inserts into the clients' database
    inserts: bool = False
    statements: list[str] = field(default_factory=list, repr=False)  # their beginnings, without rows

    @property
    def place(self) -> str:
        """Behind it."""
        return f"{self.file}:{self.end}"


def logged(program: Path | str, binlogs: Sequence[Path]) -> list[Logged]:
    """All that have ended, in their order: what a server that was killed had half written is none."""
    return [one for file in binlogs for one in _transactions(file.name, _printed(program, file)) if one.end]


def _printed(program: Path | str, file: Path) -> Iterator[str]:
    command = [program, "--no-defaults", "--verbose", "--base64-output=decode-rows", str(file)]
    environment = {**os.environ, "TZ": "UTC"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment) as told:
        assert told.stdout is not None
        yield from told.stdout


def _transactions(file: str, lines: Iterable[str]) -> Iterator[Logged]:
    one, at = Logged("", 0), 0
    for line in lines:
        if found := _AT.match(line):
            at = int(found[1])
        elif found := _EVENT.match(line):
            if found[3] == "GTID":
                yield one
                one = Logged(file, at)
            elif found[3] in _BETWEEN:
                yield one
                one = Logged("", 0)
            else:
                one.end = int(found[2]) if found[3] in _ENDS else 0
            _timed(one, line, found[1])
        _told(one, line)
    yield one


def _timed(one: Logged, line: str, second: str) -> None:
    """MySQL tells the commit in the first event; MariaDB's time is that of the last one."""
    if committed := _COMMITTED.search(line):
        one.at, one.exact = _EPOCH + timedelta(microseconds=int(committed[1])), True
    elif not one.exact:
        one.at = datetime.strptime(second, "%y%m%d %H:%M:%S").replace(tzinfo=UTC)


def _told(one: Logged, line: str) -> None:
    if gtid := _GTID.search(line):
        one.gtid = gtid[1] or gtid[2]
    if line.startswith("###"):
        one.inserts |= line.startswith(_INSERTED)
        if one.inserts and one.token is None and (token := _TOKEN.match(line)):
            one.token = int(token[1])
    elif line.strip() == "BEGIN":
        one.end = 0  # a statement, and no end
    elif not line.startswith("#"):
        one.statements.append(line[:200])
