"""Bringing the fleet's database to the schema of this backupd: making it, upgrading it, or refusing it.

The tables are few, and their way is one of numbers: step N brings a database of schema N to N + 1, written with
Alembic's operations, which know PostgreSQL and SQLite. All happens in one transaction, under a lock where there may be
two that do it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Connection, Engine, Text, insert, inspect, select, text, update

from backupd.fleet import tables
from backupd.fleet.database import explained, reading
from backupd.vocabulary.errors import FleetDatabaseError

if TYPE_CHECKING:
    from alembic.operations import Operations

_LOCK: Final = 0x6261636B75706D67  # of PostgreSQL's advisory locks: "backupmg"


def _by_job(operations: "Operations") -> None:
    """A cluster stands as its worst job does: what is newest, and what was good, is looked for by job."""
    operations.create_index("ix_fleet_backups_job_night", "fleet_backups", ["cluster", "job", "night", "id"])
    operations.create_index("ix_fleet_backups_job_good_at", "fleet_backups", ["cluster", "job", "good_at"])
    operations.drop_index("ix_fleet_backups_cluster_good_at", "fleet_backups")


def _by_member(operations: "Operations") -> None:
    """Where every member owes backups, a cluster stands as its worst member does."""
    operations.add_column("fleet_backups", Column("member", Text, nullable=False, server_default=""))
    connection, stored = operations.get_bind(), tables.backups
    for row in connection.execute(select(stored.c.id, stored.c.owed)).all():
        if row.owed.only:
            connection.execute(update(stored).where(stored.c.id == row.id).values(member=row.owed.only))


def _until_told(operations: "Operations") -> None:
    """A notice stays in its row until it was told; what is there without one was."""
    operations.add_column("fleet_notices", Column("notice", Text))
    still = text("notice IS NOT NULL")
    operations.create_index(
        "ix_fleet_notices_owed", "fleet_notices", ["at"], postgresql_where=still, sqlite_where=still
    )


STEPS: Final[dict[int, Callable[["Operations"], None]]] = {1: _by_job, 2: _by_member, 3: _until_told}


def prepare(engine: Engine) -> None:
    """The database has the schema that this backupd knows.

    Raises:
        FleetDatabaseAway: it does not answer.
        FleetDatabaseError: it may not be written, or a newer backupd has upgraded it.
    """
    with explained(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = _found(connection)
        if found is None:
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.version).values(version=tables.HEAD))
        elif found > tables.HEAD:
            raise FleetDatabaseError(
                f"the fleet's database was upgraded by a newer backupd: its schema is {found}, this one knows"
                f" {tables.HEAD}",
                hint="use that newer backupd on every control host",
            )
        else:
            _upgrade(connection, found)


def require(engine: Engine) -> None:
    """The database has the schema that this backupd knows; nothing is changed.

    Raises:
        FleetDatabaseAway: it does not answer.
        FleetDatabaseError: it has none yet, or another's.
    """
    with explained(), reading(engine).connect() as connection:
        found = _found(connection)
    if found != tables.HEAD:
        has = (
            "has no records of a fleet yet"
            if found is None
            else f"has schema {found}, this backupd knows {tables.HEAD}"
        )
        raise FleetDatabaseError(
            f"the fleet's database {has}", hint="start `backupd fleet serve` of this version first: it prepares it"
        )


def _found(connection: Connection) -> int | None:
    if not inspect(connection).has_table(tables.version.name):
        return None
    return int(connection.execute(select(tables.version.c.version)).scalar_one())


def _upgrade(connection: Connection, found: int) -> None:
    if found == tables.HEAD:
        return
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    operations = Operations(MigrationContext.configure(connection))
    for number in range(found, tables.HEAD):
        STEPS[number](operations)
    connection.execute(update(tables.version).values(version=tables.HEAD))
