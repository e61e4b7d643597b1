"""Bringing a catalogue file to the schema of this backupd: making it, upgrading it, or refusing it.

Knows: the schema's revision in a file, where the migrations are, what is kept before an upgrade. Alembic takes long
to load, so it is loaded only when a file's revision is not ours; a fresh file gets all tables at once and the
revision by hand, and a test proves that to be what the migrations make.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from backupd.catalogue import tables
from backupd.catalogue.columns import to_row
from backupd.catalogue.database import (
    BUSY_TIMEOUT_SECONDS,
    DAMAGED,
    ITS_DISK,
    MAKE_ROOM,
    OWNER,
    READ_ONLY,
    direct,
    engine_for,
    explained,
    reading,
    use_wal,
)
from backupd.host.filesystem import sync_folder
from backupd.host.machine_ids import this_machine
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.identity import Identity, Machine, new_name

log = logging.getLogger(__name__)

_PROCESSES = Path("/proc")


def prepare(
    path: Path,
    *,
    busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
    machine: Callable[[], Machine] = this_machine,
) -> None:
    """The file exists, in WAL mode, and has the schema that this backupd knows.

    A missing file is made, readable by its owner only, and its folder too when that folder's parent exists; with it an
    identity, bound to this machine. Before an
    upgrade a copy is kept beside it as `NAME.before-REVISION`. An upgrade that fails leaves the file as it was.

    Raises:
        CatalogueError: the file cannot be made or used, is not ours, or has a newer schema.
    """
    _require_file(path)
    engine = engine_for(path, busy_timeout_seconds=busy_timeout_seconds)
    try:
        with explained(path):
            with reading(engine).connect() as connection:
                found = _revision(connection, path)
            use_wal(path, busy_timeout_seconds=busy_timeout_seconds)
            if found is None:
                found = _create(engine, path, machine)
    finally:
        engine.dispose()
    if found != tables.HEAD:
        upgrade(path, migrations=migrations_folder(), busy_timeout_seconds=busy_timeout_seconds)


def migrations_folder() -> Path:
    """Where the migrations are: in an installed backupd beside this package's parent, else in the checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def upgrade(path: Path, *, migrations: Path, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> None:
    """The file has the newest schema of `migrations`. One transaction: all of it, or the file is as it was.

    Raises:
        CatalogueError: the file has a revision that `migrations` don't know, or SQLite failed.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    engine = engine_for(path, busy_timeout_seconds=busy_timeout_seconds, foreign_keys=False)
    try:
        with explained(path), engine.begin() as connection:
            found = _revision(connection, path)  # again: another process may have upgraded it while we waited
            if found == newest:
                return
            if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
                raise _newer(path, found)
            if found is not None:
                _keep_copy(path, path.with_name(f"{path.name}.before-{newest}"), busy_timeout_seconds)
            log.info("upgrading the catalogue %s from schema %s to %s", path, found, newest)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            _require_references(connection, path)
    finally:
        engine.dispose()


def _newer(path: Path, found: str) -> CatalogueError:
    return CatalogueError(
        f"the catalogue {path} was written by a newer backupd: its schema is {found}, this one knows {tables.HEAD}",
        hint="use that newer backupd, or set another file as the catalogue in the configuration",
    )


def _require_file(path: Path) -> None:
    """The file is there, if only empty. Never opened when it exists: closing it would drop SQLite's own locks on it."""
    try:
        is_folder = path.is_dir()
    except OSError as error:
        hint = OWNER if isinstance(error, PermissionError) else ITS_DISK
        raise CatalogueError(f"the catalogue {path} cannot be opened: {error.strerror}", hint=hint) from error
    if is_folder:
        raise CatalogueError(f"the catalogue {path} is a folder", hint="set a file in the configuration")
    folder = path.absolute().parent
    try:
        if folder.parent.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            with _alone(folder):
                if not path.exists():
                    _let_go(path)
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return  # another process was faster; or the folder is none, and then SQLite says so
    except FileNotFoundError as error:
        raise CatalogueError(
            f"the folder of the catalogue {path} does not exist, nor does its parent folder",
            hint=f"mkdir -p {folder}",
        ) from error
    except OSError as error:
        hints = {errno.ENOSPC: MAKE_ROOM, errno.EDQUOT: MAKE_ROOM, errno.EROFS: READ_ONLY}
        usual = "run backupd as root, or set another file as the catalogue in the configuration"
        raise CatalogueError(
            f"the catalogue {path} cannot be created: {error.strerror}",
            hint=hints.get(error.errno or 0, usual),
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process begins a catalogue in this folder meanwhile: what lies beside its catalogue stays."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _let_go(path: Path) -> None:
    """What lies beside a catalogue that is gone has its newest rows, which a new one would spoil: it is kept, and so is
    what was kept before.

    Raises:
        CatalogueError: a process has it open, and goes on in the old one, wherever that is by now.
        OSError: it cannot be renamed.
    """
    beside = [each for end in ("-wal", "-shm") if (each := path.with_name(path.name + end)).exists()]
    if beside and _are_open(beside):
        raise CatalogueError(
            f"the catalogue {path} is gone, and a process has it open under another name",
            hint=f"end it (`backupd serve --drain`, systemctl stop 'backupd-binlog@*'; fuser -v {beside[0]}), then move"
            f" {' and '.join(map(str, beside))} to where the file is",
        )
    ends = (f".before-{number}" if number > 1 else ".before" for number in count(1))
    free = next(end for end in ends if not any(each.with_name(each.name + end).exists() for each in beside))
    for each in beside:
        kept = each.with_name(each.name + free)
        each.rename(kept)
        log.warning("%s belonged to a removed catalogue; renamed to %s", each, kept)


def _are_open(files: Sequence[Path]) -> bool:
    """In any process, as far as we may look."""
    wanted = {(found.st_dev, found.st_ino) for found in map(Path.stat, files)}
    for process in _PROCESSES.glob("[0-9]*/fd/*"):
        with suppress(OSError):
            found = process.stat()
            if (found.st_dev, found.st_ino) in wanted:
                return True
    return False


def _revision(connection: Connection, path: Path) -> str | None:
    """The file's revision; None for a file without tables."""
    names = inspect(connection).get_table_names()
    if not names:
        if connection.exec_driver_sql("PRAGMA page_count").scalar_one() > 1:  # it had some: never start again over them
            raise CatalogueError(f"the catalogue {path} is damaged: its tables cannot be found", hint=DAMAGED)
        return None
    found = None
    if tables.version.name in names:
        found = connection.execute(select(tables.version.c.version_num)).scalar()
    if found is None:
        raise CatalogueError(
            f"{path} is a database of something else, not a catalogue",
            hint="set another file as the catalogue in the configuration",
        )
    return str(found)


def _create(engine: Engine, path: Path, machine: Callable[[], Machine]) -> str:
    """All tables are in the file, and an identity, by us or by a process that was faster; the tables' revision."""
    with engine.begin() as connection:
        found = _revision(connection, path)
        if found is None:
            for statement in _statements():
                connection.exec_driver_sql(statement)
            connection.execute(insert(tables.version).values(version_num=tables.HEAD))
            here = machine()
            identity = Identity(new_name(here.host), here.marks, datetime.now(UTC))
            connection.execute(insert(tables.identities).values(to_row(identity)))
    return found or tables.HEAD


@cache
def _statements() -> tuple[str, ...]:
    """What makes all tables, their indexes and triggers, in order. Compiling them takes longer than running them."""
    made = [table for metadata in (tables.metadata, tables.bookkeeping) for table in metadata.sorted_tables]
    indexes = [index for table in made for index in sorted(table.indexes, key=lambda index: str(index.name))]
    elements: list[DDLElement] = [*map(CreateTable, made), *map(CreateIndex, indexes)]
    return (*(str(element.compile(dialect=sqlite.dialect())) for element in elements), *tables.APPEND_ONLY)


def _keep_copy(path: Path, copy: Path, busy_timeout_seconds: float) -> None:
    """A copy of the last committed state is at `copy`, durable. The caller holds the write lock."""
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            with direct(path, busy_timeout_seconds=busy_timeout_seconds) as connection:
                connection.execute("VACUUM INTO ?", (str(partial.absolute()),))
            os.fsync(descriptor)  # VACUUM INTO itself syncs nothing
        finally:
            os.close(descriptor)
        partial.replace(copy)
        sync_folder(copy.absolute().parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    log.info("kept a copy of the catalogue from before the upgrade: %s", copy)


def _require_references(connection: Connection, path: Path) -> None:
    """No row lost its run while foreign keys were off."""
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        raise CatalogueError(
            f"upgrading the catalogue {path} would have lost the run of {len(broken)} rows (first in {broken[0][0]})",
            hint="the file is unchanged; this is a bug in backupd, please report it",
        )
