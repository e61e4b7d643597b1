"""How a job's binlog archive is received, cut and kept until every target has it, as frozen values.

Knows: that the table's presence turns the archive on. Refuses to know how a receiver is started.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from backupd.config.fields import AbsolutePath, Duration, Size, SpoolSize, WholeNumber
from backupd.config.table import TABLE, key
from backupd.vocabulary.faults import BadValue
from backupd.vocabulary.units import format_duration, format_size, size_words

_SMALLEST, _LARGEST = 64 << 10, 1 << 30  # a segment is held in the spool as a whole
_LARGEST_SERVER_ID = 2**32 - 1  # MariaDB's and MySQL's server_id


def _segment_size(size: int) -> int:
    for bad, how, bound in ((size < _SMALLEST, "less", _SMALLEST), (size > _LARGEST, "more", _LARGEST)):
        if bad:
            raise BadValue(
                f"{size_words(size)} is {how} than {size_words(bound)}",
                f"write {format_size(_SMALLEST)} to {format_size(_LARGEST)}",
            )
    return size


def _segment_age(seconds: float) -> float:
    if seconds < 1:
        raise BadValue(f"{format_duration(seconds)} is less than 1s", "each segment is an object of its own: write 1s")
    return seconds


def _server_id(value: int) -> int:
    if not 1 <= value <= _LARGEST_SERVER_ID:
        raise BadValue(f"{value} is not the id of a server", f"write 1 to {_LARGEST_SERVER_ID}")
    return value


_SegmentSize = Annotated[Size, AfterValidator(_segment_size)]
_SegmentAge = Annotated[Duration, AfterValidator(_segment_age)]
_ServerId = Annotated[WholeNumber, AfterValidator(_server_id)]


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class BinlogConfig:
    """`[jobs.NAME.binlog]`: the archive of the server's binlog; without this table there is none."""

    segment_size: _SegmentSize = 16 << 20  # plain bytes; one event more than it may be in a segment
    segment_age_seconds: Annotated[_SegmentAge, key("segment_age")] = 5.0  # from the first byte that is not archived
    spool: AbsolutePath = Path("/var/lib/backupd/binlog")  # beside the catalogue; each job has a folder in it
    spool_limit: SpoolSize = 1 << 30
    server_id: _ServerId | None = None  # None: of this machine and job
    client: AbsolutePath | None = None  # None: the one that PATH has
