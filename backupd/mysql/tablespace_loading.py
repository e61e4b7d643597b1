"""A table's tablespace on its way from the server on the restored files into the running one, as a file.

Knows: what speaks against it, and how the file gets there: into a folder that the running server has just made for a
schema with a random name, in place of a file that it had made for an empty table. So it is known whose datadir that is,
and nothing else in it is touched. The server drops what is there with the schema, whole or not (MariaDB 10.11.19, MySQL
9.7.4: also after it was killed in between).

An import is not written to a binary log in a form that others could repeat: they lack the file.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from backupd.host.filesystem import opened_plain
from backupd.mysql.facts import KEYRING_COMPONENT, flavour_of, key_files, version_number
from backupd.mysql.replication import cluster_of
from backupd.mysql.rolling_back import await_rollback
from backupd.mysql.session import Session, StatementError
from backupd.mysql.sqltext import quoted
from backupd.mysql.table_shape import TableShape
from backupd.mysql.tablefiles import Table
from backupd.mysql.tablespace_ids import MOST, highest, is_free, number_of, renumber
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Cluster, Flavour
from backupd.vocabulary.storage import Manifest

CHUNK_BYTES = 8 << 20  # between two that are durable

_TABLESPACE, _DESCRIPTION = ".ibd", ".cfg"
_UNSEEN = ".backupd"  # behind the name of a file that is not whole yet: no server looks at it
_OFF = ("OFF", "0", "")
_LOCK, _LOCK_SECONDS = "backupd_import", 3600
_ENCRYPTING = ("innodb_encrypt_tables", "default_table_encryption")  # MariaDB; MySQL
_OPTIONS = """
    SELECT create_options AS options FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""
_ODD_INDEXES = """
    SELECT GROUP_CONCAT(DISTINCT index_type) FROM information_schema.statistics
    WHERE table_schema = %s AND table_name = %s AND index_type <> 'BTREE'
"""


def datadir_here(session: Session) -> Path | None:
    """The server's datadir where it is one of this host's that we may write to; None where that is not known.

    By the process at the socket's other end, and what it calls its datadir: a container may call another folder so.

    Raises:
        ServerError: the session is over.
    """
    told = _here(session, Path(session.value("SELECT @@datadir") or "."))
    if told is None:
        return None
    owner = told.stat().st_uid
    return told if os.geteuid() in (0, owner) and os.access(told, os.W_OK | os.X_OK) else None


def binlogs_here(session: Session) -> Path | None:
    """The folder of the server's binary log where it is one of this host's; None where that is not known.

    Raises:
        ServerError: the session is over.
    """
    return _here(session, Path(session.value("SELECT @@log_bin_basename") or ".").parent)


def _here(session: Session, folder: Path) -> Path | None:
    """A folder of the server's that is the same one to us."""
    if not session.peer or not folder.is_absolute():
        return None
    try:
        return folder if Path(f"/proc/{session.peer}/root{folder}").samefile(folder) else None
    except OSError:
        return None


def obstacle(session: Session) -> str | None:
    """Why this server can import no tablespace of any backup, as a clause; None where nothing speaks against it.

    Raises:
        ServerError: the session is over.
    """
    variables = session.variables()
    cluster = cluster_of(session, variables)
    if cluster is not None or variables.get("wsrep_on") == "ON":
        kind = "Group Replication" if cluster is Cluster.GROUP_REPLICATION else "Galera"
        return f"it is a member of a {kind} cluster, whose other members would lack the table"
    if variables.get("innodb_file_per_table") == "OFF":
        return "it keeps tables in its system tablespace (innodb_file_per_table = OFF)"
    if any(variables.get(name, "OFF") not in _OFF for name in _ENCRYPTING):
        return "it encrypts its tables"
    if highest(session) is None:
        return "the account may not see the numbers of its tablespaces (GRANT PROCESS ON *.*)"
    if datadir_here(session) is None:
        return "its datadir is not known to be on this host, by a socket, or backupd may not write there"
    return None


