"""Benches of layouts, beside backups and probes."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New tables only: a run of a kind that is new needs nothing else."""
    op.create_table(
        "benches",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("lvm", sa.Text(), nullable=False),
        sa.Column("sysbench", sa.Text(), nullable=False),
        sa.Column("fio", sa.Text()),
        sa.Column("mdadm", sa.Text()),
        sa.Column("memory", sa.Integer(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("vg", sa.Text(), nullable=False),
        sa.Column("disks", sa.Text(), nullable=False),
        sa.Column("filesystem", sa.Text(), nullable=False),
        sa.Column("file_size", sa.Integer(), nullable=False),
        sa.Column("volume_size", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("tables", sa.Text(), nullable=False),
        sa.Column("layouts", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_benches_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_benches")),
    )
    op.create_table(
        "bench_cells",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("record", sa.Integer(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("medium", sa.Text(), nullable=False),
        sa.Column("iops", sa.Float(), nullable=False),
        sa.Column("bytes_per_second", sa.Float(), nullable=False),
        sa.Column("spread", sa.Float(), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("latency_p95_ms", sa.Float()),
        sa.Column("shares", sa.Text(), nullable=False),
        sa.Column("system", sa.Float()),
        sa.Column("iowait", sa.Float()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_bench_cells_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bench_cells")),
    )
    op.create_index(op.f("ix_bench_cells_run_id"), "bench_cells", ["run_id"])
    op.create_table(
        "bench_samples",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("read", sa.Text(), nullable=False),
        sa.Column("written", sa.Text(), nullable=False),
        sa.Column("system", sa.Float(), nullable=False),
        sa.Column("iowait", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_bench_samples_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bench_samples")),
    )
    op.create_index(op.f("ix_bench_samples_run_id"), "bench_samples", ["run_id"])
    op.create_table(
        "bench_snapshots",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("probe_run_id", sa.Text(), nullable=False),
        sa.Column("chunk_size", sa.Integer(), nullable=False),
        sa.Column("origin_read", sa.Float()),
        sa.Column("snapshot_read", sa.Float()),
        sa.Column("penalty", sa.Float()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_bench_snapshots_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bench_snapshots")),
    )
    op.create_index(op.f("ix_bench_snapshots_run_id"), "bench_snapshots", ["run_id"])
