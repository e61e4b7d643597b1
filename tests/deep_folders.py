"""Folders in one another, more than a path can name or a call stack can hold."""

import os
from pathlib import Path

_DEPTH = 1500


def dig(folder: Path, *, link_to: Path = Path("/")) -> None:
    """So many are in the folder, and a link in the last."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(_DEPTH):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.symlink(link_to, "link", dir_fd=here)
    os.close(here)
