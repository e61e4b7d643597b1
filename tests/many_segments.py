"""A catalogue whose binlog archive has very many segments: weeks of one every five seconds."""

from dataclasses import replace
from datetime import timedelta

from sqlalchemy import insert, literal, text

from backupd.catalogue import binlog_tables
from backupd.catalogue.columns import to_row
from backupd.catalogue.store import Catalogue
from backupd.policy.binlog_chain import PlacedBackup
from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
from tests.binlog_segments import BEGAN, FIRST

SECONDS = 5  # a segment's
TRANSACTIONS = 10  # in each
BYTES = 1000

_FILLED = """
WITH RECURSIVE counted(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM counted WHERE n < :count)
INSERT INTO binlog_segments ({columns})
SELECT {values} FROM counted, binlog_segments AS model WHERE model.number = 1 AND model.chain = :chain
"""
_AT = "strftime('%Y-%m-%dT%H:%M:%S.000000+00:00', {began} + n * {seconds} - {before}, 'unixepoch')"


def numbered(number: int, *, machine: str, rotates_after: int) -> BinlogSegment:
    """That one of the archive, as `fill` makes it."""
    in_file, received = (number - 1) % rotates_after, BEGAN + timedelta(seconds=number * SECONDS)
    done = (number - 1) * TRANSACTIONS
    return replace(
        FIRST,
        machine=machine,
        number=number,
        previous=f"{number - 1:064x}" if number > 1 else "",
        digest=f"{number:064x}",
        file=f"binlog.{1 + (number - 1) // rotates_after:06}",
        start=4 + in_file * BYTES,
        end=4 + (in_file + 1) * BYTES,
        file_ended=in_file + 1 == rotates_after,
        gtid_start=f"0-1-{done}" if done else "",
        gtid_end=f"0-1-{done + TRANSACTIONS}",
        first_at=received - timedelta(seconds=SECONDS),
        last_at=received - timedelta(seconds=1),
        received_at=received,
    )


def fill(catalogue: Catalogue, count: int, *, rotates_after: int, target: str = "vault") -> None:
    """So many segments of one chain are known, and lie on the target; the server rotates its binlog after so many."""
    first = numbered(1, machine=catalogue.identity().name, rotates_after=rotates_after)
    in_file, began = f"((n - 1) % {rotates_after})", int(BEGAN.timestamp())
    told = {
        "number": "n",
        "previous": "printf('%064x', n - 1)",
        "digest": "printf('%064x', n)",
        "file": f"printf('binlog.%06d', 1 + (n - 1) / {rotates_after})",
        "start": f"4 + {in_file} * {BYTES}",
        "end": f"4 + ({in_file} + 1) * {BYTES}",
        "file_ended": f"{in_file} + 1 = {rotates_after}",
        "gtid_start": f"'0-1-' || ((n - 1) * {TRANSACTIONS})",
        "gtid_end": f"'0-1-' || (n * {TRANSACTIONS})",
        "first_at": _AT.format(began=began, seconds=SECONDS, before=SECONDS),
        "last_at": _AT.format(began=began, seconds=SECONDS, before=1),
        "received_at": _AT.format(began=began, seconds=SECONDS, before=0),
        "follows": "1",
    }
    names = [column.name for column in binlog_tables.segments.columns if column.name != "id"]
    columns, values = (
        ", ".join(f'"{name}"' for name in names),
        ", ".join(told.get(name, f'model."{name}"') for name in names),
    )
    with catalogue._engine.begin() as connection:
        connection.execute(insert(binlog_tables.segments).values({**to_row(first), "spooled": False, "follows": False}))
        connection.execute(text(_FILLED.format(columns=columns, values=values)), {"count": count, "chain": first.chain})
        ids = binlog_tables.segments.c
        stored = binlog_tables.stored.insert().from_select(
            ["segment_id", "target", "stored_at"],
            binlog_tables.segments.select().with_only_columns(ids.id, literal(target), ids.received_at),
        )
        connection.execute(stored)


def backup_at(number: int, *, rotates_after: int) -> PlacedBackup:
    """Taken when half of that segment had been written."""
    found = numbered(number, machine="", rotates_after=rotates_after)
    place = BinlogPlace(found.file, found.start + BYTES // 2)
    gtid = f"0-1-{(number - 1) * TRANSACTIONS + TRANSACTIONS // 2}"
    return PlacedBackup(f"run-{number}", place, gtid, found.received_at - timedelta(seconds=SECONDS / 2))
