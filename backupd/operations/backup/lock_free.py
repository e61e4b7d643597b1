"""What must be true of a server whose snapshot is taken without a lock.

Knows: why each of it matters.
"""

from collections.abc import Iterator

from backupd.mysql import Server
from backupd.operations.findings import ok, refused
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import Flavour, ServerFacts

_SHOWN = 5  # tables that a finding names
_OWN_SCHEMAS = ("mysql", "sys", "performance_schema", "information_schema")
_ATOMIC_DDL = {Flavour.MARIADB: (10, 6), Flavour.MYSQL: (8, 0)}  # consistency.md names the sources
_LOCK = "set lock.strategy to anything but none"


def findings(server: Server, facts: ServerFacts) -> Iterator[Finding]:
    """Everything that speaks against it, or that all is well.

    Raises:
        ServerError: the server's datadir cannot be read.
    """
    yield from _engines(server.unsafe_tables(facts), facts.flavour)
    yield from _definitions(facts)
    if facts.binlog_basename is not None:
        yield from _binlog(facts)
    yield from _durability(facts)
    if facts.is_replica:
        yield Finding(
            "replica",
            Level.WARNING,
            "a replica's position in its source's binlog is unknown when nothing was locked",
            f"{_LOCK} if new replicas are to be seeded from these backups",
        )


def examine(server: Server, facts: ServerFacts) -> list[Finding]:
    """What `findings` finds, where a datadir that cannot be read is a finding too."""
    try:
        return list(findings(server, facts))
    except ServerError as error:
        return [refused("engines", error)]


def _engines(tables: tuple[str, ...], flavour: Flavour) -> Iterator[Finding]:
    theirs = [table for table in tables if table.partition("/")[0] not in _OWN_SCHEMAS]
    if theirs:
        more = f" and {len(theirs) - _SHOWN} more" if len(theirs) > _SHOWN else ""
        yield Finding(
            "engines",
            Level.REFUSED,
            f"without a lock these tables may be inconsistent: {', '.join(theirs[:_SHOWN])}{more}",
            f"ALTER TABLE … ENGINE = InnoDB, or {_LOCK}",
        )
    elif flavour is Flavour.MARIADB and tables:
        yield Finding(
            "engines",
            Level.WARNING,
            "all tables are InnoDB, except the server's own: accounts and privileges are in Aria tables",
            f"Aria recovers them from its own log; {_LOCK} if accounts change often",
        )
    else:
        yield ok("engines", "all tables are InnoDB")


def _definitions(facts: ServerFacts) -> Iterator[Finding]:
    since = _ATOMIC_DDL[facts.flavour]
    if facts.version_number[:2] < since:
        yield Finding(
            "table definitions",
            Level.REFUSED,
            f"{facts.flavour} {facts.version} does not recover an interrupted ALTER TABLE",
            f"{_LOCK}; {facts.flavour} does so from {'.'.join(map(str, since))}",
        )


def _binlog(facts: ServerFacts) -> Iterator[Finding]:
    if facts.settings.get("encrypt_binlog") == "ON":
        yield Finding(
            "binlog encryption",
            Level.REFUSED,
            "the binlog is encrypted: without a lock the position would have to be read from it",
            _LOCK,
        )
    if facts.settings.get("innodb_flush_log_at_trx_commit") == "0":
        yield Finding(
            "position",
            Level.REFUSED,
            "innodb_flush_log_at_trx_commit is 0: the binlog may have commits that InnoDB has not written yet",
            f"SET GLOBAL innodb_flush_log_at_trx_commit = 1, or {_LOCK}",
        )


def _durability(facts: ServerFacts) -> Iterator[Finding]:
    names = ["innodb_flush_log_at_trx_commit", *(["sync_binlog"] if facts.binlog_basename is not None else [])]
    loose = [f"{name} is {facts.settings[name]}" for name in names if facts.settings.get(name, "1") != "1"]
    if loose:
        yield Finding(
            "durability",
            Level.WARNING,
            f"{' and '.join(loose)}: commits of the last second may be missing",
            "set them to 1: then everything committed before the snapshot is in it",
        )
