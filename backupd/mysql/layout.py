"""Which files and folders a backup of this server must think of, and which of them a snapshot cannot do without.

Knows: what InnoDB, Aria, MyISAM and the replication write, and where each server says that it is.

Everything that InnoDB recovers from must be in one atomic image: with the redo log on another volume, the copy of the
data is silently corrupt. Binlogs may lie elsewhere, because under the lock they stand still with the data. Without a
lock they may not: of a transaction between its two commits only both together can tell whether it counts.
"""

import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pymysql.constants import ER

from backupd.host.filesystem import opened_plain, read_plain, read_plain_or_linked
from backupd.mysql import ABSOLUTE_LINK, DATA_DIRECTORY, KEYS
from backupd.mysql.aria_control import CONTROL_FILE
from backupd.mysql.facts import key_files
from backupd.mysql.running_servers import KEPT_LOCKED, is_server
from backupd.mysql.server_view import require_same_view
from backupd.mysql.session import Row, Session, StatementError
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import DataPath, Flavour, ServerFacts

# Role, variable; an empty variable means the datadir. These must share the volume.
_FOLDERS = (
    ("system tablespace", "innodb_data_home_dir"),
    ("redo", "innodb_log_group_home_dir"),
    ("undo", "innodb_undo_directory"),
    ("doublewrite", "innodb_doublewrite_dir"),
    ("aria log", "aria_log_dir_path"),
    ("rocksdb", "rocksdb_datadir"),
    ("rocksdb log", "rocksdb_wal_dir"),
    ("tokudb", "tokudb_data_dir"),
    ("tokudb log", "tokudb_log_dir"),
)
_FILES = (  # these need not
    ("binlog", "log_bin_basename"),
    ("binlog", "log_bin_index"),
    ("relay log", "relay_log_basename"),
)

_NOT_BELOW_THE_DATADIR = {
    Flavour.MARIADB: "SELECT FILENAME AS file FROM information_schema.INNODB_SYS_TABLESPACES"
    " WHERE FILENAME NOT LIKE './%'",
    Flavour.MYSQL: "SELECT FILE_NAME AS file FROM information_schema.FILES"
    " WHERE ENGINE = 'InnoDB' AND FILE_NAME NOT LIKE './%'",
}
# MariaDB before 10.6: that table of it has no such column, and this one, which 10.6 has not (seen on 10.5.29).
_NOT_BELOW_AS_BEFORE = "SELECT PATH AS file FROM information_schema.INNODB_SYS_DATAFILES WHERE PATH NOT LIKE './%'"
# MariaDB's INNODB_SYS_TABLESPACES has only those that were opened since the server started (389 of 200,007, seen on
# 10.11.19), so its tables are asked for: 200,007 in 1.0 s. A table in the system tablespace has space 0.
_TABLESPACES = {
    Flavour.MARIADB: "SELECT CONCAT(NAME, '.ibd'), SPACE FROM information_schema.INNODB_SYS_TABLES WHERE SPACE <> 0",
    Flavour.MYSQL: "SELECT FILE_NAME, FILE_ID FROM information_schema.FILES"
    " WHERE ENGINE = 'InnoDB' AND FILE_NAME LIKE '%.ibd'",
}
_LONGEST_PATH = 4096  # bytes (PATH_MAX)
_LONGEST_AUTO_CNF = 64 << 10  # bytes: MySQL writes two lines
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid

_TEMPORARY = "ibtmp"  # innodb_temporary: recreated at every start


def data_paths(session: Session, facts: ServerFacts) -> tuple[DataPath, ...]:
    """Every file and folder that matters, resolved, each once; the datadir first.

    Raises:
        ServerError: the server cannot be asked, or is not that of the datadir here; or that cannot be read.
    """
    variables = require_server_of(session, facts.datadir)
    with explained_datadir():
        found = [
            DataPath("datadir", facts.datadir.resolve(strict=True), must_share=True),
            *configured(variables, facts.datadir),
            *(DataPath(KEYS, file.resolve(), must_share=False) for file in key_files(facts)),
            *_external_tablespaces(session, facts),
            *links(facts.datadir.resolve()),
        ]
        _require_same_view(session, variables, facts.datadir, found)
    return tuple(dict.fromkeys(found))


def require_server_of(session: Session, datadir: Path) -> Mapping[str, str]:
    """The server that answers here is the one whose datadir this is; its variables. Asked again whenever much depends
    on it: behind an address, or a socket, another one may have come since.

    Raises:
        ServerError: it is another one, or its datadir is not what is seen here; or neither can be told.
    """
    variables = session.variables()
    told = Path(variables["datadir"])
    if told != datadir:
        raise ServerError(
            f"the server that answers has its data in {told}, not in {datadir}: it is another one",
            hint="set the host's socket, or an address that leads to one server only",
        )
    with explained_datadir():
        require_own(variables, datadir, far_address=session.far_address)
        _require_same_view(session, variables, datadir, configured(variables, datadir))
    return variables


