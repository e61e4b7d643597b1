"""A disk that has no room for one of the texts that are written to it, or for another page of a catalogue."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event


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


@dataclass
class Writes:
    """How many transactions that write have come to their end."""

    ended: int = 0


@contextmanager
def no_room_from_write(number: int) -> Iterator[Writes]:
    """Within the block that transaction of a catalogue which writes, and each one after it, finds its disk full.

    It is SQLite that says so, as the transaction ends: all that it was to write is there until then.
    """
    seen = Writes()

    def fill(connection: Connection) -> None:
        if connection.get_execution_options().get("begin", "BEGIN IMMEDIATE") != "BEGIN IMMEDIATE":
            return  # it only reads
        seen.ended += 1
        if seen.ended >= number:
            connection.exec_driver_sql("PRAGMA max_page_count=1")  # it is never less than what there is
            connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(10000000) AS bytes")

    event.listen(Engine, "commit", fill)
    try:
        yield seen
    finally:
        event.remove(Engine, "commit", fill)
