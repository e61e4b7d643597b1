"""Whose signatures are believed, and which manifest each backup was recorded with."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table, and two columns more; of backups that are there nobody kept the manifest's digest."""
    op.create_table(
        "keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("how", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", "machine", name="pk_keys"),
    )
    op.add_column("backups", sa.Column("manifest_digest", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.add_column("backups", sa.Column("recipients", sa.Text(), nullable=False, server_default=sa.text("'[]'")))
