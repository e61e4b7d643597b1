"""A disk that has no room for one of the texts that are written to it, or for another page of a catalogue."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event


def no_room_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a file of this name cannot be made in any folder."""
    opened = os.open

    def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT and os.fspath(path) == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", open_)


@contextmanager
def no_room_in_catalogues() -> Iterator[None]:
    """Within the block no catalogue that is opened can grow by a page."""

    def limit(connection: sqlite3.Connection, _entry: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # it is never less than what there is

    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)