def _require_same_view(
    session: Session, variables: Mapping[str, str], datadir: Path, paths: Iterable[DataPath]
) -> None:
    """Of these, what must be in the snapshot is to the server what it is to us, as far as its process is known.

    Raises:
        ServerError: the files in the datadir are nobody's or another server's, or this one has others at one of these
            paths.
        OSError: the datadir cannot be read.
    """
    server = require_open(variables, datadir)
    if server is not None:
        _require_answering(server, session.peer, datadir)
        require_same_view(server, datadir.resolve(), (path.path for path in paths if path.must_share))


def require_own(variables: Mapping[str, str], datadir: Path, *, far_address: str | None) -> None:
    """The server that answers is the one of this datadir, as far as anybody can tell: a job's address may move.

    A replica's datadir looks like its source's, down to the numbers of the tablespaces. MySQL keeps its own uuid in its
    datadir. MariaDB has none: its host's name has to be ours, where it answers from an address that may be another's.

    Raises:
        ServerError: it is another one. A snapshot of the datadir here would be taken without a lock.
        OSError: the datadir cannot be read.
    """
    ours = socket.gethostname()
    hint = "set the host's socket, or an address that leads to this machine only (127.0.0.1)"
    uuid, kept = variables.get("server_uuid", ""), _kept_uuid(datadir)
    if uuid and kept:
        if uuid != kept:
            raise ServerError(
                f"the server that answers is not that of {datadir}: its server_uuid is {uuid}, and auto.cnf there has"
                f" {kept}",
                hint=hint,
            )
    elif far_address is not None and (named := variables.get("hostname", "")) != ours:
        raise ServerError(
            f"the server that answers, at {far_address}, seems to be another machine's: its hostname is {named}, not"
            f" {ours}",
            hint=f"{hint}; if it runs in a container here, share the folder of its socket with this host, or publish"
            " its port there: --publish 127.0.0.1:PORT:3306",
        )


def require_open(variables: Mapping[str, str], datadir: Path) -> int | None:
    """A server has the files open that are seen here: its process, None where that is not of our PID namespace.

    One with mounts of its own has others under that name, and so has one over whose folder a volume was mounted after
    it had started. Where none of these files is, nothing is told: a link is none, and not followed.

    Raises:
        ServerError: none has. A snapshot would show files of nobody's.
        OSError: they cannot be read.
    """
    control = _within(datadir, variables.get("aria_log_dir_path", "")) / CONTROL_FILE
    named = (control, *(datadir / name for name in KEPT_LOCKED))
    here = [path for path in named if path.is_file() and not path.is_symlink()]
    holders = [holder for path in here if (holder := _holder(path)) is not None]
    if here and not holders:
        raise ServerError(
            f"no server has the files in {datadir} open: the one that answers has others under that name",
            hint="does it run in a container, or was a volume mounted over its folder after it had started?"
            f" See `findmnt --target {datadir}` and /proc/PID/mountinfo of the server",
        )
    return next((holder for holder in holders if holder > 0), None)


def _require_answering(server: int, peer: int | None, datadir: Path) -> None:
    """No other server answers than the process that has the datadir's files open.

    Who listens at a socket need not be a server: systemd may, for one that it starts, or a proxy.

    Raises:
        ServerError: one does, in a container, say, whose own folder is mounted at the same path. It would be locked,
            and this one's files copied.
    """
    if peer and peer != server and is_server(peer):
        raise ServerError(
            f"process {peer} answers, and another one, process {server}, has the files in {datadir} open: the one that"
            " answers has others under that name",
            hint=f"does it run in a container? set the host's socket to that of process {server}",
        )


def _holder(path: Path) -> int | None:
    """The other process that has it locked, whatever mounts it has; 0 where it is of no PID namespace of ours, None
    where there is none. Nothing is locked by asking.
    """
    with opened_plain(path, beneath=path.parent) as file:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(process)


def _kept_uuid(datadir: Path) -> str:
    """By which MySQL's server knows itself again; empty where there is none."""
    try:
        kept = read_plain_or_linked(datadir / "auto.cnf", at_most=_LONGEST_AUTO_CNF)
    except FileNotFoundError:
        return ""
    found = re.search(r"^server-uuid=(\S+)\s*$", kept.decode(errors="replace"), re.MULTILINE)
    return found.group(1) if found else ""


