"""Where an archive goes on with what a server of another version logged: a row may end there from now on."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of base64, three bytes are four letters: these are of the version in a format description event."""
    op.execute(
        "UPDATE binlog_segments SET follows = 0 WHERE follows = 1 AND EXISTS (SELECT 1 FROM binlog_segments AS earlier"
        " WHERE earlier.chain = binlog_segments.chain AND earlier.number = binlog_segments.number - 1"
        " AND substr(earlier.format, 29, 64) <> substr(binlog_segments.format, 29, 64))"
    )
