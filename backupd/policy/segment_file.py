"""What is told of a segment of the binlog archive, as the first line of its file, and back.

Knows: the line's shape (`schema`, the fields of `BinlogSegment`, `digest`), what none of its values can be, and for how
many changes it has room. Refuses to know what follows the line.

The line is JSON and ends with a line feed. Digest and signature are as of a manifest, and so is how it may grow: see
`manifest`. It comes from a storage that may have made it up; a signature that is there is right, or the line is not
read; whether its key is believed is `trust`'s to say.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from backupd.policy import gtid
from backupd.policy.signing import Signer, is_signed
from backupd.policy.time_zones import is_zone_name
from backupd.policy.typed_json import DocumentKind, digests, plain
from backupd.vocabulary.binlogs import BinlogSegment, TableChange, Where
from backupd.vocabulary.errors import ServerError, VerificationError
from backupd.vocabulary.identity import is_name
from backupd.vocabulary.servers import Flavour

MAJOR = 1  # 1.1: gtid_state; 1.2: origin.zone; 1.3: origin.whole_since

LONGEST_LINE = 1 << 20  # bytes, with the line feed
LONGEST_SET = 384 << 10  # characters of a set of GTIDs: both of a segment's and most changes fit into the line
MOST_CHANGES = 128  # that are told of a segment: 200 KiB, whatever the names are
LONGEST_STATE = 16 << 10  # characters: what is longer is not told
LONGEST_NAME = 64  # characters of a schema or table: no server has longer ones

CHAIN: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}", re.ASCII)  # when it began, and at random
FIRST_OFFSET = 4  # of a binlog's first event, behind the magic

_LARGEST = 1 << 40  # bytes of a segment, and of a binlog: one transaction may make either larger than it is meant
_MOST_RECIPIENTS = 2048  # more than `archive.sealing` seals for
_YEARS = range(1970, 9999)  # that a server logs: any client of MariaDB's may `SET timestamp`, a clock may be unset
_HIGHEST_NUMBER = 10**10 - 1  # as names have it
_SIGNED = b"backupd binlog segment 1\0"  # before the digest that is signed: such a signature is of nothing else
_JOB = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}", re.ASCII)
_FILE = re.compile(r"""[^/\\'"`;]{1,200}\.[0-9]{6,10}""")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_EVENT_BYTES = range(19, 3 << 10)  # of a format description event: at least an event's header

_ADDED_TO_ORIGIN = ("zone", "whole_since")

_HINT = "it was damaged or changed on the target; use the segment's copy on another target"
_KIND = DocumentKind(
    name="segment's description",
    major=MAJOR,
    most_bytes=LONGEST_LINE,
    most_values=1 << 18,  # commas within sets of GTIDs count as well
    damaged_hint=_HINT,
    unknown_hint="something other than backupd wrote it: use the segment's copy on another target",
    newer_hint="use that newer backupd to read this segment; nothing is wrong with it",
    years=_YEARS,
)


def to_line(segment: BinlogSegment) -> bytes:
    """The line, with its line feed.

    Raises:
        ServerError: it would be longer than any reader takes: the server's sets of GTIDs are.
    """
    body = _body(segment)
    text = json.dumps({**body, "digest": digests(body)[0]}, default=plain, separators=(",", ":"))
    line = f"{text}\n".encode()
    if len(line) > LONGEST_LINE or max(len(segment.gtid_start), len(segment.gtid_end)) > LONGEST_SET:
        raise ServerError(
            f"the server's sets of GTIDs are too long to be archived: segment {segment.name} would be described in"
            f" {len(line)} bytes, and {LONGEST_LINE} are possible, or sets of {LONGEST_SET} characters",
            hint="check @@GLOBAL.gtid_executed for a very large number of gaps",
        )
    return line


def signed(segment: BinlogSegment, signer: Signer) -> BinlogSegment:
    """The same with its signature, and the digest that its line has with it."""
    unsigned = digests(_body(replace(segment, signature=None)))[0]
    found = replace(segment, signature=signer.sign(_SIGNED + bytes.fromhex(unsigned)))
    return replace(found, digest=digests(_body(found))[0])


def from_line(line: bytes) -> BinlogSegment:
    """What was written, as far as this backupd knows it.

    Raises:
        VerificationError: it is no such line, or was changed after it was written or signed.
        Unreadable: it is as it was written, and a newer backupd wrote it, or no segment can be as it says.
    """
    if len(line) > LONGEST_LINE or not line.endswith(b"\n") or b"\n" in line[:-1]:
        raise VerificationError(
            f"the segment does not begin with its description: one line of at most {LONGEST_LINE} bytes", hint=_HINT
        )
    body = _KIND.parsed(line)
    digest = body.pop("digest", None)
    found, unsigned = digests(body)
    if digest != found:
        raise VerificationError(
            "the segment's description was changed after it was written: its digest differs", hint=_HINT
        )
    _KIND.require_major(body.pop("schema", None))
    segment = _KIND.typed(BinlogSegment, body, "segment")
    assert isinstance(segment, BinlogSegment)
    _require_possible(segment)
    if segment.signature is not None and not is_signed(segment.signature, _SIGNED + bytes.fromhex(unsigned)):
        raise VerificationError(
            "the segment's description was changed after it was signed: its signature is wrong", hint=_HINT
        )
    return replace(segment, digest=found)


class ChangeSum:
    """One change for each table and kind, with the rows of all, in their order.

    Of more than `at_most` the first ones are told. What has a name that no server gives is not told either.
    """

    def __init__(self, at_most: int = MOST_CHANGES) -> None:
        self._at_most = at_most
        self._rows: dict[Where, int] = {}
        self.everything = True  # nothing was left out

    @property
    def changes(self) -> tuple[TableChange, ...]:
        """So far."""
        return tuple(TableChange(*where, rows=count) for where, count in self._rows.items())

    def add(self, where: Where, rows: int) -> None:
        """So many rows there."""
        before = self._rows.get(where)
        if before is not None:
            self._rows[where] = before + rows
        elif len(self._rows) < self._at_most and max(len(where[0]), len(where[1])) <= LONGEST_NAME:
            self._rows[where] = rows
        else:
            self.everything = False


def _body(segment: BinlogSegment) -> dict[str, Any]:
    """What the digest is of. What tells nothing that a minor added is as the minor before it wrote it."""
    body: dict[str, Any] = {"schema": {"major": MAJOR, "minor": _minor(segment)}, **plain(segment)}
    if not segment.gtid_state:
        del body["gtid_state"]
    told = plain(segment.origin)
    body["origin"] = {key: value for key, value in told.items() if value or key not in _ADDED_TO_ORIGIN}
    return body


def _minor(segment: BinlogSegment) -> int:
    if segment.origin.whole_since is not None:
        return 3
    if segment.origin.zone:
        return 2
    return 1 if segment.gtid_state else 0


def _require_possible(segment: BinlogSegment) -> None:
    """Every value is one that a segment can have, by itself and beside the others.

    Raises:
        Unreadable: naming the first that is not.
    """
    possible: Mapping[str, bool] = {
        "machine": is_name(segment.machine),
        "job": _JOB.fullmatch(segment.job) is not None,
        "chain": CHAIN.fullmatch(segment.chain) is not None,
        "number": 1 <= segment.number <= _HIGHEST_NUMBER,
        "previous": _is_previous(segment),
        "origin": _is_origin(segment),
        "file": _FILE.fullmatch(segment.file) is not None,
        "start": segment.start >= FIRST_OFFSET,
        "end": segment.start + (not segment.file_ended) <= segment.end <= _LARGEST,  # a crash may end a file unseen
        "format": _is_format(segment.format),
        "gtid_start": _is_set(segment.gtid_start, segment.origin.flavour),
        "gtid_end": _is_set(segment.gtid_end, segment.origin.flavour),
        "gtid_state": len(segment.gtid_state) <= LONGEST_STATE and _is_set(segment.gtid_state, segment.origin.flavour),
        "transactions": 0 <= segment.transactions <= segment.end - segment.start,
        "first_at": (segment.first_at is None) is (segment.transactions == 0),
        "last_at": (segment.last_at is None) is (segment.transactions == 0),
        "changes": _are_changes(segment.changes),
        "plain_bytes": segment.plain_bytes == segment.end - segment.start,
        "plain_sha256": _SHA256.fullmatch(segment.plain_sha256) is not None,
        "stored_bytes": 0 < segment.stored_bytes <= _LARGEST,
        "stored_sha256": _SHA256.fullmatch(segment.stored_sha256) is not None,
        "recipients": len(segment.recipients) <= _MOST_RECIPIENTS,
    }
    for name, is_possible in possible.items():
        if not is_possible:
            raise _KIND.invalid(getattr(segment, name), f"segment.{name}")


def _is_previous(segment: BinlogSegment) -> bool:
    """The first of a chain follows nothing."""
    return segment.previous == "" if segment.number == 1 else _SHA256.fullmatch(segment.previous) is not None


def _is_origin(segment: BinlogSegment) -> bool:
    origin = segment.origin
    named = _UUID.fullmatch(origin.uuid) is not None if origin.flavour is Flavour.MYSQL else origin.uuid == ""
    return named and 0 <= origin.server_id < 1 << 32 and (origin.zone == "" or is_zone_name(origin.zone))


def _is_format(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) in _EVENT_BYTES
    except ValueError:
        return False


def _is_set(text: str, flavour: Flavour) -> bool:
    """Of the flavour: MySQL's items have intervals, MariaDB's have none."""
    if len(text) > LONGEST_SET or not gtid.is_set(text):
        return False
    return all((":" in item) is (flavour is Flavour.MYSQL) for item in text.split(",") if item)


def _are_changes(changes: tuple[TableChange, ...]) -> bool:
    different = {(change.schema, change.table, change.kind) for change in changes}
    return len(changes) <= MOST_CHANGES and len(different) == len(changes) and all(map(_is_change, changes))


def _is_change(change: TableChange) -> bool:
    return max(len(change.schema), len(change.table)) <= LONGEST_NAME and change.rows >= 0
