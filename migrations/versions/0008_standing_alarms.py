"""Alarms have a life: people hear of the start, of each day and of the end."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What stands now counts as new; what was told of old proofs, by a kind that is no more, is forgotten."""
    op.create_table(
        "standing_alarms",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("told_at", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", "kind", "about", name="pk_standing_alarms"),
    )
    op.execute("DELETE FROM notices WHERE kind = 'drill-overdue'")
