"""`python -m tests.power.planted FAULT COMMAND…`: a backupd that forgets to make something durable.

Knows: the faults that power cuts have to find, so that a campaign that finds nothing has been seen to find something.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any


class _WithoutSync:
    """The module `os`, whose fsync does nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """It says that all is well."""


def _no_sync(place: Path) -> None:
    """It says that all is well."""


def _catalogue() -> None:
    class Loose(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            return super().execute(statement.replace("synchronous=FULL", "synchronous=OFF"), *values)

    connect = sqlite3.dbapi2.connect

    def loosely(*places: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*places, **{"factory": Loose, **options})
        return connection

    _replace(sqlite3, connect=loosely)
    _replace(sqlite3.dbapi2, connect=loosely)


def _target() -> None:
    from backupd.targets import directory

    _replace(directory, os=_WithoutSync(), sync_folder=_no_sync)


def _spool() -> None:
    from backupd.operations.binlog import spool

    _replace(spool, os=_WithoutSync(), sync_folder=_no_sync)


def _restore() -> None:
    from backupd.operations.restore import unfinished

    _replace(unfinished, sync_filesystem=_no_sync, sync_folder=_no_sync)


def _replace(module: ModuleType, **names: object) -> None:
    for name, value in names.items():
        setattr(module, name, value)


FAULTS: Mapping[str, Callable[[], None]] = MappingProxyType(
    {
        "catalogue": _catalogue,  # SQLite's transactions are acknowledged before they are durable
        "target": _target,  # objects and manifests of a folder get their names before their bytes are durable
        "spool": _spool,  # the same of segments of a binlog archive
        "restore": _restore,  # the marker of an unfinished restore goes before its files are durable
    }
)


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    from backupd.cli.main import main

    main()
