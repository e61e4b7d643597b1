"""The last retention rule of each target that a job was pruned by: it stays when the job no longer names the target."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One table; of earlier prunings no rule is known."""
    op.create_table(
        "retention_rules",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("keep_last", sa.Integer(), nullable=False),
        sa.Column("daily", sa.Integer(), nullable=False),
        sa.Column("weekly", sa.Integer(), nullable=False),
        sa.Column("monthly", sa.Integer(), nullable=False),
        sa.Column("yearly", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job", "target", name=op.f("pk_retention_rules")),
    )
