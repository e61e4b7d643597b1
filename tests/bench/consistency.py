"""Data that shows whether a copy was consistent: transfers between accounts, counters under LOCK TABLES, DDL.

Knows: what is written beside the lab's load, and what must be true of it at any single moment. Refuses to know how a
copy was made, and whether it is the server itself that is asked or one on a restored copy.

- Transfers, one transaction each: the balances' sum never changes, and the ledger explains every balance. A
  transaction that is in a copy by half shows in both.
- Pairs of counters of an engine without transactions, incremented together under LOCK TABLES … WRITE: equal, unless
  the copy was taken between the two. FTWRL and BACKUP STAGE BLOCK_COMMIT both wait for who holds LOCK TABLES (seen
  with MyISAM and Aria on MariaDB 10.11.19), so a copy under either has none or both.
- DDL goes on all the while; a replay of the binlog has to come out at the same tables.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import cycle
from random import Random

from backupd.mysql.facts import flavour_of
from backupd.mysql.session import Login, Session
from backupd.vocabulary.errors import LabError, ServerError
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour

ACCOUNTS = 50
OPENING = 1000  # each account's balance before the first transfer
TRANSFERS_A_SECOND = 5.0
COUNTS_A_SECOND = 4.0
CHANGES_A_SECOND = 2.0  # steps of the DDL below

_ROWS_OF_A_COUNTER = 8
_PATIENCE_SECONDS = 0.2  # until a server that was away is tried again
_END_SECONDS = 60.0  # a statement may be waiting for a lock
_ENGINES = {  # those without transactions
    Flavour.MARIADB: {"myisam": "MyISAM", "aria": "Aria TRANSACTIONAL=0"},
    Flavour.MYSQL: {"myisam": "MyISAM"},
}
_BANK = (
    "CREATE TABLE lab_bank.account (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE lab_bank.ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, source INT NOT NULL, target INT NOT NULL,"
    " amount BIGINT NOT NULL) ENGINE=InnoDB",
)
_CHANGES = (
    "DROP TABLE IF EXISTS lab_bank.changing, lab_bank.changed",
    "CREATE TABLE IF NOT EXISTS lab_bank.changing (id BIGINT AUTO_INCREMENT PRIMARY KEY, note TEXT) ENGINE=InnoDB",
    "INSERT INTO lab_bank.changing (note) VALUES ('a'), ('b'), ('c')",
    "ALTER TABLE lab_bank.changing ADD COLUMN more INT NOT NULL DEFAULT 7",
    "RENAME TABLE lab_bank.changing TO lab_bank.changed",
)
_UNEXPLAINED = f"""
    SELECT account.id AS id FROM lab_bank.account AS account
    LEFT JOIN (
        SELECT id, SUM(amount) AS amount FROM (
            SELECT target AS id, amount FROM lab_bank.ledger
            UNION ALL SELECT source, -amount FROM lab_bank.ledger
        ) AS each_way GROUP BY id
    ) AS moved ON moved.id = account.id
    WHERE account.balance <> {OPENING} + COALESCE(moved.amount, 0) ORDER BY account.id
