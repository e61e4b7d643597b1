"""Tables of a partial copy, made so that any server of the series can import them.

A snapshot's files are those of a running server: a tablespace is of use to another server only once crash recovery has
run over it and the server itself has written it out for export. So a server is started on the copy, in which most
tables are missing: with `innodb_force_recovery=1` it passes over those. MariaDB 10.11.19 refuses to start without it
("Tablespace 6 was not found at ./other/t.ibd"). Those of which the redo log has the first page it makes anew.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backupd.host.filesystem import MORE_ROOM, explained_write, opened_plain
from backupd.mysql.file_names import file_name
from backupd.mysql.long_values import require_long_values
from backupd.mysql.proof import require_whole
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation
from backupd.mysql.replacing_statements import AS_ROWS, ZERO_STAYS
from backupd.mysql.rolling_back import await_rollback
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.session import Session
from backupd.mysql.sqltext import comment, literal, quoted, require_definition, typed
from backupd.mysql.table_attachments import triggers_of
from backupd.mysql.table_sequences import is_sequence, sequence_of
from backupd.mysql.table_shape import columns_of, in_schema, names_of
from backupd.mysql.tablefiles import Table, restored_files
from backupd.vocabulary.errors import ServerError, Undecided, UsageError
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.storage import Manifest

FOLDER = "tables"  # below the restored folder

_IMPORTED = (".ibd", ".cfg", ".cfp")  # what InnoDB's import wants
_TRANSPORTABLE = "InnoDB"
_ROWS = {"InnoDB": ".ibd", "MyISAM": ".MYD", "Aria": ".MAD", "ARCHIVE": ".ARZ", "CSV": ".CSV"}  # a table's own file
_FULLTEXT = re.compile(r"^ +FULLTEXT KEY ", re.MULTILINE)
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
_REFUSED = "refused: SET sql_log_bin = 0 was not granted"


@dataclass(frozen=True, slots=True)
class Exported:
    """One table as it is in the folder, and what a person does with it."""

    table: Table
    files: tuple[Path, ...]  # of a sequence its statements alone; empty: nothing of it is in the folder
    statements: Path
    attention: str | None = None  # why these files cannot be imported as they are


def export(
    folder: Path,
    manifest: Manifest,
    tables: Sequence[Table],
    *,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
    trace: ServerTrace | None = None,
) -> tuple[Exported, ...]:
    """Each of these tables is in `tables/SCHEMA/` of the folder with its definition and the statements to import it.

    What was restored stays where it is, recovered. When it raises, the folder has no `tables`. The `trace` tells
    whether a server may have changed the files.

    Raises:
        ServerError: no matching server is here, or it did not start on the files, or refused to export a table;
            or a prepared transaction has changes in one.
        VerificationError: a table is damaged.
        Unreadable: the manifest names what no server has.
        UsageError: a table could not be copied; nothing here can keep a server within its bounds.
    """
    scratch = ScratchServer(folder, manifest, partial=True, confined=confined, trace=trace)
    with export_place(folder) as to, scratch.running() as server:
        found = tuple(exported(server, to, manifest, table, telling) for table in tables)
        with suppress(Undecided):
            server.shut_down()  # however it ends: what was copied before is whole
    return found


@contextmanager
def export_place(folder: Path) -> Iterator["_Place"]:
    """A new `tables` in the folder; it is gone with all that is in it when the block fails.

    Raises:
        UsageError: something of this name is there.
    """
    with _new_folder(folder / FOLDER) as home:
        yield _Place(folder, home, f"backupd_{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True)
class _Place:
    """The copy, and a folder in it, made before a server ran on it: who renames that one gets nothing of ours."""

    folder: Path
    home: int  # descriptor
    fresh: str  # the schema into which a person imports

    @contextmanager
    def new(self, schema: str, name: str) -> Iterator[BinaryIO]:
        """A file that was not there before, by no link.

        Raises:
            OSError: it cannot be made.
        """
        with suppress(FileExistsError):
            os.mkdir(schema, dir_fd=self.home)
        within = os.open(schema, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.home)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o644, dir_fd=within)
        finally:
            os.close(within)
        with os.fdopen(descriptor, "wb") as file:
            yield file


@contextmanager
def _new_folder(path: Path) -> Iterator[int]:
    """A descriptor of it; it is gone with all that is in it when the block fails.

    Raises:
        UsageError: something of this name is there: an archive may have brought it.
    """
    try:
        path.mkdir()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made: {error.strerror}", hint="restore without --tables, and export by hand"
        ) from error
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def by_hand(folder: Path, manifest: Manifest, tables: Sequence[Table]) -> str:
    """What a person does on a machine that has the server program, where `export` could not be done here.

    Raises:
        Unreadable: the manifest names what no server has.
    """
    manifest = judged(manifest)
    relocation = Relocation(folder, manifest.datadir, manifest.server.datadir)
    named = ", ".join(table.in_sql for table in tables)
    return "\n".join(
        (
            f"the files in {folder} are as the snapshot had them: they must be recovered before a server can import"
            f" them",
            f"1. start {manifest.server.flavour} {manifest.server.version} on a copy of them:"
            f" --datadir={relocation.datadir} --innodb-force-recovery=1 --skip-networking --skip-replica-start,"
            " end what XA RECOVER lists, and wait until information_schema.INNODB_TRX is empty: what was not committed"
            " is rolled back in the background",
            f"2. FLUSH TABLES {named} FOR EXPORT; and keep SHOW CREATE TABLE of each",
            "3. copy the .ibd and .cfg files away; then UNLOCK TABLES and end that server",
            "4. where they are wanted, in a new schema, after SET sql_log_bin = 0: CREATE TABLE … (if it"
            " fails, stop: the table exists), ALTER TABLE … DISCARD TABLESPACE, copy the files there,"
            " ALTER TABLE … IMPORT TABLESPACE",
        )
    )


def exported(
    server: RunningServer, to: _Place, manifest: Manifest, table: Table, telling: Callable[[str], None]
) -> Exported:
    """This server's table is in that place. After an error the session still holds it.

    Raises:
        As `export`.
    """
    telling(f"exporting {table}")
    session, named = server.session, table.in_sql
    if is_sequence(session, table):
        return _sequence(session, to, manifest, table)
    definition = (session.one(f"SHOW CREATE TABLE {named}") or {}).get("Create Table") or ""
    engine = engine_of(session, table) or "unknown"
    imported = engine == _TRANSPORTABLE
    if imported:
        await_rollback(session, table, telling)
    require_whole(session, table, f"{table}, as restored,")
    if imported:
        require_long_values(server, table, f"{table}, as restored,")
    session.execute(f"FLUSH TABLES {named} {'FOR EXPORT' if imported else 'WITH READ LOCK'}")
    files = _copied(to, manifest, table)  # they do not change until the tables are unlocked
    session.execute("UNLOCK TABLES")
    statements = files[0].with_name(f"{file_name(table.name)}.sql")
    require_definition(definition)
    attention = _no_rows(manifest, table, engine, files) or _no_import(manifest, table, engine, definition, files)
    if attention is None:
        text = _statements(table, definition, files, to.fresh, imported=imported)
        text += _afterwards(session, table, definition, to.fresh)
    else:
        text = "\n".join((comment(attention), comment("its definition:"), typed(definition))) + "\n"
    _write(to, statements, text)
    return Exported(table, files, statements, attention)


def _sequence(session: Session, to: _Place, manifest: Manifest, table: Table) -> Exported:
    """The statements alone: its numbers are in them, and its file can be imported by no server."""
    schema = _belonging(to, manifest, table)[0].parent.name
    statements = to.folder / FOLDER / schema / f"{file_name(table.name)}.sql"
    sequence, name = sequence_of(session, table), f"{quoted(to.fresh)}.{quoted(table.name)}"
    afterwards = (
        f"it is now complete as {name}, on this server only. Replicas need it too: if there is no such sequence, make"
        " it in its place like this. Where there is one, the SELECT alone moves it forward to that value, and leaves it"
        " as it is if it is further:",
        *sequence.made_in(table.schema),
        f"then DROP SEQUENCE {name}, after SET SESSION sql_log_bin = 0",
    )
    made = (
        comment(f"this makes the sequence {name}; there is no file to copy"),
        *(*_BEGIN, f"CREATE DATABASE IF NOT EXISTS {quoted(to.fresh)};"),
        *(*sequence.made_in(to.fresh), *_END),
        *map(typed, afterwards),
    )
    _write(to, statements, "\n".join(made) + "\n")
    return Exported(table, (statements,), statements)


def _write(to: _Place, statements: Path, text: str) -> None:
    with explained_write(statements, hint=MORE_ROOM), to.new(statements.parent.name, statements.name) as file:
        file.write(text.encode())


def _no_rows(manifest: Manifest, table: Table, engine: str, files: Sequence[Path]) -> str | None:
    """RocksDB keeps those of all tables together, as InnoDB's system tablespace does; MEMORY and FEDERATED none."""
    if any(path.suffix == _ROWS.get(engine) for path in files):
        return None
    return (
        f"the rows of {table} ({engine}) are in no file of its own, and none was exported: load it into a running"
        f" server, with `backupd restore {manifest.run_id} --tables {table} --into HOST --as NAME`, or restore"
        " everything"
    )


