"""Which machine a catalogue belongs to: the name that targets, tags and manifests bear, and how a clone is told.

Knows: how a name is made, what binds it to a machine, when a machine is the one that it was bound to. Pure values.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backupd.vocabulary.errors import Refused

_SALT = "backupd machine identity 1"  # machine-id(5): the id itself is a secret, so only a keyed digest is shown
_LONGEST_HOST = 40  # letters of a host's name: a machine's name goes into paths and LVM tags
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that backupd runs on, as far as it can be told from another."""

    host: str  # its name
    marks: Mapping[str, str] = field(default_factory=dict)  # by kind of id: its digest; empty where it has no id
    boot_id: str = ""  # another after each boot, and in each container; empty where the kernel does not report


@dataclass(frozen=True, slots=True)
class Identity:
    """The name under which a machine's backups lie on targets, and the machine that it is bound to."""

    name: str  # HOST-xxxxxxxx
    bound_to: Mapping[str, str]  # marks of the machine; empty: bound to nothing
    made_at: datetime

    def is_of(self, machine: Machine) -> bool:
        """Whether this is the machine that it was bound to: all ids that are known of both agree, and one is.

        What is bound to nothing is of any machine.
        """
        both = self.bound_to.keys() & machine.marks.keys()
        return not self.bound_to or (bool(both) and all(self.bound_to[kind] == machine.marks[kind] for kind in both))

    def require_of(self, machine: Machine) -> None:
        """Raise on any other machine than the one that it was bound to.

        Raises:
            Refused: it is another.
        """
        if not self.is_of(machine):
            raise Refused(
                f"this catalogue belongs to another machine, {self.name}: was the catalogue copied, or this machine"
                f" cloned? nothing was changed",
                hint=(
                    "see `backupd identity show`; on a clone: `backupd identity new`; if this machine replaces"
                    " that one: `backupd identity adopt`"
                ),
            )


def new_name(host: str) -> str:
    """A name that no other machine has: the host's, cleaned, and eight random hexadecimal digits."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", host.lower().partition(".")[0])[:_LONGEST_HOST].strip("-")
    return f"{cleaned or 'host'}-{secrets.token_hex(4)}"


def is_name(name: str) -> bool:
    """Whether this can be a machine's name."""
    return bool(_NAME.fullmatch(name))


def mark(kind: str, machine_id: str) -> str:
    """What may be shown of a machine's id: nobody can tell the id from it, nor from another program's digest of it."""
    return hashlib.sha256(f"{_SALT}\0{kind}\0{machine_id.strip().lower()}".encode()).hexdigest()[:32]
