"""Which segments retention is about to remove from a target: one that was killed has perhaps removed them already."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """None is, of those that an earlier backupd has stored."""
    op.add_column("stored_segments", sa.Column("leaving", sa.Text()))
    op.create_index(
        "ix_stored_segments_leaving",
        "stored_segments",
        ["target", "segment_id"],
        sqlite_where=sa.text("leaving IS NOT NULL"),
    )
