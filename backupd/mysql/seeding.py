"""What a server on a restored copy is told, so that it becomes a replica from exactly the backup's position.

Knows: the statements, in the words of each server; which of them hold in a copy and which files of it are the old
server's. Refuses to start a server, and to write a password anywhere: it goes over the session, once.

Tried on MariaDB 10.11.19 and 11.8.6 and on MySQL 9.7.4:
- `--skip-grant-tables` forbids none of these statements, and with `--skip-slave-start` nothing begins to replicate.
- After RESET MASTER (MySQL from 8.2: RESET BINARY LOGS AND GTIDS) the server writes no GTID of its own until it is shut
  down. Its binlog files may be removed then: `gtid_purged` and `gtid_slave_pos` live in tables.
- MariaDB keeps source and password in `master.info`, in clear text; MySQL in `mysql.slave_master_info`.
- MySQL refuses a password of more than 32 characters, MariaDB one of more than 96 bytes, of which it shows most in its
  error. So a password that is too long is refused before a server sees it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from backupd.host.signals import shielded
from backupd.mysql.facts import flavour_of, version_number
from backupd.mysql.scheduled_events import leave_to_the_source
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.session import Session
from backupd.mysql.sqltext import literal
from backupd.mysql.startup import RELAY_LOG
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Manifest

PLACEHOLDER = "SOURCE"  # stands for a host that nobody has named

_REPLICATION_SOURCE, _RESET_BINARY_LOGS = (8, 0, 23), (8, 2, 0)  # the first MySQL that has the words

_LONGEST_PASSWORD = {Flavour.MYSQL: 32, Flavour.MARIADB: 96}

# Patterns of the old server's own files: with them in the copy the new one would find its channels, or be its twin.
OF_THE_OLD_SERVER = (
    *("auto.cnf", "master.info", "relay-log.info", "multi-master.info", "master-*.info", "relay-log-*.info"),
    f"{RELAY_LOG}*",
)


class Following(StrEnum):
    """How a replica tells its source from where to go on."""

    GTID = "gtid"
    FILE_POSITION = "file-position"


class Words(StrEnum):
    """The words that a server knows."""

    MARIADB = "mariadb"
    MYSQL = "mysql"  # from 8.2: RESET BINARY LOGS AND GTIDS
    MYSQL_8 = "mysql-8"  # from 8.0.23: CHANGE REPLICATION SOURCE TO
    OLD_MYSQL = "old-mysql"


@dataclass(frozen=True, slots=True)
class ReplicationSource:
    """The server that a replica is to follow, and who the replica is to it."""

    host: str
    user: str
    port: int = 3306
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """What the replica is to be."""

    server_id: int
    following: Following
    source: ReplicationSource | None = None  # None: the position is applied, the source is left to a person


@dataclass(frozen=True, slots=True)
class Seeded:
    """What a server on a copy was told."""

    words: Words
    position: Position
    applied: tuple[str, ...]
    left: tuple[str, ...]  # what a person has to say to it before it replicates


def require_position(manifest: Manifest) -> None:
    """The backup says where a replica would have to go on, and that there it would be sent all that is new.

    Raises:
        UsageError: the server had no binlog, or did not log what it got from its own source.
    """
    if manifest.server.binlog_basename is None or (manifest.locked and manifest.position.binlog_file is None):
        raise UsageError(
            f"run {manifest.run_id} has no position: the binlog of {manifest.host} was off",
            hint="a replica needs a binlog: set log_bin on that server, and take a new backup",
        )
    if lacks_what_it_received(manifest):
        raise UsageError(
            f"run {manifest.run_id} is of a replica whose binlog lacks what it gets from its source"
            " (log_slave_updates is off): a replica of it would never get that",
            hint="clone a backup of its source; or set log_slave_updates there, and take a new backup",
        )


def lacks_what_it_received(manifest: Manifest) -> bool:
    """Whether it is of a replica that has in its binlog only what its own clients wrote.

    By GTID a replica of MySQL's can follow all the same: `gtid_executed` has what was received too.
    """
    server = manifest.server
    off = "OFF" in (server.settings.get("log_replica_updates"), server.settings.get("log_slave_updates"))
    return off and server.is_replica and not (server.flavour is Flavour.MYSQL and _has_gtids(manifest))


def following(manifest: Manifest, asked: Following | None) -> Following:
    """How the replica will follow: GTID where the source has it, unless something else is asked for.

    Raises:
        UsageError: GTIDs are asked for and the source had none.
    """
    if asked is Following.FILE_POSITION:
        return asked
    if _has_gtids(manifest):
        return Following.GTID
    if asked is Following.GTID:
        raise UsageError(
            f"{manifest.host} ran without GTIDs (gtid_mode) when run {manifest.run_id} was taken",
            hint="clone with --file-position",
        )
    return Following.FILE_POSITION


def require_password_fits(flavour: Flavour, password: str | None) -> None:
    """The server will keep the password whole.

    Raises:
        UsageError: it is too long.
    """
    longest = _LONGEST_PASSWORD[flavour]
    if len((password or "").encode()) > longest:
        raise UsageError(
            f"the source's password is too long: {flavour} keeps {longest} bytes of a replica's password",
            hint="give the replication account a shorter password",
        )


def words_of(session: Session) -> Words:
    """The words of this server.

    Raises:
        ServerError: it cannot be asked.
    """
    return words_for(flavour_of(session), version_number(session.value("SELECT VERSION()") or ""))


def words_for(flavour: Flavour, version: tuple[int, int, int]) -> Words:
    """The words of a server that cannot be asked; MySQL's release notes say since when it has which."""
    if flavour is Flavour.MARIADB:
        return Words.MARIADB
    if version >= _RESET_BINARY_LOGS:
        return Words.MYSQL
    return Words.MYSQL_8 if version >= _REPLICATION_SOURCE else Words.OLD_MYSQL