def obstacle_of_backup(session: Session, manifest: Manifest, recovered_by: str) -> str | None:
    """Why this server, which imports tablespaces, can import none of this backup. As `obstacle`.

    `recovered_by` is the version of the server on the restored files.
    """
    backed_up, flavour = manifest.server, flavour_of(session)
    version = session.value("SELECT @@version") or ""
    page_size = int(session.value("SELECT @@innodb_page_size") or 0)
    if (flavour, version_number(version)[:2]) != (backed_up.flavour, backed_up.version_number[:2]):
        return f"it is {flavour} {version}, and the backup is of {backed_up.flavour} {backed_up.version}"
    if version_number(version) < version_number(recovered_by):
        return f"it is {version}, older than the server that recovers the files ({recovered_by})"
    if page_size != backed_up.page_size:
        return f"its pages are of {page_size} bytes, those of the backup of {backed_up.page_size}"
    settings = backed_up.settings
    if key_files(backed_up) or KEYRING_COMPONENT in settings or settings.get(_ENCRYPTING[0], "OFF") not in _OFF:
        return "the server that was backed up had keys for encryption"
    return None


def obstacle_of_table(
    session: Session, to: Session, shape: TableShape, files: Sequence[Path], beneath: Path
) -> str | None:
    """Why the tablespace of a table, which has these files, cannot be moved, as a clause; None where it can.

    `session` is of the server that has the table, in a folder that the files lie `beneath`.

    Raises:
        ServerError: a session is over.
    """
    names = (shape.table.schema, shape.table.name)
    if shape.engine != "InnoDB":
        return f"it is of the engine {shape.engine}"
    tablespace = tablespace_of(files)
    if tablespace is None:
        return "it has partitions, or no tablespace of its own in the datadir"
    if odd := session.value(_ODD_INDEXES, *names):
        return f"it has an index of the type {odd}"
    options = (session.value(_OPTIONS, *names) or "").lower()
    if "encrypt" in options or "page_compressed" in options or "compression" in options:
        return "its pages are encrypted or compressed"
    if is_free(to, number_of(tablespace, beneath)):
        return None
    if flavour_of(to) is Flavour.MYSQL:
        return (
            "the running server uses, or may assign, its tablespace number, and could not start after a crash during"
            " the import"
        )
    if (highest(to) or 0) - (highest(session) or 0) > MOST:
        return f"more than {MOST:,} tablespaces were made since in the running server"
    return None


def tablespace_of(files: Sequence[Path]) -> Path | None:
    """The one among a table's files; None where it has several, of partitions, or none."""
    found = [path for path in files if path.suffix == _TABLESPACE]
    return found[0] if len(found) == 1 and "#p#" not in found[0].name.lower() else None


