"""In which thin pool a snapshot lay."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Snapshots of before are taken for classic ones: which of them were thin was not kept."""
    op.add_column("snapshots", sa.Column("pool", sa.Text()))
