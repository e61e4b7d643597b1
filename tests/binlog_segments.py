"""Segments of a binlog archive for tests: chains as a server and a careful archive would have made them."""

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from backupd.archive.segment_bytes import seal
from backupd.policy.segment_file import MOST_CHANGES, ChangeSum, signed, to_line
from backupd.policy.signing import Signer
from backupd.targets import Target
from backupd.targets.names import BINLOG
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, SegmentOrigin, TableChange
from backupd.vocabulary.servers import Flavour
from tests.fakes.target import MACHINE

BEGAN = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
CHAIN = "20261120T040000Z-0123abcd"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

FIRST = BinlogSegment(
    machine=MACHINE,
    job="nightly",
    chain=CHAIN,
    number=1,
    previous="",
    origin=SegmentOrigin(Flavour.MARIADB, "10.11.19-MariaDB", 1, ""),
    file="binlog.000007",
    start=4,
    end=1004,
    file_ended=False,
    format=base64.b64encode(bytes(100)).decode(),
    gtid_start="",
    gtid_end="0-1-10",
    transactions=10,
    within_transaction=False,
    first_at=BEGAN,
    last_at=BEGAN + timedelta(seconds=9),
    received_at=BEGAN + timedelta(seconds=10),
    changes=(TableChange("shop", "orders", ChangeKind.INSERT, 10),),
    all_changes=True,
    plain_bytes=1000,
    plain_sha256="a" * 64,
    stored_bytes=300,
    stored_sha256="b" * 64,
    recipients=(),
    digest="1" * 64,
)


def following(before: BinlogSegment, *, transactions: int = 10, rotates: bool = False) -> BinlogSegment:
    """The segment after it, with a transaction a second, of which the server writes GTIDs of MariaDB's."""
    done = int(before.gtid_end.rpartition("-")[2] or 0)
    last = before.received_at - timedelta(seconds=1)
    name, _, number = before.file.rpartition(".")
    begin = 4 if before.file_ended else before.end
    return replace(
        before,
        number=before.number + 1,
        previous=before.digest,
        file=f"{name}.{int(number) + 1:06}" if before.file_ended else before.file,
        start=begin,
        end=begin + 1000,
        file_ended=rotates,
        gtid_start=before.gtid_end,
        gtid_end=f"0-1-{done + transactions}" if transactions else before.gtid_end,
        transactions=transactions,
        first_at=last + timedelta(seconds=1) if transactions else None,
        last_at=last + timedelta(seconds=transactions) if transactions else None,
        received_at=last + timedelta(seconds=transactions + 1),
        digest=f"{int(before.digest, 16) + 1:064x}",
    )


def begun_by(version: str, *, at: int = 0) -> str:
    """What a server of this version writes first into a binlog, as a segment has it."""
    return base64.b64encode(struct.pack("<I15xH50s", at, 4, version.encode()).ljust(100, b"\0")).decode()


def upgraded(before: BinlogSegment, *, to: str, rotates: bool = False) -> BinlogSegment:
    """The segment after it, which its server has begun another binlog with, once it was of that version."""
    origin = replace(before.origin, version=to)
    return replace(following(before, rotates=rotates), origin=origin, format=begun_by(to))


def summed(changes: Iterable[TableChange], at_most: int = MOST_CHANGES) -> tuple[tuple[TableChange, ...], bool]:
    """As an archive tells them of a segment; and whether that is all of them."""
    found = ChangeSum(at_most)
    for change in changes:
        found.add((change.schema, change.table, change.kind), change.rows)
    return found.changes, found.everything


def chain_of(count: int, *, first: BinlogSegment = FIRST, rotates_after: int = 3) -> list[BinlogSegment]:
    """So many segments from this one on; after each so many the server begins another binlog."""
    found = [first]
    while len(found) < count:
        found.append(following(found[-1], rotates=len(found) % rotates_after == 0))
    return found


@dataclass(frozen=True)
class StoredSegment:
    """A segment with the bytes of its file, as an archive stores it."""

    segment: BinlogSegment
    content: bytes  # the line and the sealed events


def sealed_chain(
    count: int, signer: Signer, *, first: BinlogSegment = FIRST, recipients: tuple[str, ...] = ()
) -> list[StoredSegment]:
    """So many segments of bytes that are no events, each sealed, signed and bound to the one before it."""
    found: list[StoredSegment] = []
    for plan in chain_of(count, first=replace(first, recipients=recipients)):
        events = f"{plan.name} ".encode().ljust(plan.plain_bytes, b".")
        sealed = seal([events], recipients=recipients, level=3)
        told = replace(
            plan,
            previous=found[-1].segment.digest if found else "",
            plain_sha256=sealed.plain_sha256,
            stored_bytes=len(sealed.content),
            stored_sha256=sealed.sha256,
        )
        segment = signed(told, signer)
        found.append(StoredSegment(segment, to_line(segment) + sealed.content))
    return found


def lay_segments(target: Target, stored: Iterable[StoredSegment]) -> None:
    """They are on the target."""
    for one in stored:
        with target.writing(one.segment.job, BINLOG, one.segment.name) as writer:
            writer.write(one.content)
