"""Room on targets over time, by which it is told when one will be full; drills by their time, as they are asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One table; of earlier looks nothing is known. And an index."""
    op.create_table(
        "target_rooms",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("free", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("target", "at", name=op.f("pk_target_rooms")),
    )
    op.create_index("ix_drills_at", "drills", ["at"])
