"""From a restored copy to the server's later state: the binlog, replayed from the recorded position, and compared.

Knows: how a server's state at a moment is told, which program reads whose binlog, how both states are compared.
Refuses to know what the data means (`lab.consistency`) and how a copy is restored.

The copy's position is right only if the replay neither lacks nor repeats a statement; then every table is as it was on
the server. CHECKSUM TABLE reads all rows of a table, in any order.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.host.process import spawned
from backupd.mysql.positions import position_reader
from backupd.mysql.session import Session
from backupd.vocabulary.errors import LabError
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour, Position

_REPLAY_SECONDS = 300.0
_SHOWN = 5  # tables that a check names
_TABLES = """
    SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS name FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
    ORDER BY TABLE_SCHEMA, TABLE_NAME
"""

# Each server's own reader: MariaDB's (10.11.19) reads MySQL 9.7's binlog too, but leaves out statements that set a
# character set it does not know. Without GTIDs MySQL counts a replay as its own, whatever the copy's gtid_mode is.
_READERS = {
    Flavour.MARIADB: ("mariadb-binlog", "--no-defaults"),
    Flavour.MYSQL: ("mysqlbinlog", "--no-defaults", "--skip-gtids"),
}


@dataclass(frozen=True, slots=True)
class State:
    """What a server held when its binlog stood at a position."""

    position: Position
    tables: Mapping[str, str]  # `schema.table` and its checksum


def locked_state(session: Session) -> State:
    """The server's state under a global read lock, which is given back.

    Raises:
        ServerError: the lock was refused, or the session ended.
        LabError: a table cannot be read.
    """
    reader = position_reader(session)
    session.execute("FLUSH TABLES WITH READ LOCK")
    try:
        position = reader.position([session.query(statement) for statement in reader.statements])
        return State(position, checksums(session))
    finally:
        session.execute("UNLOCK TABLES")


def checksums(session: Session) -> Mapping[str, str]:
    """Every table but the server's own.

    Raises:
        ServerError: the session ended.
        LabError: a table cannot be read.
    """
    names = [f"`{row['schema']}`.`{row['name']}`" for row in session.query(_TABLES)]
    rows = session.query(f"CHECKSUM TABLE {', '.join(names)}") if names else []
    found = {row["Table"] or "": row["Checksum"] for row in rows}
    unread = sorted(table for table, checksum in found.items() if checksum is None)
    if unread:
        raise LabError(f"no checksum of {', '.join(unread)}", hint="CHECK TABLE tells what is wrong with it")
    return {table: checksum or "" for table, checksum in found.items()}


def replay(binlogs: Path, start: Position, stop: Position, flavour: Flavour, *, socket: str) -> None:
    """What the binlogs in that folder hold between two positions has been executed by the server on the socket.

    Raises:
        LabError: a position or a file is missing, or a program failed; the hint carries what it said.
    """
    program, *options = _READERS[flavour]
    files = [str(path) for path in binlogs_between(binlogs, start, stop)]
    between = [f"--start-position={start.binlog_offset}", f"--stop-position={stop.binlog_offset}"]
    client = ["mariadb", "--no-defaults", "--binary-mode", "--user=root", f"--socket={socket}"]
    with (
        spawned([program, *options, *between, *files]) as reader,
        spawned(client, stdin=reader.stdout, stdout=subprocess.DEVNULL) as writer,
    ):
        try:
            _, said = writer.communicate(timeout=_REPLAY_SECONDS)
            _require_done(writer, said)
            _require_done(reader, reader.communicate(timeout=_REPLAY_SECONDS)[1])
        except subprocess.TimeoutExpired as late:
            raise LabError(f"the binlog was not replayed within {_REPLAY_SECONDS:g} s") from late


def binlogs_between(folder: Path, start: Position, stop: Position) -> Iterator[Path]:
    """The files from one position's to the other's, in order.

    Raises:
        LabError: a position is none, or they are not of one series of files that are all there.
    """
    first, last = (place.binlog_file or "" for place in (start, stop))
    name, _, number = first.rpartition(".")
    last_name, _, last_number = last.rpartition(".")
    if not name or name != last_name or int(last_number) < int(number):
        raise LabError(f"there is not a binlog from {first or 'nowhere'} to {last or 'nowhere'}")
    for counted in range(int(number), int(last_number) + 1):
        path = folder / f"{name}.{counted:0{len(number)}d}"
        if not path.is_file():
            raise LabError(f"{path} is not there", hint="a binlog was purged while the lab needed it")
        yield path


def same_tables(expected: Mapping[str, str], found: Mapping[str, str]) -> Check:
    """Every table is on both sides and holds the same rows. None at all is nothing proved."""
    names = sorted(expected.keys() | found.keys())
    different = [name for name in names if expected.get(name) != found.get(name)]
    same = f"{len(names)} tables as on the server"
    said = f"{len(different)} differ: {', '.join(different[:_SHOWN])}{', …' if len(different) > _SHOWN else ''}"
    return Check("replay", ok=bool(names) and not different, expected=same, found=said if different else same)


def _require_done(process: "subprocess.Popen[bytes]", said: bytes) -> None:
    if process.wait() != 0:
        what: Sequence[str] = [str(word) for word in process.args] if isinstance(process.args, list) else []
        raise LabError(
            f"replaying the binlog failed with status {process.returncode}: {' '.join(what)}",
            hint=said.decode("utf-8", "replace")[-2000:],
        )
