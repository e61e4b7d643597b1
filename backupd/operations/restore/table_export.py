"""Tables of a partial copy, made so that any server of the series can import them.

A snapshot's files are those of a running server: a tablespace is of use to another server only once crash recovery has
run over it and the server itself has written it out for export. So a server is started on the copy, in which most
tables are missing: with `innodb_force_recovery=1` it passes over those. MariaDB 10.11.19 does so, and refuses to start
without it ("Cannot apply log to [page id: space=10, page number=0] of corrupted file './other/t.ibd'").
"""

import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.errors import ServerError, UsageError
from backupd.filesystem import MORE_ROOM, write_words
from backupd.model import Manifest
from backupd.mysql.relocation import Relocation
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.session import Session
from backupd.mysql.tablefiles import Table, TableFiles, file_name

FOLDER = "tables"  # below the restored folder

_IMPORTED = (".ibd", ".cfg", ".cfp")  # what InnoDB's import wants
_TRANSPORTABLE = "InnoDB"
_CREATE = re.compile(r"CREATE TABLE (?=`)")
_BEGIN = (
    "SET @backupd_logged = @@SESSION.sql_log_bin, @backupd_mode = @@SESSION.sql_mode,"
    " @backupd_keys = @@SESSION.foreign_key_checks;",
    "SET SESSION sql_mode = '', SESSION foreign_key_checks = 0;",
    "SET SESSION sql_log_bin = 0;",
)
_END = (
    "SET SESSION sql_mode = @backupd_mode, SESSION foreign_key_checks = @backupd_keys;",
    "SET SESSION sql_log_bin = @backupd_logged;",
)


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
            fresh = f"backupd_{secrets.token_hex(4)}"
            found = tuple(_exported(server, folder, manifest, table, fresh, telling) for table in tables)
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
            "4. where they are wanted, in a new schema, after SET sql_log_bin = 0: CREATE TABLE …,"
            " ALTER TABLE … DISCARD TABLESPACE, copy the files there, ALTER TABLE … IMPORT TABLESPACE",
        )
    )


def _exported(
    server: RunningServer,
    folder: Path,
    manifest: Manifest,
    table: Table,
    fresh: str,
    telling: Callable[[str], None],
) -> Exported:
    telling(f"exporting {table}")
    session, named = server.session, f"{_quoted(table.schema)}.{_quoted(table.name)}"
    row = session.one(f"SHOW CREATE TABLE {named}") or {}
    imported = engine_of(session, table) == _TRANSPORTABLE
    session.execute(f"FLUSH TABLES {named} {'FOR EXPORT' if imported else 'WITH READ LOCK'}")
    files = _copied(folder, manifest, table)  # they do not change until the tables are unlocked
    session.execute("UNLOCK TABLES")
    statements = files[0].with_name(f"{file_name(table.name)}.sql")
    text = _statements(table, row.get("Create Table") or "", files, fresh, imported=imported)
    write_words(statements, text, hint=MORE_ROOM)
    return Exported(table, files, statements)


def engine_of(session: Session, table: Table) -> str | None:
    """As the server calls it; None where there is no such table."""
    return session.value(
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        *(table.schema, table.name),
    )


def _copied(folder: Path, manifest: Manifest, table: Table) -> tuple[Path, ...]:
    datadir = Relocation(folder, manifest.datadir, manifest.server.datadir).datadir
    names = sorted(str(path.relative_to(datadir)) for path in datadir.glob("*/*"))
    lower_case = manifest.server.settings.get("lower_case_table_names", "0") != "0"
    belonging = [datadir / name for name in TableFiles(names, datadir="", lower_case=lower_case).of(table, names)]
    if not belonging:
        raise ServerError(f"no file of {table} was found in {datadir}", hint="its files lie outside of the datadir")
    to = folder / FOLDER / belonging[0].parent.name
    to.mkdir(parents=True, exist_ok=True)
    try:
        return tuple(Path(shutil.copy2(path, to)) for path in belonging)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint=MORE_ROOM) from error


