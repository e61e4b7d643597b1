"""Probes beside backups, and the kernel's write latency in samples."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns are added rather than tables rebuilt: `samples` may be large, and this takes no time."""
    op.add_column("runs", sa.Column("kind", sa.Text(), nullable=False, server_default="backup"))
    op.add_column("samples", sa.Column("write_latency_ms", sa.Float()))
    op.create_table(
        "probes",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("volume", sa.Text(), nullable=False),
        sa.Column("volume_size", sa.Integer(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("stripes", sa.Integer(), nullable=False),
        sa.Column("stripe_size", sa.Integer()),
        sa.Column("pvs", sa.Text(), nullable=False),
        sa.Column("filesystem", sa.Text(), nullable=False),
        sa.Column("thin", sa.Boolean(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("lvm", sa.Text(), nullable=False),
        sa.Column("sysbench", sa.Text()),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("block_size", sa.Integer(), nullable=False),
        sa.Column("file_size", sa.Integer(), nullable=False),
        sa.Column("rewrite_size", sa.Integer(), nullable=False),
        sa.Column("write_share", sa.Float(), nullable=False),
        sa.Column("chunk_size", sa.Integer(), nullable=False),
        sa.Column("cow_pvs", sa.Text(), nullable=False),
        sa.Column("cow_size", sa.Integer(), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_probes_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_probes")),
    )
    op.create_table(
        "probe_rows",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("block_size", sa.Integer(), nullable=False),
        sa.Column("chunk_size", sa.Integer()),
        sa.Column("cow_pvs", sa.Text(), nullable=False),
        sa.Column("snapshots", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("iops", sa.Float(), nullable=False),
        sa.Column("spread", sa.Float(), nullable=False),
        sa.Column("penalty", sa.Float()),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("bytes_per_second", sa.Float()),
        sa.Column("latency_p95_ms", sa.Float()),
        sa.Column("reads_per_write", sa.Float()),
        sa.Column("writes_per_write", sa.Float()),
        sa.Column("cow_chunks_per_second", sa.Float()),
        sa.Column("shares", sa.Text()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_probe_rows_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_rows")),
    )
    op.create_index(op.f("ix_probe_rows_run_id"), "probe_rows", ["run_id"])
    op.create_table(
        "probe_curves",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("chunk_size", sa.Integer(), nullable=False),
        sa.Column("cow_pvs", sa.Text(), nullable=False),
        sa.Column("snapshots", sa.Integer(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("points", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_probe_curves_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_curves")),
    )
    op.create_index(op.f("ix_probe_curves_run_id"), "probe_curves", ["run_id"])
