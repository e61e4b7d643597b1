"""The first schema: runs and all that is kept of them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables in an empty file."""
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer()),
        sa.Column("process_start", sa.Integer()),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_job_started_at"), "runs", ["job", "started_at"])
    op.create_index(op.f("ix_runs_started_at"), "runs", ["started_at"])
    op.create_table(
        "attentions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_attentions_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attentions")),
    )
    op.create_index(op.f("ix_attentions_run_id"), "attentions", ["run_id"])
    op.create_table(
        "backups",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("bytes_read", sa.Integer(), nullable=False),
        sa.Column("bytes_stored", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_backups_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_backups")),
    )
    op.create_table(
        "drills",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_drills_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drills")),
    )
    op.create_index(op.f("ix_drills_run_id"), "drills", ["run_id"])
    op.create_table(
        "errors",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("exit_status", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_errors_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_errors")),
    )
    op.create_table(
        "holdings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("held_at", sa.Text(), nullable=False),
        sa.Column("released_at", sa.Text()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_holdings_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holdings")),
    )
    op.create_index(op.f("ix_holdings_run_id"), "holdings", ["run_id"])
    op.create_table(
        "locks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("wait_seconds", sa.Float(), nullable=False),
        sa.Column("hold_seconds", sa.Float(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("lsn", sa.Integer()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_locks_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_locks")),
    )
    op.create_table(
        "phases",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_phases_run_id")),
        sa.PrimaryKeyConstraint("run_id", "phase", name=op.f("pk_phases")),
    )
    op.create_table(
        "positions",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("binlog_file", sa.Text()),
        sa.Column("binlog_offset", sa.Integer()),
        sa.Column("gtid", sa.Text()),
        sa.Column("replicas", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_positions_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_positions")),
    )
    op.create_table(
        "samples",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("iops", sa.Float()),
        sa.Column("ratio", sa.Float()),
        sa.Column("latency_p95_ms", sa.Float()),
        sa.Column("probe_bytes", sa.Integer(), nullable=False),
        sa.Column("cow_used", sa.Integer()),
        sa.Column("cow_rate", sa.Float()),
        sa.Column("replica_lag_seconds", sa.Float()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_samples_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samples")),
    )
    op.create_index(op.f("ix_samples_run_id"), "samples", ["run_id"])
    op.create_table(
        "snapshots",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("volume", sa.Text(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("stripes", sa.Integer(), nullable=False),
        sa.Column("stripe_size", sa.Integer()),
        sa.Column("chunk_size", sa.Integer(), nullable=False),
        sa.Column("cow_size", sa.Integer(), nullable=False),
        sa.Column("cow_used_peak", sa.Integer()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_snapshots_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_snapshots")),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("waited_seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_verdicts_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_verdicts")),
    )
