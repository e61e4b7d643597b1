"""Of how many stripes the COW areas were that probes measured."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One column more in three tables; what was measured before was linear, as cells without the word are."""
    for table in ("probes", "probe_rows", "probe_curves"):
        op.add_column(table, sa.Column("cow_stripes", sa.Integer(), nullable=False, server_default="1"))