"""

Step = Callable[[Session], None]


@contextmanager
def workload(login: Login) -> Iterator[None]:
    """Within the block transfers, counts and DDL go on, whether the server is locked, stalled or away for a while.

    The schema is made anew when the block begins. At its end nobody writes any more.

    Raises:
        ServerError: the server is not there, or does not let us in, when the block begins.
        LabError: at the block's end: a writer does not end.
    """
    with closing(Session.open(login)) as session:
        flavour = flavour_of(session)
        for statement in schema(flavour):
            session.execute(statement)
    ended = threading.Event()
    paces = ((transfers(Random()), TRANSFERS_A_SECOND), (counts(flavour), COUNTS_A_SECOND), (ddl(), CHANGES_A_SECOND))
    writers = [
        threading.Thread(target=_go_on, args=(login, step, 1 / a_second, ended), daemon=True)
        for step, a_second in paces
    ]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        ended.set()
        for writer in writers:
            writer.join(_END_SECONDS)
    if any(writer.is_alive() for writer in writers):
        raise LabError(f"a writer of the lab's did not end within {_END_SECONDS:g} s", hint="is the server locked?")


def schema(flavour: Flavour) -> Iterator[str]:
    """The statements that make everything anew."""
    yield "DROP DATABASE IF EXISTS lab_bank"
    yield "CREATE DATABASE lab_bank"
    yield from _BANK
    rows = ", ".join(f"({number}, {OPENING})" for number in range(1, ACCOUNTS + 1))
    yield f"INSERT INTO lab_bank.account VALUES {rows}"
    rows = ", ".join(f"({number}, 0)" for number in range(1, _ROWS_OF_A_COUNTER + 1))
    for engine in _ENGINES[flavour]:
        for table in _pair(engine):
            yield f"CREATE TABLE {table} (id INT PRIMARY KEY, value BIGINT NOT NULL) ENGINE={_ENGINES[flavour][engine]}"
            yield f"INSERT INTO {table} VALUES {rows}"


def transfers(chance: Random) -> Step:
    """A step that moves an amount between two accounts. The lower account first: two that cross never deadlock."""

    def step(session: Session) -> None:
        source, target = chance.sample(range(1, ACCOUNTS + 1), 2)
        amount = chance.randint(1, 100)
        session.execute("START TRANSACTION")
        for account, change in sorted(((source, -amount), (target, amount))):
            session.execute("UPDATE lab_bank.account SET balance = balance + %s WHERE id = %s", change, account)
        ledger = "INSERT INTO lab_bank.ledger (source, target, amount) VALUES (%s, %s, %s)"
        session.execute(ledger, source, target, amount)
        session.execute("COMMIT")

    return step


def counts(flavour: Flavour) -> Step:
    """A step that increments both counters of every pair, each pair under its lock."""

    def step(session: Session) -> None:
        for pair in map(_pair, _ENGINES[flavour]):
            session.execute("LOCK TABLES " + ", ".join(f"{table} WRITE" for table in pair))
            for table in pair:
                session.execute(f"UPDATE {table} SET value = value + 1")
            session.execute("UNLOCK TABLES")

    return step


def ddl() -> Step:
    """A step that makes, changes, renames or drops a table, in turn."""
    statements = cycle(_CHANGES)
    return lambda session: session.execute(next(statements))


def check(session: Session) -> tuple[Check, ...]:
    """What must be true of the data at any single moment, and is not in a copy that was torn.

    An empty ledger is a fault too: then there was no load, and nothing was proved.

    Raises:
        ServerError: the server does not answer, or the tables are not there.
    """
    money = f"{ACCOUNTS} accounts with {ACCOUNTS * OPENING}"
    total = session.query("SELECT COUNT(*) AS accounts, SUM(balance) AS total FROM lab_bank.account")[0]
    told = f"{total['accounts']} accounts with {total['total']}"
    wrong = [row["id"] or "" for row in session.query(_UNEXPLAINED)]
    unexplained = f"accounts {', '.join(wrong)} differ" if wrong else "every balance explained"
    moved = int(session.value("SELECT COUNT(*) FROM lab_bank.ledger") or 0)
    return (
        Check("balances", ok=told == money, expected=money, found=told),
        Check("ledger", ok=not wrong, expected="every balance explained", found=unexplained),
        Check("transfers", ok=moved > 0, expected="some", found=str(moved)),
        *(_counters_check(session, engine) for engine in _ENGINES[flavour_of(session)]),
    )


def _counters_check(session: Session, engine: str) -> Check:
    """Every row of both tables has the same value, above 0."""
    values = [
        [int(row["value"] or 0) for row in session.query(f"SELECT value FROM {table}")] for table in _pair(engine)
    ]
    return counters_check(engine, values)


def counters_check(engine: str, values: Sequence[Sequence[int]]) -> Check:
    """The verdict on a pair's rows."""
    whole = all(len(rows) == _ROWS_OF_A_COUNTER for rows in values)
    seen = {value for rows in values for value in rows}
    ok = whole and len(seen) == 1 and min(seen) > 0
    found = " and ".join("/".join(map(str, sorted(set(rows)))) or "nothing" for rows in values)
    return Check(f"{engine} counters", ok=ok, expected="one value above 0 in both", found=found)


def _pair(engine: str) -> tuple[str, str]:
    return f"lab_bank.{engine}_left", f"lab_bank.{engine}_right"


def _go_on(login: Login, step: Step, pause_seconds: float, ended: threading.Event) -> None:
    """Step after step until the end; after a failure in a new session, because what the old one had begun is void."""
    while not ended.is_set():
        try:
            with closing(Session.open(login)) as session:
                while not ended.wait(pause_seconds):
                    step(session)
        except ServerError:  # locked for too long, stalled or away: that is what it is there for
            ended.wait(_PATIENCE_SECONDS)
