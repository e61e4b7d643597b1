"""The rows of a table on their way from one server into another: one at a time here, in statements of bounded size.

Each statement is a transaction of its own, so that no server has to undo, log or replicate a large one. Two are held,
of which one is carried out while the other is made; what a row needs beyond a statement is refused.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from backupd.host.signals import shielded
from backupd.mysql.loading_schema import LoadingServer
from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.mysql.sqltext import quoted
from backupd.mysql.table_shape import TableShape, names_of
from backupd.vocabulary.errors import ServerError

STATEMENT_BYTES = 1 << 20
TELL_SECONDS = 30.0
_ELSEWHERE = "nothing of the table is kept there: restore it into a folder, with --to DIR"


def load_rows(
    source: Session,
    to: Session,
    shape: TableShape,
    schema: str,
    *,
    server: LoadingServer,
    loaded: Callable[[int], None] = lambda _rows: None,
    took: Callable[[float], None] = lambda _seconds: None,
) -> int:
    """Every row of the table is in that schema's table of the same name. Returns how many; tells some in between.

    `source` is a session that gives values as they are stored; `to` is prepared for loading. `took` is told how many
    seconds each statement took, and returns when the next may be carried out.

    Raises:
        ServerError: either refused or failed; a row is larger than the server takes; it took fewer than it was given.
    """
    rows, expected, told = 0, 0, time.monotonic()

    def carry_out(statement: bytes, doing: str) -> int:
        began = time.monotonic()
        try:
            taken = to.change(statement, doing=doing)
        except StatementError as error:
            if error.number:  # it was refused: the session is not over
                error.hint = error.hint or _ELSEWHERE
            raise
        took(time.monotonic() - began)
        return taken

    with _one_beside(to) as beside:
        sending = beside.submit(int)
        for statement, count in statements(source, shape, schema, server=server):
            _require_taken(sending.result(), expected)
            doing = f"INSERT INTO {schema}.{shape.table.name} ({count} rows)"
            sending, expected = beside.submit(carry_out, statement, doing), count
            rows += count
            if time.monotonic() - told >= TELL_SECONDS:
                loaded(rows)
                told = time.monotonic()
        _require_taken(sending.result(), expected)
    return rows


def _require_taken(taken: int, expected: int) -> None:
    if taken != expected:
        raise ServerError(f"the server took {taken} of {expected} rows", hint="nothing of the table is kept there")


@contextmanager
def _one_beside(to: Session) -> Iterator[Executor]:
    """A thread that carries one statement out while the next is made. It has ended when the block has.

    A block that raises does not wait for the server, which may stall for as long as its disk is full: it cuts the
    session off.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="backupd loads")
    try:
        yield executor
    except BaseException:
        to.sever()
        raise
    finally:
        with shielded():
            executor.shutdown(wait=True)


def statements(
    source: Session, shape: TableShape, schema: str, *, server: LoadingServer
) -> Iterator[tuple[bytes, int]]:
    """INSERT statements of about STATEMENT_BYTES, none larger than the server takes, each with its number of rows.

    Raises:
        ServerError: a row is larger than that.
    """
    columns = shape.carried
    writers = [column.writer(server.flavour) for column in columns]
    asked = ", ".join(column.read for column in columns)
    named = shape.table.in_sql
    into = f"{quoted(schema)}.{quoted(shape.table.name)} ({names_of(columns)})"
    head = f"INSERT INTO {into} VALUES ".encode()  # noqa: S608 - quoted names
    most = server.largest_statement - 1  # the command's own byte
    bound = min(STATEMENT_BYTES, most)
    parts: list[bytes] = []
    size = len(head)
    for row in source.byte_rows(f"SELECT {asked} FROM {named}"):  # noqa: S608 - quoted names
        values = b"(" + b",".join([write(value) for write, value in zip(writers, row, strict=True)]) + b")"
        if parts and size + len(values) + 1 > bound:
            yield head + b",".join(parts), len(parts)
            parts, size = [], len(head)
        if len(head) + len(values) > most:
            raise ServerError(
                f"a row of {shape.table} takes {len(head) + len(values)} bytes in a statement, and {server.host} takes"
                f" {server.largest_statement} at most",
                hint="SET GLOBAL max_allowed_packet to more there, and load again",
            )
        parts.append(values)
        size += len(values) + 1
    if parts:
        yield head + b",".join(parts), len(parts)


def prepare_source(session: Session) -> None:
    """What this session of the server on the restored files reads is as it was stored.

    Raises:
        ServerError: the session is over.
    """
    session.execute("SET SESSION time_zone = '+00:00', net_write_timeout = 86400")  # the other server may stall


def checksum(session: Session, schema: str, table: str) -> str | None:
    """What the server itself makes of all that is in the table, read row by row. None where it cannot.

    Raises:
        ServerError: the session is over.
    """
    row = session.one(f"CHECKSUM TABLE {quoted(schema)}.{quoted(table)} EXTENDED") or {}
    return row.get("Checksum")