def _no_import(manifest: Manifest, table: Table, engine: str, definition: str, files: Sequence[Path]) -> str | None:
    """MariaDB 10.11.19 on partitions: "Storage engine InnoDB of the table doesn't have this option".

    MariaDB finds other engines' tables by their .frm files. MySQL 8 and later have none: the table did not exist then
    (9.7.4), and IMPORT TABLE, for MyISAM alone, makes it in the schema that its .sdi names.

    The words of a FULLTEXT index are in tables of their own, which FOR EXPORT does not write out (MySQL manual,
    "Importing InnoDB Tables"). A search then ends with error 1191, and MariaDB 10.11.19 died as the index was dropped.
    """
    why, mariadb = None, manifest.server.flavour is Flavour.MARIADB
    if engine != _TRANSPORTABLE:
        why = None if mariadb else f"MySQL does not find a table of {engine} by its files"
    elif mariadb and any("#p#" in path.name.lower() for path in files):
        why = "MariaDB cannot import a table with partitions"
    elif _FULLTEXT.search(definition):
        why = "the words of its FULLTEXT index are not in its files"
    if why is None:
        return None
    return (
        f"{why}: load {table} into a running server instead, with"
        f" `backupd restore {manifest.run_id} --tables {table} --into HOST --as NAME`"
    )


