"""To which moment of the binlog archive a drill rolled its backup forward."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column more; every drill of before was of a backup alone."""
    op.add_column("drills", sa.Column("moment", sa.Text(), nullable=True))
    op.create_index("ix_drills_of_moments", "drills", ["at", "id"], sqlite_where=sa.text("moment IS NOT NULL"))
