"""How a job's binlog archive is received, cut and kept until every target has it, as frozen values.

Knows: that the table's presence turns the archive on. Refuses to know how a receiver is started.
"""

from pathlib import Path
from typing import Annotated

from pydantic.dataclasses import dataclass

from backupd.config.fields import AbsolutePath, SegmentAge, SegmentSize, ServerId, SpoolSize
from backupd.config.table import TABLE, key


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class BinlogConfig:
    """`[jobs.NAME.binlog]`: the archive of the server's binlog; without this table there is none."""

    segment_size: SegmentSize = 16 << 20  # plain bytes; one event more than it may be in a segment
    segment_age_seconds: Annotated[SegmentAge, key("segment_age")] = 5.0  # from the first byte that is not archived
    spool: AbsolutePath = Path("/var/lib/backupd/binlog")  # beside the catalogue; each job has a folder in it
    spool_limit: SpoolSize = 1 << 30
    server_id: ServerId | None = None  # None: of this machine and job
    client: AbsolutePath | None = None  # None: the one that PATH has