def engine_of(session: Session, table: Table) -> str | None:
    """As the server calls it; None where there is no such table."""
    return session.value(
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        *(table.schema, table.name),
    )


def _belonging(to: _Place, manifest: Manifest, table: Table) -> list[Path]:
    """The table's files in the copy, at least one."""
    belonging = restored_files(to.folder, manifest, table)
    if not belonging:
        datadir = Relocation(to.folder, manifest.datadir, manifest.server.datadir).datadir
        raise ServerError(f"no file of {table} was found in {datadir}", hint="its files are outside of the datadir")
    return belonging


def _copied(to: _Place, manifest: Manifest, table: Table) -> tuple[Path, ...]:
    """By no link on either side: neither is a file of this host read, nor one written."""
    belonging = _belonging(to, manifest, table)
    schema = belonging[0].parent.name
    folder = to.folder / FOLDER / schema
    try:
        for path in belonging:
            with opened_plain(path, beneath=to.folder) as original, to.new(schema, path.name) as copy:
                shutil.copyfileobj(original, copy)
                found = os.fstat(original.fileno())
                os.fchmod(copy.fileno(), found.st_mode & 0o777)
                os.utime(copy.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
    except OSError as error:
        raise UsageError(f"{table} cannot be copied to {folder}: {error.strerror}", hint=MORE_ROOM) from error
    return tuple(folder / path.name for path in belonging)


def _statements(table: Table, definition: str, files: Sequence[Path], fresh: str, *, imported: bool) -> str:
    """For a server of the same series; where the files go is a comment, for a person to do.

    Nothing that a server has is touched, whether a client ends at the first error or goes on: the table is made in the
    schema `fresh`, which no server has, and what could do harm is said in full names and only where it can do none.
    Where the table exists there, CREATE TABLE fails; who goes on after that comes to no statement that discards.
    """
    name = f"{quoted(fresh)}.{quoted(table.name)}"
    copied = ", ".join(path.name for path in files if path.suffix in _IMPORTED or not imported)
    place = f"now copy {copied} into the folder {fresh} in the datadir, owned by the server's user"
    made = [*_BEGIN, f"CREATE DATABASE IF NOT EXISTS {quoted(fresh)};"]  # other tables of this restore are in it
    if imported:
        made = [comment(f"this makes {name}; if it exists, this ends with error 1050 and changes nothing"), *made]
        made += [*_made(in_schema(fresh, table, definition), name), *_discard(name), *_END, comment(place)]
        made += [*_BEGIN, *_unless_logged(f"ALTER TABLE {name} IMPORT TABLESPACE", refusal=_REFUSED), *_END]
    else:
        made += [*_END, typed(f"{definition};"), comment(place)]
        made += [f"FLUSH NO_WRITE_TO_BINLOG TABLES {name};"]
    return "\n".join(made) + "\n"


def _made(create: str, name: str) -> tuple[str, ...]:
    """`@backupd_made` tells whether this made it: not a table that existed before, even if that has no rows.

    What a session had in it from another time counts for nothing, however the statements between are cut short. Both
    servers keep the count of errors for the one statement that asks for it (MySQL: `DA_KEEP_COUNTS` in its parser).
    """
    return (
        "SET @backupd_made = NULL, @backupd_empty = NULL;",
        f"{create};",
        "SET @backupd_made = (@@error_count = 0);",
        f"SET @backupd_empty = (SELECT NOT EXISTS (SELECT 1 FROM {name}));",  # noqa: S608 - a quoted name
    )


def _discard(name: str) -> tuple[str, ...]:
    """Of the table that was just made only, and by a second witness of an empty one."""
    statement, refusal = f"ALTER TABLE {name} DISCARD TABLESPACE", f"{_REFUSED}, or this table existed before"
    return _unless_logged(statement, also="@backupd_made AND @backupd_empty", refusal=refusal)


def _unless_logged(statement: str, *, refusal: str, also: str = "TRUE") -> tuple[str, ...]:
    """Carried out here alone: replicas have no such files, and end replicating over it."""
    refusal = f"SELECT {literal(refusal)} AS attention"
    return (
        "SET @backupd_do = IF("
        f"COALESCE({also}, FALSE) AND (@@SESSION.sql_log_bin = 0 OR @@GLOBAL.log_bin = 0),"
        f" {literal(statement)}, {literal(refusal)});",
        "PREPARE backupd FROM @backupd_do;",
        "EXECUTE backupd;",
        "DEALLOCATE PREPARE backupd;",
    )


def _afterwards(session: Session, table: Table, definition: str, fresh: str) -> str:
    """What a person may do with the table next, as comments. No definition has triggers, and `*` leaves out what is
    INVISIBLE; a session may give a new number to a row whose number is 0.
    """
    own, name = table.in_sql, f"{quoted(fresh)}.{quoted(table.name)}"
    columns = names_of([column for column in columns_of(session, table) if not column.generated])
    said = [
        f"it is now complete as {name}, on this server only. If no binary log is written and there is no such table:",
        f"RENAME TABLE {name} TO {own};",
        "if one is written, that would stop replicas, and no binlog archive could be applied beyond it: they need the"
        " rows. If there is no such table, make it first:",
        f"{in_schema(table.schema, table, definition)};",
        "then, and where there is one:",
        AS_ROWS,
        ZERO_STAYS,
        f"INSERT INTO {own} ({columns}) SELECT {columns} FROM {name};",  # noqa: S608 - quoted names, in a comment
    ]
    if "WITH SYSTEM VERSIONING" in definition:
        said.insert(
            2,
            f"its history (SYSTEM VERSIONING) is in {name} alone, and goes along by that RENAME only: what follows"
            f" takes the rows of now, and begins another history. Keep {name} for the old one (FOR SYSTEM_TIME ALL)",
        )
    if "FOREIGN KEY" in definition:
        said.append(
            "its foreign keys point into its new schema: drop them before a RENAME, and add them again afterwards"
        )
    triggers = triggers_of(session, table)
    if triggers:
        said.append("it has no triggers yet: read each, and type it without the dashes once the table is in place:")
    return "\n".join((*map(typed, said), *(trigger.to_be_typed(table) for trigger in triggers))) + "\n"
