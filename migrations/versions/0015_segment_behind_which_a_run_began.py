"""Which segment of its job's binlog archive had been received last when a run began, whatever the clock was then."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of runs of an earlier backupd nobody knows: there the clock alone tells."""
    op.add_column("runs", sa.Column("behind_segment", sa.Text()))
