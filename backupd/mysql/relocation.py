"""Where the recorded server's paths lie in a restored copy, and that nothing in the copy leads out of it.

Knows: paths, and whose the files at them are.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backupd.host.filesystem import read_plain
from backupd.vocabulary.errors import ServerError

NOT_HERE = "drill it on a machine without the original server, with the missing files restored next to it"

_NOT_OURS = "a server's backup has a plain file there: was this one changed?"
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Relocation:
    """From the paths of the server that was backed up to those of its copy."""

    folder: Path  # the restored folder
    within: str  # the datadir, relative to it
    recorded: Path  # the datadir as the server had it
    here: Path | None = None  # the restored folder as we see it, where that is not as the server does

    @property
    def datadir(self) -> Path:
        """The copy's datadir."""
        return self.folder / self.within

    def moved(self, path: str) -> Path:
        """Where in the copy a recorded path is. A relative one is relative to the datadir; empty is the datadir.

        Where it would lead by `..` counts, not how it begins.

        Raises:
            ServerError: it lay outside of what was backed up.
        """
        original = Path(os.path.normpath(self.recorded / path))
        if original.is_relative_to(self.recorded):
            return self.datadir / original.relative_to(self.recorded)
        root = self._recorded_root()
        if root is not None and original.is_relative_to(root):
            return self.folder / original.relative_to(root)
        raise ServerError(f"the server used {path}, which is not in the backup", hint=NOT_HERE)

    def seen(self, path: Path) -> Path:
        """Such a path of the copy, where we see it."""
        return path if self.here is None else self.here / path.relative_to(self.folder)

    def is_folder(self, path: Path) -> bool:
        """Whether such a path of the copy is one, asked where we see it."""
        return self.seen(path).is_dir()

    def _recorded_root(self) -> Path | None:
        """What the restored folder was on the server's machine; None where its datadir was a symlink to elsewhere."""
        parts = Path(self.within).parts
        if not parts or self.recorded.parts[-len(parts) :] != parts:
            return None
        return Path(*self.recorded.parts[: -len(parts)])


def owner_of(copy: Relocation) -> os.stat_result:
    """Whose the copy's files are: its datadir's owner.

    The restored folder is root's until it is whole (`unfinished`). Where that is the datadir, its folder `mysql`, which
    every server has, tells whose it will be.
    """
    found = copy.datadir.stat()
    if found.st_uid == 0 and copy.datadir == copy.folder:
        with suppress(FileNotFoundError):
            return (copy.datadir / "mysql").lstat()
    return found


def require_self_contained(relocation: Relocation, *folders: Path) -> None:
    """No symlink and no `.isl` file of the copy leads out of it: there the server would find *live* files.

    Nor do these other folders of it themselves.

    Raises:
        ServerError: naming the first that does.
    """
    home = relocation.folder.resolve()
    for each in folders:
        _require_within(each, relocation, home)
    entered = {_require_within(relocation.datadir, relocation, home)}
    walked = [relocation.datadir]
    for each in walked:
        for folder, names, files in os.walk(each, onerror=_raise):
            for path in (Path(folder) / name for name in names + files):
                if path.is_symlink() or path.suffix == ".isl":
                    there = _require_within(path, relocation, home)
                    if path.is_dir() and entered.isdisjoint((there, *there.parents)):
                        entered.add(there)
                        walked.append(relocation.folder / there.relative_to(home))


def _require_within(path: Path, relocation: Relocation, home: Path) -> Path:
    """Where it leads to."""
    leads_to = Path(os.path.realpath(path))  # links that lead to one another lead nowhere, and so nowhere else
    if path.suffix == ".isl" and not path.is_symlink() and path.is_file():
        told = read_from_copy(relocation.folder, path, at_most=_LONGEST_PATH).strip()
        if "\0" in told:
            raise ServerError(f"{path.relative_to(relocation.folder)} of the restored copy has no path", hint=_NOT_OURS)
        leads_to = Path(os.path.realpath(told))
    if not leads_to.is_relative_to(home):
        raise ServerError(
            f"{path.relative_to(relocation.folder)} points outside the restored copy, to {leads_to}", hint=NOT_HERE
        )
    return leads_to


def read_from_copy(folder: Path, path: Path, *, at_most: int) -> str:
    """The text of a plain file of the copy in `folder`, by no link: who made the copy may have planted one.

    Raises:
        ServerError: it cannot be read, is no plain file, is behind a link, or has more bytes than that.
    """
    try:
        text = read_plain(path, beneath=folder, at_most=at_most)
    except OSError as error:
        raise ServerError(f"cannot read {path}: {error.strerror or error}", hint=_NOT_OURS) from error
    return text.decode(errors="surrogateescape")


def _raise(error: OSError) -> None:
    raise ServerError(f"cannot read the restored copy: {error}", hint="run the drill as root") from error
