"""What of each of MariaDB's servers was executed at a segment's end: another server may then go on with its log."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of segments that are known it is not known."""
    op.add_column("binlog_segments", sa.Column("gtid_state", sa.Text(), nullable=False, server_default=""))
