"""What a host's agent was told to start, when its control host asked last, and the ceiling that a run was given."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two tables, and a column more of runs; no earlier run was given a ceiling of its own."""
    op.add_column("runs", sa.Column("max_rate", sa.Integer(), nullable=True))
    op.create_table(
        "agent_starts",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("max_rate", sa.Integer(), nullable=True),
        sa.Column("asked_at", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_start", sa.Integer(), nullable=False),
        sa.Column("cancelled_at", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_agent_starts")),
    )
    op.create_table(
        "control_contacts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("backupd", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control_contacts")),
    )
