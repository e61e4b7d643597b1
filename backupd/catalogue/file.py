"""One open catalogue file, and how it is read and written.

Knows: that what is written together is all there or not at all, and that a stop signal waits for it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, RowMapping, Select

from backupd.catalogue.audit import Step, carry_out
from backupd.catalogue.database import explained, reading
from backupd.host.signals import shielded


class CatalogueFile:
    """Close it, or use it as a context manager; threads may share it."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._reader = reading(engine)
        self._path = path

    def close(self) -> None:
        """The file is closed; whoever closes it last leaves no `-wal` file beside it."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A transaction that only reads: it sees one instant."""
        with explained(self._path), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that writes: all of the block's steps, or none."""
        with uninterrupted(), explained(self._path), self._engine.begin() as connection:
            yield connection

    def _write(self, *steps: Step) -> None:
        with self._writing() as connection:
            carry_out(connection, steps)

    def _read(self, query: Select[Any]) -> Sequence[RowMapping]:
        with self._reading() as connection:
            return connection.execute(query).mappings().all()


def uninterrupted() -> AbstractContextManager[None]:
    """A stop signal waits for the block's end. Signals are raised in the main thread only, and shields are its own."""
    return shielded() if threading.current_thread() is threading.main_thread() else nullcontext()
