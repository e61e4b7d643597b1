"""How much of the redo log backups leave out."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One column more; backups that are there have the whole log."""
    op.add_column("snapshots", sa.Column("redo_left_out", sa.Integer(), nullable=False, server_default="0"))
