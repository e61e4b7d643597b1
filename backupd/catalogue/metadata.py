"""What all tables of the catalogue are entered into, and how a row says whose it is.

Knows: how constraints are named.
"""

from sqlalchemy import Column, ForeignKey, MetaData, Text

metadata = MetaData(
    naming_convention={  # a batch migration can only drop a constraint that has a name
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def of_run(*, one: bool) -> Column[str]:
    """The run that a row belongs to; `one` where a run has at most one such row."""
    reference = ForeignKey("runs.run_id")
    return Column("run_id", Text, reference, primary_key=one, nullable=False, index=None if one else True)
