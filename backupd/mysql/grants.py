"""Which privileges backupd's account needs, and which it lacks.

Knows: one harmless statement for each privilege. Refuses to parse SHOW GRANTS: roles, SUPER and ALL PRIVILEGES count
for as much as this server lets them, and only the server knows how much that is.
"""

from dataclasses import dataclass

from backupd.model import Flavour
from backupd.mysql.positions import replica_statement
from backupd.mysql.session import Session, StatementError

CANARY_SCHEMA = "backupd_canary"


@dataclass(frozen=True, slots=True)
class Privilege:
    """A privilege as GRANT spells it, and what it is for."""

    name: str
    purpose: str
    probe: str  # a statement that is refused without it and changes nothing; "" for the one that lists replication


_MARIADB = (
    Privilege("RELOAD", "lock, flush the engine logs", "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS"),
    Privilege("PROCESS", "see what a lock would wait behind, and every tablespace", "SHOW ENGINE INNODB STATUS"),
    Privilege("BINLOG MONITOR", "read the binlog position", "SHOW MASTER STATUS"),
    Privilege("REPLICA MONITOR", "read replica positions and lag", ""),
)
_MYSQL = (
    Privilege("RELOAD", "lock, flush the engine logs", "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS"),
    Privilege("PROCESS", "see what a lock would wait behind, and every tablespace", "SHOW ENGINE INNODB STATUS"),
    Privilege("REPLICATION CLIENT", "read the binlog position, replica positions and lag", ""),
)
_NEEDED = {Flavour.MARIADB: _MARIADB, Flavour.MYSQL: _MYSQL}


def missing(session: Session, flavour: Flavour) -> tuple[str, ...]:
    """The privileges that this session's account lacks, as GRANT spells them. Both lock strategies need the same.

    Raises:
        ServerError: the server failed otherwise than by refusing.
    """
    return tuple(privilege.name for privilege in _NEEDED[flavour] if not _has(session, privilege))


def grant_script(user: str, host: str = "localhost", *, flavour: Flavour = Flavour.MARIADB, canary: bool = True) -> str:
    """The statements that an administrator runs once, after CREATE USER."""
    account = f"'{user}'@'{host}'"
    names = ", ".join(privilege.name for privilege in _NEEDED[flavour])
    lines = [f"GRANT {names} ON *.* TO {account};"]
    if canary:
        lines.append(f"GRANT CREATE, SELECT, INSERT, DELETE ON `{CANARY_SCHEMA}`.* TO {account};")
    return "\n".join(lines) + "\n"


def _has(session: Session, privilege: Privilege) -> bool:
    try:
        if privilege.probe:
            session.query(privilege.probe)
        else:
            replica_statement(session)
    except StatementError as error:
        if error.denied:
            return False
        raise
    return True