@contextmanager
def explained_datadir() -> Iterator[None]:
    """An OSError in the block becomes a ServerError: the datadir cannot be read, and who may read it."""
    try:
        yield
    except OSError as error:
        raise ServerError(
            f"cannot read the server's datadir: {error}",
            hint="run backupd as root on the machine that the server runs on",
        ) from error


def tablespaces(session: Session, facts: ServerFacts) -> Mapping[str, int]:
    """The file of every InnoDB table and general tablespace with its space id, relative to the datadir where below it.

    Raises:
        ServerError: the server cannot be asked, or is not that of the datadir here.
    """
    require_server_of(session, facts.datadir)  # else a file that is not there would be taken for a dropped table's
    rows = session.rows(_TABLESPACES[facts.flavour])
    return {file.removeprefix("./"): int(space) for file, space in rows if file is not None and space is not None}


def configured(variables: Mapping[str, str], datadir: Path) -> Iterator[DataPath]:
    """The folders and files that the server's variables name."""
    for role, variable in _FOLDERS:
        if variable in variables:
            yield DataPath(role, _within(datadir, variables[variable]), must_share=True)
    home = _within(datadir, variables.get("innodb_data_home_dir", ""))
    for name in _system_files(variables.get("innodb_data_file_path", "")):
        yield DataPath("system tablespace", _within(home, name), must_share=True)
    for role, variable in _FILES:
        if variables.get(variable):
            yield DataPath(role, _within(datadir, variables[variable]).parent, must_share=False)


def links(datadir: Path) -> Iterator[DataPath]:
    """Where symlinks and `.isl` files in the datadir lead: tables that are elsewhere though they seem here.

    So do those in folders of its file system that a relative link leads to, but for one that the datadir itself is in:
    what else lies there is not the server's. What is dropped meanwhile leads nowhere.

    Raises:
        OSError: a folder cannot be read, or the datadir is not there.
    """
    home = datadir.resolve()
    yield from _links(datadir, home, {home})


def _links(folder: Path, home: Path, entered: set[Path]) -> Iterator[DataPath]:
    folders, led = [], []
    with os.scandir(folder) as entries:  # which tells what each is without a look at it: there may be a million
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_symlink() or entry.name.endswith(".isl"):
                led.append(entry.name)
    for path in (folder / name for name in sorted(led)):
        with suppress(FileNotFoundError):
            if not path.is_symlink():
                yield DataPath(DATA_DIRECTORY, _told_by(path).resolve(), must_share=True)
            elif path.readlink().is_absolute():
                yield DataPath(ABSOLUTE_LINK, path.resolve(), must_share=True)
            else:
                there = path.resolve()
                yield DataPath("symlink", there, must_share=True)
                is_the_servers = not home.is_relative_to(there) and there.stat().st_dev == home.stat().st_dev
                if is_the_servers and _is_new_folder(there, entered):
                    entered.add(there)
                    yield from _links(there, home, entered)
    for name in sorted(folders):
        with suppress(FileNotFoundError):
            yield from _links(folder / name, home, entered)


def _is_new_folder(path: Path, entered: set[Path]) -> bool:
    return path.is_dir() and entered.isdisjoint((path, *path.parents))


def _told_by(isl: Path) -> Path:
    """The path in an `.isl` file, as the server reads it: bytes up to a NUL. Whoever may write here wrote them.

    Raises:
        OSError: it is no plain file, or larger than a path is.
    """
    told = read_plain(isl, beneath=isl.parent, at_most=_LONGEST_PATH)
    return Path(os.fsdecode(told.partition(b"\0")[0].strip()))


def _external_tablespaces(session: Session, facts: ServerFacts) -> Iterator[DataPath]:
    datadir = facts.datadir.resolve()
    try:
        rows = _not_below_the_datadir(session, facts.flavour)
    except StatementError as error:
        raise ServerError(f"cannot list the tablespaces: {error.message}", hint=error.hint) from error
    for file in (row["file"] for row in rows):
        if file and not Path(file).name.startswith(_TEMPORARY):
            path = _within(datadir, file)
            if not path.is_relative_to(datadir):
                yield DataPath("tablespace", path, must_share=True)


def _not_below_the_datadir(session: Session, flavour: Flavour) -> list[Row]:
    try:
        return session.query(_NOT_BELOW_THE_DATADIR[flavour])
    except StatementError as error:
        if error.number != ER.BAD_FIELD_ERROR:
            raise
    return session.query(_NOT_BELOW_AS_BEFORE)


def _system_files(data_file_path: str) -> Iterator[str]:
    """The names in `ibdata1:12M;/other/ibdata2:10M:autoextend`."""
    for item in data_file_path.split(";"):
        if name := item.strip().partition(":")[0]:
            yield name


def _within(folder: Path, named: str) -> Path:
    return (folder / named).resolve()
