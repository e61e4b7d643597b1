"""What is in a folder, to be compared with what is in another one."""

import hashlib
import stat
import subprocess
from pathlib import Path

Tree = dict[str, tuple[int, int, str]]  # path -> mode, owner, digest or target of a link


def tree_of(folder: Path) -> Tree:
    """Every file, folder and link below a folder, with its content."""
    return {str(path.relative_to(folder)): _entry(path) for path in folder.rglob("*") if path.name != "lost+found"}


def remove(folder: Path) -> None:
    """It is gone, with whatever is in it."""
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _entry(path: Path) -> tuple[int, int, str]:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return found.st_mode, found.st_uid, str(path.readlink())
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(found.st_mode) else ""
    return found.st_mode, found.st_uid, content
