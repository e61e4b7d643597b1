"""Positions that a drill found, of backups that were taken without a lock."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns are added rather than tables rebuilt."""
    op.add_column("positions", sa.Column("derived", sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("drills", sa.Column("position", sa.Text()))
