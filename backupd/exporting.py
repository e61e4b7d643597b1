"""Tables of a partial copy, made so that any server of the series can import them.

A snapshot's files are those of a running server: a tablespace is of use to another server only once crash recovery has
run over it and the server itself has written it out for export. So a server is started on the copy, in which most
tables are missing: with `innodb_force_recovery=1` it passes over those. MariaDB 10.11.19 does so, and refuses to start
without it ("Cannot apply log to [page id: space=10, page number=0] of corrupted file './other/t.ibd'").
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.errors import ServerError, UsageError
from backupd.filesystem import MORE_ROOM, write_words
from backupd.model import Manifest
from backupd.mysql.relocation import Relocation
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.tablefiles import Table, TableFiles, file_name

FOLDER = "tables"  # below the restored folder

_IMPORTED = (".ibd", ".cfg", ".cfp")  # what InnoDB's import wants
_TRANSPORTABLE = "InnoDB"


@dataclass(frozen=True, slots=True)
class Exported:
    """One table as it lies in the folder, and what a person does with it."""

    table: Table
    files: tuple[Path, ...]
    statements: Path


def export(
    folder: Path, manifest: Manifest, tables: Sequence[Table], *, telling: Callable[[str], None] = lambda _step: None
) -> tuple[Exported, ...]:
    """Each of these tables lies in `tables/SCHEMA/` of the folder with its definition and the statements to import it.

    What was restored stays where it is, recovered. When it raises, the folder has no `tables`.

    Raises:
        ServerError: no matching server is here, or it did not start on the files, or refused to export a table.
    """
    try:
        with ScratchServer(folder, manifest, partial=True).running() as server:
            found = tuple(_exported(server, folder, manifest, table, telling) for table in tables)
            server.shut_down()  # however it ends: what was copied before is whole
    except BaseException:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        raise
    return found


def by_hand(folder: Path, manifest: Manifest, tables: Sequence[Table]) -> str:
    """What a person does on a machine that has the server program, where `export` could not be done here."""
    relocation = Relocation(folder, manifest.datadir, manifest.server.datadir)
    named = ", ".join(f"{_quoted(table.schema)}.{_quoted(table.name)}" for table in tables)
    return "\n".join(
        (
            f"the files in {folder} are as the snapshot had them: no server can import them before they are recovered",
            f"1. start {manifest.server.flavour} {manifest.server.version} on a copy of them:"
            f" --datadir={relocation.datadir} --innodb-force-recovery=1 --skip-networking --skip-replica-start",
            f"2. FLUSH TABLES {named} FOR EXPORT; and keep SHOW CREATE TABLE of each",
            "3. copy the .ibd and .cfg files away; then UNLOCK TABLES and end that server",
            "4. where they are wanted: CREATE TABLE …, ALTER TABLE … DISCARD TABLESPACE, copy the files there,"
            " ALTER TABLE … IMPORT TABLESPACE",
        )
    )


def _exported(
    server: RunningServer, folder: Path, manifest: Manifest, table: Table, telling: Callable[[str], None]
) -> Exported:
    telling(f"exporting {table}")
    session, named = server.session, f"{_quoted(table.schema)}.{_quoted(table.name)}"
    row = session.one(f"SHOW CREATE TABLE {named}") or {}
    engine = session.value(
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        *(table.schema, table.name),
    )
    imported = engine == _TRANSPORTABLE
    session.execute(f"FLUSH TABLES {named} {'FOR EXPORT' if imported else 'WITH READ LOCK'}")
    files = _copied(folder, manifest, table)  # they do not change until the tables are unlocked
    session.execute("UNLOCK TABLES")
    statements = files[0].with_name(f"{file_name(table.name)}.sql")
    text = _statements(table, row.get("Create Table") or "", files, imported=imported)
    write_words(statements, text, hint=MORE_ROOM)
    return Exported(table, files, statements)


def _copied(folder: Path, manifest: Manifest, table: Table) -> tuple[Path, ...]:
    datadir = Relocation(folder, manifest.datadir, manifest.server.datadir).datadir
    names = (str(path.relative_to(datadir)) for path in datadir.glob("*/*"))
    lower_case = manifest.server.settings.get("lower_case_table_names", "0") != "0"
    belonging = [datadir / name for name in TableFiles(names, datadir="", lower_case=lower_case).of(table)]
    if not belonging:
        raise ServerError(f"no file of {table} was found in {datadir}", hint="its files lie outside of the datadir")
    to = folder / FOLDER / belonging[0].parent.name
    to.mkdir(parents=True, exist_ok=True)
    try:
        return tuple(Path(shutil.copy2(path, to)) for path in belonging)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint=MORE_ROOM) from error


def _statements(table: Table, definition: str, files: Sequence[Path], *, imported: bool) -> str:
    """For a server of the same series; where the files go is a comment, for a person to do."""
    name = _quoted(table.name)
    copied = ", ".join(path.name for path in files if path.suffix in _IMPORTED or not imported)
    place = f"-- now copy {copied} into the folder of this schema in the datadir, owned by the server's user"
    lines = [f"CREATE DATABASE IF NOT EXISTS {_quoted(table.schema)};", f"USE {_quoted(table.schema)};"]
    if imported:
        lines += ["SET foreign_key_checks = 0;", f"{definition};", f"ALTER TABLE {name} DISCARD TABLESPACE;", place]
        lines += [f"ALTER TABLE {name} IMPORT TABLESPACE;"]
        if any("#p#" in path.name.lower() for path in files):
            lines.append(
                "-- MariaDB: import each partition's file as a table of its own, then ALTER TABLE … EXCHANGE PARTITION"
            )
    else:
        lines += [f"-- {line}" for line in f"{definition};".splitlines()] + [place, f"FLUSH TABLES {name};"]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
