"""Slots of schedules, pauses, what was told already, and indexes for what pages, metrics and the history ask."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing was done by schedule before."""
    op.create_table(
        "slots",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("activity", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Text()),
        sa.Column("exit_status", sa.Integer()),
        sa.PrimaryKeyConstraint("job", "activity", "due_at", name="pk_slots"),
    )
    op.create_index("ix_slots_due_at", "slots", ["due_at"])
    op.create_index("ix_slots_state_job_activity", "slots", ["state", "job", "activity"])
    op.create_index("ix_runs_kind_started_at", "runs", ["kind", "started_at"])
    op.create_index("ix_runs_kind_job_started_at", "runs", ["kind", "job", "started_at"])
    op.create_index("ix_runs_status_started_at_run_id", "runs", ["status", "started_at", "run_id"])
    op.create_index("ix_runs_kind_job_status", "runs", ["kind", "job", "status"])
    op.create_index(
        "ix_backups_there",
        "backups",
        ["target", "run_id", "bytes_stored", "broken"],
        sqlite_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "pauses",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_pauses"),
    )
    op.create_table(
        "notices",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "job", "subject", name="pk_notices"),
    )
