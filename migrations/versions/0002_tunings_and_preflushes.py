"""What probes recommend for the COW area, and what servers wrote before the lock."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two tables more; no other is touched."""
    op.create_table(
        "tunings",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Text(), nullable=False),
        sa.Column("volume_uuid", sa.Text(), nullable=False),
        sa.Column("group_uuid", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("stripes", sa.Integer(), nullable=False),
        sa.Column("stripe_size", sa.Integer()),
        sa.Column("pvs", sa.Text(), nullable=False),
        sa.Column("cells", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_tunings_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_tunings"),
    )
    op.create_table(
        "preflushes",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("pages_before", sa.Integer(), nullable=False),
        sa.Column("pages_after", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_preflushes_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_preflushes"),
    )
