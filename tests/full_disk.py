"""A disk that has no room for one of the texts that are written to it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def no_room_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a text of this name cannot be written in any folder."""
    written = Path.write_text

    def write(path: Path, *arguments: Any, **options: Any) -> int:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", write)