def statements(words: Words, position: Position, wanted: ReplicaWish) -> tuple[str, ...]:
    """What makes a replica of a recovered copy, in order; the last one names the source, without its password.

    A placeholder stands for a source that is not named.
    """
    gtid = position.gtid or ""
    prepared: Sequence[str]
    match words:
        case Words.MARIADB:
            prepared = ("RESET MASTER", f"SET GLOBAL gtid_slave_pos = {literal(gtid)}")
        case Words.MYSQL | Words.MYSQL_8 | Words.OLD_MYSQL:
            prepared = gtids_kept(words, gtid)
    return (*without_channels(words), *prepared, _change(words, position, wanted))


def without_channels(words: Words) -> tuple[str, ...]:
    """What makes a copy forget whom its server followed. MariaDB's own channels are files and are removed before."""
    if words is Words.MARIADB:
        return ()
    return (f"RESET {'SLAVE' if words is Words.OLD_MYSQL else 'REPLICA'} ALL",)


def seed(session: Session, position: Position, wanted: ReplicaWish) -> Seeded:
    """The server on a copy is told all that is known; replication has not started, and its events are its source's.

    Raises:
        ServerError: it refused one of the statements.
    """
    words = words_of(session)
    leave_to_the_source(session, called="REPLICA" if words is Words.MYSQL else "SLAVE")
    *prepared, change = statements(words, position, wanted)
    for statement in prepared:
        session.execute(statement)
    if wanted.source is None:
        return Seeded(words, position, tuple(prepared), (change, start_statement(words)))
    if wanted.source.password is None:
        session.execute(change)
    else:
        with_password = f"{change.replace('%', '%%')}, {source_word(words)}_PASSWORD = %s"
        session.execute(with_password, wanted.source.password)
    return Seeded(words, position, (*prepared, change), (start_statement(words),))


def start_statement(words: Words) -> str:
    """What begins the replication."""
    return f"START {'REPLICA' if source_word(words) == 'SOURCE' else 'SLAVE'}"


