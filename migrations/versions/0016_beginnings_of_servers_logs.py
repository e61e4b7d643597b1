"""Where another server's log goes on in an archive without a gap: it is found by that from now on."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What an earlier backupd stored behind a failover counted as going on, and its places were looked for in vain."""
    op.execute(
        "UPDATE binlog_segments SET follows = 0 WHERE follows = 1 AND EXISTS (SELECT 1 FROM binlog_segments AS earlier"
        " WHERE earlier.chain = binlog_segments.chain AND earlier.number = binlog_segments.number - 1"
        " AND earlier.origin <> binlog_segments.origin"
        " AND json_extract(earlier.origin, '$.flavour', '$.server_id', '$.uuid')"
        " <> json_extract(binlog_segments.origin, '$.flavour', '$.server_id', '$.uuid'))"
    )
