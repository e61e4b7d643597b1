"""What an attack is: a name that says what it tries, the change that makes it, and what has to become of it.

Knows: the commands that read a backup, on which sound backup an attack is built, and who may have made it. Refuses to
know the attacks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.hostile.backups import Backup


class Command(StrEnum):
    """Those that read a backup, by what they are typed as."""

    VERIFY = "verify"
    RESTORE = "restore"
    DRILL = "drill"
    CLONE = "clone"
    REBUILD = "rebuild"
    TABLES = "tables"


class Base(StrEnum):
    """The sound backup that an attack changes."""

    TREE = "tree"  # small files, which no server starts on
    SEALED = "sealed"  # the same, encrypted
    SERVER = "server"  # a real server's folder


class Attacker(StrEnum):
    """Who made it."""

    STRANGER = "stranger"  # has the storage, and no key of ours; the record tells of the sound backup
    FORGER = "forger"  # has a key that is known, and signs what he puts in the place of what was recorded
    INSIDER = "insider"  # was the machine that took the backup: its key is known, and the record tells of this very one


@dataclass(frozen=True)
class Ground:
    """Where an attack takes place: what it may know of the host."""

    outside: Path  # a folder with files, of which nothing may be read or changed
    library: Path  # a shared object that leaves its mark when it is loaded
    sound: Callable[[str], Backup]  # another sound backup, of this run; plain

    @property
    def victim(self) -> Path:
        """A file outside, to be written over."""
        return self.outside / "victim"

    @property
    def secret(self) -> Path:
        """A file outside, to be read."""
        return self.outside / "secret"


Change = Callable[[Backup, Ground], object]

EVERY = frozenset(Command)
READERS = EVERY - {Command.REBUILD}
UNPACKERS = frozenset({Command.RESTORE, Command.DRILL, Command.CLONE, Command.TABLES})
SERVERS = frozenset({Command.DRILL, Command.CLONE, Command.TABLES})


@dataclass(frozen=True)
class Attack:
    """One backup that means harm."""

    name: str
    change: Change
    base: Base = Base.TREE
    concerns: frozenset[Command] = EVERY  # the commands that come near what is hostile in it
    refused_by: frozenset[Command] = frozenset()  # even where its maker is trusted; the others have to be unharmed
    substitutes: bool = False  # it is another backup in the place of the recorded one, and nothing else

    def __str__(self) -> str:
        return self.name
