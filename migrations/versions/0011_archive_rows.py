"""Where rows of segments without a gap begin, and how far each binlog archive was behind its server."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Three columns. A segment says which one it was written to follow; how far an archive was behind is not known."""
    op.add_column("binlog_segments", sa.Column("follows", sa.Boolean(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE binlog_segments SET follows = 1 WHERE EXISTS (SELECT 1 FROM binlog_segments AS before WHERE"
        " before.chain = binlog_segments.chain AND before.number = binlog_segments.number - 1"
        " AND before.digest = binlog_segments.previous)"
    )
    op.create_index(
        "ix_binlog_segments_beginning",
        "binlog_segments",
        ["machine", "job", "chain", "number"],
        sqlite_where=sa.text("follows = 0"),
    )
    op.add_column("archive_contacts", sa.Column("asked_at", sa.Text(), nullable=True))
    op.add_column("archive_contacts", sa.Column("behind_bytes", sa.Integer(), nullable=True))
