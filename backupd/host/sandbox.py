"""The bounds of a child that handles what strangers wrote: what it may write, as whom, whether it has a network.

Knows: how the program `sandbox_program` is called, and what it says where a kernel offers nothing.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backupd.host import sandbox_program
from backupd.vocabulary.errors import UsageError

NOT_CONFINED = sandbox_program.NOT_CONFINED
NO_PROGRAM = sandbox_program.NO_PROGRAM


@dataclass(frozen=True, slots=True)
class Bounds:
    """Nothing is written but in the `writable` folders, whatever links lead elsewhere, and by root's rights neither.

    `seen_at` has folders that are besides mounted in another place, an empty folder, for this child alone: one that may
    not enter the folders around the first finds it there, writable. That takes a mount namespace. The child runs as
    `ids`, user and group; as ourselves where there are none, as root with the rights to write any file and to give it
    away, and no others. It gains none by set-id files, uses no disk's device, starts in `/`, and is killed when who has
    started it ends. Other processes of its own user it can trace where there is no Landlock.
    """

    writable: tuple[Path, ...] = ()
    seen_at: Mapping[Path, Path] = field(default_factory=dict)
    network: bool = False
    ids: tuple[int, int] | None = None

    def prefix(self) -> list[str]:
        """What stands before a command. It ends with `NOT_CONFINED`, and starts nothing, where it cannot be bound."""
        words = [sys.executable, "-I", "-S", sandbox_program.__file__]
        for folder in self.writable:
            words += ["--write", str(folder.absolute())]
        for folder, place in self.seen_at.items():
            words += ["--seen", str(folder.absolute()), str(place.absolute())]
        if not self.network:
            words.append("--no-network")
        if self.ids is not None:
            words += ["--ids", *map(str, self.ids)]
        return [*words, "--"]


def ending_argv(uid: int, gid: int) -> list[str]:
    """The command, for root, after which no process of that user is left: for one who is nobody else's user."""
    return [sys.executable, "-I", "-S", sandbox_program.__file__, sandbox_program.END_ALL_OF, str(uid), str(gid)]


def not_confined(status: int, said: str, *, doing: str) -> UsageError | None:
    """What is to be told when a child behind a `prefix` has ended with this status and said that; None: it was bound.

    `doing` is what it should have done ("unpacking").
    """
    if status != NOT_CONFINED or not said.startswith(sandbox_program.REFUSAL):
        return None
    why = said.removeprefix(sandbox_program.REFUSAL).partition("\n")[0]
    return UsageError(
        f"{doing} cannot be confined on this host: {why}",
        hint="allow namespaces or Landlock here, or, for backups that nobody else could have changed,"
        " set restore.unconfined = true",
    )
