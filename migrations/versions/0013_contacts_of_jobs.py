"""When a control host that makes a job's backups asked last: of each job, and no longer of the whole host."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What was known of the host says nothing of a job: until the control host asks again, schedules count."""
    op.drop_table("control_contacts")
    op.create_table(
        "control_contacts",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("backupd", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_control_contacts")),
    )
