"""Whose catalogue it is: the identity that counts, the names that were given up, whose keys are believed.

Knows: that the newest row counts, and that each but the first, which is as old as the file, is told in the audit chain.
"""

from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from sqlalchemy import Connection, insert, select

from backupd.catalogue import tables
from backupd.catalogue.audit import Event, audit_step
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.file import CatalogueFile
from backupd.policy.signing import KEY_FILE
from backupd.policy.trust import Known, KnownKey, Trust
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.identity import Identity
from backupd.vocabulary.storage import Backup


class MachineIdentities(CatalogueFile):
    """The machine that the catalogue belongs to, and whom it believes."""

    def identity(self) -> Identity:
        """The machine that this catalogue belongs to.

        Raises:
            CatalogueError: somebody has removed it from the file.
        """
        with self._reading() as connection:
            return current(connection)

    def named_since(self) -> datetime | None:
        """When the catalogue became that of a machine of this name; None where it was so from its beginning, or before
        another name was taken and given up.
        """
        table = tables.identities.c
        newest, *earlier = self._read(select(table.name, table.made_at).order_by(table.id.desc()))
        alike = list(takewhile(lambda row: row["name"] == newest["name"], earlier))
        others = {row["name"] for row in earlier[len(alike) :]}
        return [newest, *alike][-1]["made_at"] if others and newest["name"] not in others else None

    def take_identity(self, identity: Identity, event: Event) -> None:
        """This is the catalogue's identity from now on."""
        row = insert(tables.identities).values(to_row(identity))
        self._write(row, audit_step(event, identity.name, bound=bool(identity.bound_to)))

    @property
    def key_file(self) -> Path:
        """Where the machine's signing key lies: beside the catalogue, and in no copy of that."""
        return self._path.with_name(KEY_FILE)

    def keys(self, machine: str) -> frozenset[str]:
        """The public keys that may sign this machine's backups."""
        table = tables.keys.c
        return frozenset(row["key"] for row in self._read(select(table.key).where(table.machine == machine)))

    def trust(self, machine: str, recorded: Backup | None = None) -> Trust:
        """Which of the machine's backups are believed; of one of them, what was recorded."""
        return Trust(self.keys(machine), recorded)

    def know_key(self, key: str, machine: str, how: Known) -> None:
        """Whoever has this key may sign the machine's backups; nothing happens where that was known."""
        row = to_row(KnownKey(key, machine, datetime.now(UTC), how))
        with self._writing() as connection:
            if connection.execute(insert(tables.keys).prefix_with("OR IGNORE").values(row)).rowcount:
                audit_step(Event.KEY_KNOWN, machine, key=key, how=how.value)(connection)


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
