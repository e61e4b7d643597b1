"""Which tables crash recovery does not make whole: those of engines that write no log of their own.

Knows: engines by the files that they leave. Not by information_schema.TABLES, which lists only the tables that one
may read, and our account may read none; and a table whose ALTER is under way has files and no name.
"""

import os
from pathlib import Path

from backupd.mysql.layout import explained_datadir

_ENGINES = {  # by the ending of the file that holds the rows
    ".MYD": "MyISAM",
    ".MAD": "Aria",
    ".CSV": "CSV",
    ".ARZ": "Archive",
    ".sst": "RocksDB",
}


def unsafe_tables(datadir: Path) -> tuple[str, ...]:
    """`schema/table (ENGINE)` for every one of them, each once and in order, as their files spell the names.

    Raises:
        ServerError: the datadir cannot be read.
    """
    with explained_datadir():
        schemas = sorted(entry.name for entry in os.scandir(datadir) if entry.is_dir())
        found = [f"{schema}/{told}" for schema in schemas for told in _tables(datadir / schema)]
    return tuple(dict.fromkeys(found))


def _tables(folder: Path) -> list[str]:
    """A partition's file is TABLE#P#PARTITION, in lower case on some servers."""
    names = sorted(path for path in folder.iterdir() if path.suffix in _ENGINES)
    return [f"{_table(path.stem)} ({_ENGINES[path.suffix]})" for path in names]


def _table(stem: str) -> str:
    return stem.partition("#P#")[0].partition("#p#")[0]