def _statements(table: Table, definition: str, files: Sequence[Path], fresh: str, *, imported: bool) -> str:
    """For a server of the same series; where the files go is a comment, for a person to do.

    Nothing that a server has is touched, whether a client ends at the first error or goes on: the table is made in the
    schema `fresh`, which no server has, and what could do harm is said in full names and only where it can do none.
    """
    name = f"{_quoted(fresh)}.{_quoted(table.name)}"
    copied = ", ".join(path.name for path in files if path.suffix in _IMPORTED or not imported)
    place = f"now copy {copied} into the folder {fresh} in the datadir, owned by the server's user"
    made = [*_BEGIN, f"CREATE DATABASE {_quoted(fresh)};"]
    if imported:
        made += [f"{_in_schema(fresh, table, definition)};", *_discard(name), *_END, _comment(place)]
        made += [*_BEGIN, *_unless_logged(f"ALTER TABLE {name} IMPORT TABLESPACE"), *_END]
        if any("#p#" in path.name.lower() for path in files):
            made.append(
                "-- MariaDB: import each partition's file as a table of its own, then ALTER TABLE … EXCHANGE PARTITION"
            )
    else:
        made += [*_END, _comment(f"{definition};"), _comment(place)]
        made += [f"FLUSH NO_WRITE_TO_BINLOG TABLES {name};"]
    return "\n".join((*made, *_afterwards(table, name, definition))) + "\n"


def _in_schema(fresh: str, table: Table, definition: str) -> str:
    """SHOW CREATE TABLE names no schema: what was the session's would be used."""
    found = _CREATE.match(definition)
    if found is None:
        raise ServerError(f"{table} is told as {definition[:80]!r}", hint="it is no table: leave it out of --tables")
    return f"CREATE TABLE {_quoted(fresh)}.{definition[found.end() :]}"


def _discard(name: str) -> tuple[str, ...]:
    """Of an empty table only: not of one that was imported before, where all this is sourced once more."""
    return (
        "SET @backupd_empty = NULL;",
        f"SET @backupd_empty = (SELECT NOT EXISTS (SELECT 1 FROM {name}));",  # noqa: S608 - a quoted name
        *_unless_logged(f"ALTER TABLE {name} DISCARD TABLESPACE", also="@backupd_empty"),
    )


def _unless_logged(statement: str, *, also: str = "TRUE") -> tuple[str, ...]:
    """Carried out here alone: replicas have no such files, and end replicating over it."""
    refusal = "SELECT 'refused: SET sql_log_bin = 0 was not granted, or this was done before' AS attention"
    return (
        "SET @backupd_do = IF("
        f"COALESCE({also}, FALSE) AND (@@SESSION.sql_log_bin = 0 OR @@GLOBAL.log_bin = 0),"
        f" {_text(statement)}, {_text(refusal)});",
        "PREPARE backupd FROM @backupd_do;",
        "EXECUTE backupd;",
        "DEALLOCATE PREPARE backupd;",
    )


def _afterwards(table: Table, name: str, definition: str) -> tuple[str, ...]:
    own = f"{_quoted(table.schema)}.{_quoted(table.name)}"
    said = [
        f"then it is whole as {name}, on this server alone; to have it in its place, where there is none:",
        f"RENAME TABLE {name} TO {own};",
        "where there is one, or replicas are to have it too:",
        f"INSERT INTO {own} SELECT * FROM {name};",  # noqa: S608 - quoted names, in a comment
    ]
    if "FOREIGN KEY" in definition:
        said.append("its foreign keys lead into its new schema: drop them before a RENAME, and add them again after it")
    return tuple(map(_comment, said))


def _comment(text: str) -> str:
    return "\n".join(f"-- {line}" for line in text.splitlines())


def _text(text: str) -> str:
    """A string of SQL, in the mode that `_BEGIN` sets."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
