"""A backup on each of several targets, what became of it, pins, stages of the copy, and the audit chain."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A backup of before is its run's only one; when it was read back is when its run ended."""
    op.rename_table("backups", "backups_of_before")
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
        sa.PrimaryKeyConstraint("run_id", "target", name="pk_backups"),
    )
    op.execute(
        "INSERT INTO backups (run_id, target, ordinal, location, bytes_read, bytes_stored, files, sha256, verified_at)"
        " SELECT run_id, target, 0, location, bytes_read, bytes_stored, files, sha256, ended_at"
        " FROM backups_of_before JOIN runs USING (run_id)"
    )
    op.drop_table("backups_of_before")
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
