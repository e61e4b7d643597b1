"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables in an empty file."""
    _identities()
    _runs()
    _upkeep()
    _schedules()
    _probes()
    _benches()


def _identities() -> None:
    """Whose catalogue it is."""
    op.create_table(
        "identities",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("bound_to", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identities"),
    )
    op.create_table(
        "owners",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("follows", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("since_seconds", sa.Float(), nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_owners"),
    )


def _runs() -> None:
    """Runs and all that is kept of them."""
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer()),
        sa.Column("process_start", sa.Integer()),
        sa.Column("boot_id", sa.Text()),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Text()),
        sa.Column("kind", sa.Text(), nullable=False, server_default="backup"),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_job_started_at", "runs", ["job", "started_at"])
    op.create_index("ix_runs_started_at", "runs", ["started_at"])
    op.create_index("ix_runs_kind_started_at", "runs", ["kind", "started_at"])
    op.create_index("ix_runs_kind_job_started_at", "runs", ["kind", "job", "started_at"])
    op.create_index("ix_runs_status_started_at_run_id", "runs", ["status", "started_at", "run_id"])
    op.create_index("ix_runs_kind_machine_job_started_at", "runs", ["kind", "machine", "job", "started_at"])
    op.create_index("ix_runs_kind_machine_job_status", "runs", ["kind", "machine", "job", "status"])
    op.create_table(
        "attentions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_attentions_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attentions"),
    )
    op.create_index("ix_attentions_run_id", "attentions", ["run_id"])
    op.create_table(
        "backups",
        sa.Column("run_id", sa.Text(), sa.ForeignKey("runs.run_id", name="fk_backups_run_id"), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("bytes_read", sa.Integer(), nullable=False),
        sa.Column("bytes_stored", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("verified_at", sa.Text()),
        sa.Column("broken", sa.Text(), nullable=False, server_default=""),
        sa.Column("removed_at", sa.Text()),
        sa.Column("removed_because", sa.Text(), nullable=False, server_default=""),
        sa.Column("read_frames", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("reading_since", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", "target", name="pk_backups"),
    )
    op.create_index(
        "ix_backups_there",
        "backups",
        ["target", "run_id", "bytes_stored", "broken"],
        sqlite_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "drills",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("position", sa.Text()),
        sa.Column("undecided", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_drills_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_drills"),
    )
    op.create_index("ix_drills_run_id", "drills", ["run_id"])
    op.create_table(
        "errors",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("exit_status", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_errors_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_errors"),
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_holdings_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_holdings"),
    )
    op.create_index("ix_holdings_run_id", "holdings", ["run_id"])
    op.create_index("ix_holdings_released_at", "holdings", ["released_at"])
    op.create_table(
        "locks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("wait_seconds", sa.Float(), nullable=False),
        sa.Column("hold_seconds", sa.Float(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("lsn", sa.Integer()),
        sa.Column("position_seconds", sa.Float(), nullable=False),
        sa.Column("flush_seconds", sa.Float(), nullable=False),
        sa.Column("proof_seconds", sa.Float(), nullable=False),
        sa.Column("unlock_seconds", sa.Float(), nullable=False),
        sa.Column("stalled", sa.Integer()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_locks_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_locks"),
    )
    op.create_table(
        "bills",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("penalty_seconds", sa.Float()),
        sa.Column("copied_on_write", sa.Integer()),
        sa.Column("disks", sa.Integer(), nullable=False),
        sa.Column("disk_seconds", sa.Float()),
        sa.Column("disk_read_seconds", sa.Float()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_bills_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_bills"),
    )
    op.create_table(
        "losses",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("counted", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("rate_before", sa.Float(), nullable=False),
        sa.Column("rate_after", sa.Float()),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("noise", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_losses_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_losses"),
    )
    op.create_table(
        "phases",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_phases_run_id"),
        sa.PrimaryKeyConstraint("run_id", "phase", name="pk_phases"),
    )
    op.create_table(
        "positions",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("binlog_file", sa.Text()),
        sa.Column("binlog_offset", sa.Integer()),
        sa.Column("gtid", sa.Text()),
        sa.Column("replicas", sa.Text(), nullable=False),
        sa.Column("derived", sa.Boolean(), nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_positions_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_positions"),
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
        sa.Column("write_latency_ms", sa.Float()),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_samples_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_samples"),
    )
    op.create_index("ix_samples_run_id", "samples", ["run_id"])
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
        sa.Column("pool", sa.Text()),
        sa.Column("chunk_reason", sa.Text(), nullable=False),
        sa.Column("cow_extended", sa.Integer(), nullable=False),
        sa.Column("size_reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_snapshots_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_snapshots"),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("waited_seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_verdicts_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_verdicts"),
    )


def _upkeep() -> None:
    """Stages of the copy, pins, and the audit chain, which is only appended to."""
    op.create_table(
        "pending_manifests",
        sa.Column(
            "run_id", sa.Text(), sa.ForeignKey("runs.run_id", name="fk_pending_manifests_run_id"), nullable=False
        ),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_pending_manifests"),
    )
    op.create_table(
        "copies",
        sa.Column("run_id", sa.Text(), sa.ForeignKey("runs.run_id", name="fk_copies_run_id"), nullable=False),
        sa.Column("bytes_read", sa.Integer(), nullable=False),
        sa.Column("of_bytes", sa.Integer(), nullable=False),
        sa.Column("used_bytes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_copies"),
    )
    op.create_table(
        "throughput",
        sa.Column("run_id", sa.Text(), sa.ForeignKey("runs.run_id", name="fk_throughput_run_id"), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("busy_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stage", name="pk_throughput"),
    )
    op.create_table(
        "pace_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at_seconds", sa.Float(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("bytes_per_second", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_pace_changes_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_pace_changes"),
    )
    op.create_index("ix_pace_changes_run_id", "pace_changes", ["run_id"])
    op.create_table(
        "pins",
        sa.Column("run_id", sa.Text(), sa.ForeignKey("runs.run_id", name="fk_pins_run_id"), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_pins"),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    for name, verb, when in (
        ("no_update", "UPDATE", ""),
        ("no_delete", "DELETE", ""),
        ("next_number", "INSERT", "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM audit) "),
    ):
        op.execute(
            f"CREATE TRIGGER audit_{name} BEFORE {verb} ON audit {when}"
            "BEGIN SELECT RAISE(ABORT, 'the audit chain is only appended to'); END"
        )


def _schedules() -> None:
    """Slots of schedules, pauses, and what was told already."""
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


def _probes() -> None:
    """What probes measured."""
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_probes_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_probes"),
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_probe_rows_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_probe_rows"),
    )
    op.create_index("ix_probe_rows_run_id", "probe_rows", ["run_id"])
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_probe_curves_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_probe_curves"),
    )
    op.create_index("ix_probe_curves_run_id", "probe_curves", ["run_id"])


def _benches() -> None:
    """What benches found."""
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_benches_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_benches"),
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_bench_cells_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_bench_cells"),
    )
    op.create_index("ix_bench_cells_run_id", "bench_cells", ["run_id"])
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_bench_samples_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_bench_samples"),
    )
    op.create_index("ix_bench_samples_run_id", "bench_samples", ["run_id"])
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_bench_snapshots_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_bench_snapshots"),
    )
    op.create_index("ix_bench_snapshots_run_id", "bench_snapshots", ["run_id"])