def source_word(words: Words) -> str:
    """What its statements call the server that a replica follows: SOURCE or MASTER."""
    return "SOURCE" if words in (Words.MYSQL, Words.MYSQL_8) else "MASTER"


def forget_the_old_server(datadir: Path) -> None:
    """A server that starts here gets a `server_uuid` of its own and has no replication channel in files.

    Raises:
        UsageError: a file could not be removed.
    """
    for path in _of_the_old_server(datadir):
        _remove(path)


@contextmanager
def old_server_aside(datadir: Path, aside: Path, trace: ServerTrace) -> Iterator[None]:
    """The same within the block, and after it where a server was there: what was the old one's is `aside`, in a folder
    of the same file system, for its caller to remove. Where none was, all is as before.

    Raises:
        UsageError: a file could not be moved.
    """
    moved = {path: aside / f"old.{path.name}" for path in _of_the_old_server(datadir)}
    try:
        for path, there in moved.items():
            _move(path, there)
        yield
    finally:
        with shielded():
            for path, there in moved.items():
                if not trace.server and os.path.lexists(there):
                    _move(there, path)


def _of_the_old_server(datadir: Path) -> list[Path]:
    return [path for pattern in OF_THE_OLD_SERVER for path in datadir.glob(pattern)]


def remove_binlogs(named: Path) -> None:
    """No file of the binlog to which `named` belongs is left beside it: the new server begins one of its own.

    Raises:
        UsageError: a file could not be removed.
    """
    ours = re.compile(re.escape(named.stem) + r"\.(\d{6,}(\.idx)?|index|state)")
    for path in list(named.parent.iterdir()):
        if ours.fullmatch(path.name):
            _remove(path)


def _remove(path: Path) -> None:
    with _explained(path, "removed from the restored files"):
        path.unlink()


def _move(path: Path, there: Path) -> None:
    with _explained(path, f"moved to {there}"):
        path.rename(there)


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path} could not be {done}: {error.strerror}",
            hint="check the file system (dmesg), or restore into another folder",
        ) from error


def _has_gtids(manifest: Manifest) -> bool:
    """MariaDB always does. MySQL has a set that it does not use where `gtid_mode` was turned off again."""
    if manifest.server.flavour is Flavour.MARIADB:
        return True
    return manifest.server.settings.get("gtid_mode", "").startswith("ON")


def gtids_kept(words: Words, gtid: str | None) -> tuple[str, ...]:
    """What makes MySQL have executed these and nothing else, and no binlog of its own before."""
    reset = "RESET BINARY LOGS AND GTIDS" if words is Words.MYSQL else "RESET MASTER"
    return (reset, f"SET GLOBAL gtid_purged = {literal(gtid)}") if gtid else (reset,)


def _change(words: Words, position: Position, wanted: ReplicaWish) -> str:
    word = source_word(words)
    source = wanted.source or ReplicationSource(PLACEHOLDER, user="REPLICATION_USER")
    change = f"CHANGE {'REPLICATION SOURCE' if word == 'SOURCE' else word} TO"
    who = f"{word}_HOST = {literal(source.host)}, {word}_PORT = {source.port:d}, {word}_USER = {literal(source.user)}"
    return f"{change} {who}, {', '.join(_from_where(words, position, wanted.following))}"


def _from_where(words: Words, position: Position, following: Following) -> Sequence[str]:
    word = source_word(words)
    at = (
        f"{word}_LOG_FILE = {literal(position.binlog_file or '')}",
        f"{word}_LOG_POS = {position.binlog_offset or 0:d}",
    )
    by_gtid = following is Following.GTID
    if words is Words.MARIADB:
        return ("MASTER_USE_GTID = slave_pos",) if by_gtid else (*at, "MASTER_USE_GTID = no")
    # Without TLS its default way to log in needs the source's key, which it asks for only when told to.
    key = f"GET_{word}_PUBLIC_KEY = 1"
    return (f"{word}_AUTO_POSITION = 1", key) if by_gtid else (*at, f"{word}_AUTO_POSITION = 0", key)