def import_tablespace(
    source: Session,
    to: Session,
    shape: TableShape,
    place: Path,
    *,
    tablespace: Path,
    beneath: Path,
    took: Callable[[float], None] = lambda _seconds: None,
    telling: Callable[[str], None] = lambda _step: None,
) -> None:
    """The empty table, which `to` has just made in the schema whose folder is `place`, has the pages of the backup's.

    `source` is a session of the server on the restored files, whose tablespace of it lies `beneath` a folder that this
    server can write to. `took` is told how long each chunk took to be durable.

    Raises:
        ServerError: either server refused, the folder is not the server's, or its file system has no room; or a
            prepared transaction has changes in the table.
    """
    named = f"{quoted(place.name)}.{quoted(shape.table.name)}"
    await_rollback(source, shape.table, telling)
    with _alone(to), _opened(place) as folder:
        if not is_free(to, number_of(tablespace, beneath)):
            renumber(source, shape.table, beyond=highest(to) or 0)
        before = _tablespaces(folder)
        to.execute(f"ALTER TABLE {named} DISCARD TABLESPACE")
        gone = before.keys() - _tablespaces(folder).keys()
        if len(gone) != 1:
            raise ServerError(f"the server does not keep {named} in {place}", hint="load it with --by rows")
        (name,) = gone
        description = name.removesuffix(_TABLESPACE) + _DESCRIPTION
        with _exported(source, shape.table):
            for path, as_name in ((tablespace, name), (tablespace.with_suffix(_DESCRIPTION), description)):
                _copy(path, beneath, folder, as_name + _UNSEEN, like=before[name], took=took)
        if not is_free(to, number := number_of(place / (name + _UNSEEN), place)):
            raise ServerError(
                f"the running server may need the number {number} of the tablespace", hint="load it with --by rows"
            )
        for each in (description, name):
            os.rename(each + _UNSEEN, each, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            to.execute(f"ALTER TABLE {named} IMPORT TABLESPACE")
        except StatementError as error:
            if error.number:  # it has answered, and does nothing any more
                _remove(folder, (name, description))
            raise
        _remove(folder, (description,))  # else the folder outlives the schema


def remove_files(datadir: Path, schema: str) -> None:
    """What a dropped table leaves in the folder of a schema that was made for loading is gone: MySQL does not look.

    Raises:
        ServerError: it cannot be removed.
    """
    if not (datadir / schema).is_dir():
        return
    with _opened(datadir / schema) as folder:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        _remove(folder, [name for name in names if name.endswith((_TABLESPACE, _DESCRIPTION, _UNSEEN))])


def _remove(folder: int, names: Iterable[str]) -> None:
    for name in names:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ServerError(f"{name} cannot be removed from the server's datadir: {error.strerror}") from error


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder of the server's, whose account can rename what is around it, but put no link in its place."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ServerError(
            f"{folder} cannot be opened, in which the server should keep the new tables: {error.strerror}",
            hint="load them with --by rows",
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _exported(session: Session, table: Table) -> Iterator[None]:
    """Within the block the files of the table stay as they are, whole, with a description beside them."""
    session.execute(f"FLUSH TABLES {table.in_sql} FOR EXPORT")
    try:
        yield
    finally:
        session.execute("UNLOCK TABLES")


@contextmanager
def _alone(session: Session) -> Iterator[None]:
    """No other import of ours is under way in this server: two would choose the same number.

    Raises:
        ServerError: another one takes too long, or the session is over.
    """
    if session.value("SELECT GET_LOCK(%s, %s)", _LOCK, _LOCK_SECONDS) != "1":
        raise ServerError("another table is being imported into the server", hint="load again when it is there")
    try:
        yield
    finally:
        session.execute("DO RELEASE_LOCK(%s)", _LOCK)


def _tablespaces(folder: int) -> Mapping[str, os.stat_result]:
    """Those in a folder by their names."""
    names = [name for name in os.listdir(folder) if name.endswith(_TABLESPACE)]
    return {name: os.stat(name, dir_fd=folder, follow_symlinks=False) for name in names}


def _copy(
    path: Path, beneath: Path, folder: int, name: str, *, like: os.stat_result, took: Callable[[float], None]
) -> None:
    try:
        with opened_plain(path, beneath=beneath) as original, _new(folder, name, like) as copy:
            while True:
                began = time.monotonic()
                if not os.sendfile(copy, original.fileno(), None, CHUNK_BYTES):
                    return
                os.fdatasync(copy)
                took(time.monotonic() - began)
    except OSError as error:
        raise ServerError(
            f"{path.name} could not be copied into the server's datadir: {error.strerror}",
            hint="nothing of it is kept there; restore the table into a folder with more space, with --to DIR",
        ) from error


@contextmanager
def _new(folder: int, name: str, like: os.stat_result) -> Iterator[int]:
    """A file that was not there before, with the owner and the mode of the one that was."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, like.st_mode & 0o777)
        yield descriptor
    finally:
        os.close(descriptor)
