"""What `mysqlbinlog -v` and `mariadb-binlog -v` print of a binlog, as an oracle: places, GTIDs, rows of tables."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from backupd.mysql.binlog.events import EventStream
from backupd.mysql.binlog.transactions import TransactionReader
from backupd.vocabulary.binlogs import ChangeKind, LoggedTransaction
from backupd.vocabulary.servers import Flavour

_AT = re.compile(r"# at (\d+)")
_END = re.compile(r"#.*? end_log_pos (\d+) (?:CRC32 0x\w+ )?\s*(.*)")
_MARIADB_GTID = re.compile(r"GTID (\d+-\d+-\d+)")
_NEXT = re.compile(r"SET @@SESSION.GTID_NEXT= '(.*?)'")
_ROWS = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) (.*)")
_KINDS = {"INSERT INTO": ChangeKind.INSERT, "UPDATE": ChangeKind.UPDATE, "DELETE FROM": ChangeKind.DELETE}

Rows = Counter[tuple[str, ChangeKind]]


@dataclass
class Printed:
    """A transaction as the program prints it."""

    start: int
    gtid: str | None
    rows: Rows = field(default_factory=Counter)


def printed(text: str) -> tuple[list[Printed], set[int]]:
    """The transactions, and the ends of all events."""
    found: list[Printed] = []
    ends: set[int] = set()
    at = 0
    for line in text.splitlines():
        if started := _AT.fullmatch(line):
            at = int(started[1])
        elif ended := _END.match(line):
            ends.add(int(ended[1]))
            if gtid := _MARIADB_GTID.match(ended[2]):
                found.append(Printed(at, gtid[1]))
            elif ended[2].startswith(("GTID\t", "Anonymous_GTID\t")):
                found.append(Printed(at, None))
        elif (following := _NEXT.match(line)) and following[1] not in ("ANONYMOUS", "AUTOMATIC"):
            found[-1].gtid = following[1].lower()
        elif rows := _ROWS.fullmatch(line.rstrip()):
            found[-1].rows[_bare(rows[2]), _KINDS[rows[1]]] += 1
    return found, ends - {0}


def read(content: bytes, flavour: Flavour, *, piece: int = 1 << 16) -> tuple[list[LoggedTransaction], set[int]]:
    """The same as backupd reads it."""
    stream, reader = EventStream("bin.000001"), TransactionReader(flavour, "bin.000001")
    found, ends = [], set()
    for at in range(0, len(content), piece):
        for event in stream.feed(content[at : at + piece]):
            ends.add(event.end)
            if transaction := reader.feed(event):
                found.append(transaction)
    assert not reader.within
    assert not stream.pending
    return found, ends


def assert_alike(content: bytes, text: str, flavour: Flavour) -> list[LoggedTransaction]:
    """Both say the same of transactions, GTIDs, ends and rows. `shop.places` is too much for the programs."""
    expected, expected_ends = printed(text)
    found, ends = read(content, flavour)
    assert ends == expected_ends
    assert [(one.start.offset, one.gtid) for one in found] == [(one.start, one.gtid) for one in expected]
    assert [_readable(_rows(one)) for one in found] == [_readable(one.rows) for one in expected]
    assert all(one.end.offset in ends for one in found)
    return found


def binlog(name: str) -> bytes:
    """A recorded one."""
    return (Path(__file__).parent / "data" / "binlog" / f"{name}.bin").read_bytes()


def _rows(transaction: LoggedTransaction) -> Rows:
    return Counter(
        {(_bare(f"{one.schema}.{one.table}"), one.kind): one.rows for one in transaction.changes if one.rows}
    )


def _readable(rows: Rows) -> Rows:
    """MySQL 9.7.4's program gives an event up at a GEOMETRY, whose rows it then does not print."""
    return Counter({where: count for where, count in rows.items() if where[0] != "shop.places"})


def _bare(name: str) -> str:
    return name.replace("`", "")  # MySQL's program doubles none in a name, MariaDB's does
