"""The segments of binlog archives, on which targets each lies, and where the archives have gaps."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Four tables; no backupd before this one archived binlogs."""
    op.create_table(
        "binlog_segments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("file_ended", sa.Boolean(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("gtid_start", sa.Text(), nullable=False),
        sa.Column("gtid_end", sa.Text(), nullable=False),
        sa.Column("transactions", sa.Integer(), nullable=False),
        sa.Column("within_transaction", sa.Boolean(), nullable=False),
        sa.Column("first_at", sa.Text(), nullable=True),
        sa.Column("last_at", sa.Text(), nullable=True),
        sa.Column("received_at", sa.Text(), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("all_changes", sa.Boolean(), nullable=False),
        sa.Column("plain_bytes", sa.Integer(), nullable=False),
        sa.Column("plain_sha256", sa.Text(), nullable=False),
        sa.Column("stored_bytes", sa.Integer(), nullable=False),
        sa.Column("stored_sha256", sa.Text(), nullable=False),
        sa.Column("recipients", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("gtid_state", sa.Text(), nullable=False),
        sa.Column("spooled", sa.Boolean(), nullable=False),
        sa.Column("follows", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_binlog_segments")),
    )
    table = "binlog_segments"
    op.create_index("ix_binlog_segments_chain_number", table, ["chain", "number"], unique=True)
    op.create_index("ix_binlog_segments_machine_job_received_at", table, ["machine", "job", "received_at"])
    op.create_index("ix_binlog_segments_machine_job_file_end_start", table, ["machine", "job", "file", "end", "start"])
    beginning = ["machine", "job", "chain", "number"]
    op.create_index("ix_binlog_segments_beginning", table, beginning, sqlite_where=sa.text("follows = 0"))
    op.create_index("ix_binlog_segments_spooled", table, ["machine", "job", "id"], sqlite_where=sa.text("spooled = 1"))
    op.create_table(
        "stored_segments",
        sa.Column("segment_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["segment_id"], ["binlog_segments.id"], name="fk_stored_segments_segment_id"),
        sa.PrimaryKeyConstraint("segment_id", "target", name=op.f("pk_stored_segments")),
    )
    op.create_table(
        "archive_gaps",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("noticed_at", sa.Text(), nullable=False),
        sa.Column("last_at", sa.Text(), nullable=True),
        sa.Column("resumed_at", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("machine", "job", "chain", name=op.f("pk_archive_gaps")),
    )
    op.create_table(
        "archive_contacts",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("refused", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Text(), nullable=True),
        sa.Column("behind_bytes", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("machine", "job", name=op.f("pk_archive_contacts")),
    )
