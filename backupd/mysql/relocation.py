"""Where the recorded server's paths lie in a restored copy, and that nothing in the copy leads out of it.

Knows: paths. Refuses to know what is in the files.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from backupd.errors import ServerError

NOT_HERE = "drill it on a machine without the original server, with the missing files restored beside it"


@dataclass(frozen=True, slots=True)
class Relocation:
    """From the paths of the server that was backed up to those of its copy."""

    folder: Path  # the restored folder
    within: str  # the datadir, relative to it
    recorded: Path  # the datadir as the server had it

    @property
    def datadir(self) -> Path:
        """The copy's datadir."""
        return self.folder / self.within

    def moved(self, path: str) -> Path:
        """Where in the copy a recorded path is. A relative one is relative to the datadir; empty is the datadir.

        Raises:
            ServerError: it lay outside of what was backed up.
        """
        original = self.recorded / path
        if original.is_relative_to(self.recorded):
            return self.datadir / original.relative_to(self.recorded)
        root = self._recorded_root()
        if root is not None and original.is_relative_to(root):
            return self.folder / original.relative_to(root)
        raise ServerError(f"the server used {path}, which is not in the backup", hint=NOT_HERE)

    def _recorded_root(self) -> Path | None:
        """What the restored folder was on the server's machine; None where its datadir was a symlink to elsewhere."""
        parts = Path(self.within).parts
        if not parts or self.recorded.parts[-len(parts) :] != parts:
            return None
        return Path(*self.recorded.parts[: -len(parts)])


def require_self_contained(relocation: Relocation) -> None:
    """No symlink and no `.isl` file of the copy leads out of it: there the server would find *live* files.

    Raises:
        ServerError: naming the first that does.
    """
    home = relocation.folder.resolve()
    for folder, folders, files in os.walk(relocation.datadir, onerror=_raise):
        for path in (Path(folder) / name for name in folders + files):
            if path.is_symlink() or path.suffix == ".isl":
                leads_to = path.resolve() if path.is_symlink() else Path(path.read_text().strip())
                if not leads_to.is_relative_to(home):
                    raise ServerError(
                        f"{path.relative_to(relocation.folder)} leads out of the restored copy, to {leads_to}",
                        hint=NOT_HERE,
                    )


def _raise(error: OSError) -> None:
    raise ServerError(f"cannot read the restored copy: {error}", hint="run the drill as root") from error
