"""A backup by schedule that failed may be tried again."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two columns more; of slots that there are none was tried again."""
    op.add_column("slots", sa.Column("tried", sa.Text(), nullable=False, server_default=sa.text("'[]'")))
    op.add_column("slots", sa.Column("retry_at", sa.Text(), nullable=True))
