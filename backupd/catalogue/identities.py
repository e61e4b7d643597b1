"""Whose catalogue it is, as rows: the identity that counts, the names that were given up, whose keys are believed.

Knows: that the newest row counts, and that each but the first, which is as old as the file, is told in the audit
chain.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import Connection, insert, select

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, told
from backupd.catalogue.columns import from_row, to_row
from backupd.policy.trust import Known, KnownKey
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.identity import Identity


def took(identity: Identity, event: Event) -> Callable[[Connection], None]:
    """The step after which this is the catalogue's identity."""

    def step(connection: Connection) -> None:
        connection.execute(insert(tables.identities).values(to_row(identity)))
        told(event, identity.name, bound=bool(identity.bound_to))(connection)

    return step


def knew(key: str, machine: str, how: Known) -> Callable[[Connection], None]:
    """The step after which this key may sign the machine's backups."""

    def step(connection: Connection) -> None:
        row = to_row(KnownKey(key, machine, datetime.now(UTC), how))
        if connection.execute(insert(tables.keys).prefix_with("OR IGNORE").values(row)).rowcount:
            told(Event.KEY_KNOWN, machine, key=key, how=how.value)(connection)

    return step


def current(connection: Connection) -> Identity:
    """The identity that counts.

    Raises:
        CatalogueError: somebody has removed it.
    """
    newest = select(tables.identities).order_by(tables.identities.c.id.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    if row is None:
        raise CatalogueError(
            "the catalogue has no identity: its machine is unknown",
            hint="`backupd identity new` creates one; `backupd identity adopt NAME` takes one over from a target",
        )
    return from_row(Identity, row)
