"""When each snapshot was taken."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One column more; of the runs that are there nobody wrote it down."""
    op.add_column("snapshots", sa.Column("taken_at", sa.Text(), nullable=True))
