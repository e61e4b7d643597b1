"""Which privileges backupd's account needs, and which it lacks.

Knows: one harmless statement for each privilege. Refuses to parse SHOW GRANTS: roles, SUPER and ALL PRIVILEGES count
for as much as this server lets them, and only the server knows how much that is.

Tried on MySQL 9.7.4: each probe is refused without its privilege and with all the others. FLUSH_TABLES would do for the
lock but not for flushing the engine logs, which takes RELOAD. What log_status takes is in `positions`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.mysql import UNLOCKED
from backupd.mysql.binlog.source import RECEIVING
from backupd.mysql.flushing import MAX_DIRTY
from backupd.mysql.positions import replica_status
from backupd.mysql.replication import NO_SUCH_CHANNEL
from backupd.mysql.session import Session, StatementError
from backupd.vocabulary.servers import Flavour

CANARY_SCHEMA = "backupd_canary"

_EVERYWHERE = "*.*"
_NOT_CONFIGURED = 1794  # ER_REPLICA_CONFIGURATION


@dataclass(frozen=True, slots=True)
class Privilege:
    """A privilege as GRANT spells it, and what it is for."""

    name: str
    purpose: str
    probe: str  # a statement that is refused without it and changes nothing; "" for the one that lists replication
    level: str = _EVERYWHERE  # what it is granted on
    to_lock: bool = False  # not needed where nothing is locked
    answers: tuple[int, ...] = ()  # errors with which the probe is refused although the account has the privilege

    @property
    def words(self) -> str:
        """The name, with what it is granted on unless that is everything."""
        return self.name if self.level == _EVERYWHERE else f"{self.name} ON {self.level}"


_RELOAD = Privilege("RELOAD", "lock, flush the engine logs", "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS", to_lock=True)
_PROCESS = Privilege("PROCESS", "see what would block the lock, and every tablespace", "SHOW ENGINE INNODB STATUS")
_MARIADB = (
    _RELOAD,
    _PROCESS,
    Privilege("BINLOG MONITOR", "read the binlog position", "SHOW MASTER STATUS", to_lock=True),
    Privilege("REPLICA MONITOR", "read replica positions and lag", ""),
)
_MYSQL = (
    _RELOAD,
    _PROCESS,
    Privilege("REPLICATION CLIENT", "read the binlog position, replica positions and lag", ""),
    Privilege("BACKUP_ADMIN", "read binlog, GTIDs and LSN at once", "UNLOCK INSTANCE", to_lock=True),
    Privilege(
        "SELECT",
        "prove the lock, and see how long statements have run",
        "SELECT 1 FROM performance_schema.metadata_locks LIMIT 0",
        level="performance_schema.*",
        to_lock=True,
    ),
)
_NEEDED = {Flavour.MARIADB: _MARIADB, Flavour.MYSQL: _MYSQL}

# Only for `lock.stop_applier`. Neither server checks it before it has found the channel of a STOP (10.11.19, 9.7.4),
# so the probes are others: a variable set to what it is, and a filter of a channel that nobody has.
_STOPPING = {
    Flavour.MARIADB: Privilege(
        "REPLICATION SLAVE ADMIN", "stop the applier", "SET GLOBAL slave_exec_mode = @@global.slave_exec_mode"
    ),
    Flavour.MYSQL: Privilege(
        "REPLICATION_SLAVE_ADMIN",
        "stop the applier",
        "CHANGE REPLICATION FILTER REPLICATE_DO_DB = () FOR CHANNEL 'backupd_asks_only'",
        answers=(_NOT_CONFIGURED, *NO_SUCH_CHANNEL),
    ),
}

# Only for `[jobs.NAME.binlog]`. It is not among what a backup lacks: whether it is there, `binlog.source` asks.
_RECEIVING = Privilege(RECEIVING, "receive the binlog", "")

# Only for `lock.preflush`: a setting is set to what it is. MariaDB has no smaller privilege for it (10.11.19).
_TO_FLUSH = f"SET GLOBAL {MAX_DIRTY} = @@global.{MAX_DIRTY}"
_FLUSHING = {
    Flavour.MARIADB: Privilege("SUPER", "flush dirty pages before the lock", _TO_FLUSH),
    Flavour.MYSQL: Privilege("SYSTEM_VARIABLES_ADMIN", "flush dirty pages before the lock", _TO_FLUSH),
}


def missing(
    session: Session, flavour: Flavour, *, strategy: str, stop_applier: bool = False, preflush: bool = False
) -> tuple[str, ...]:
    """The privileges that this session's account lacks for a lock strategy, as GRANT spells them.

    Each is a name to be granted on everything, unless it says on what.

    Raises:
        ServerError: the server failed otherwise than by refusing.
    """
    everything = _needed(flavour, stop_applier=stop_applier, preflush=preflush)
    needed = (one for one in everything if not (one.to_lock and strategy == UNLOCKED))
    return tuple(privilege.words for privilege in needed if not _has(session, privilege))


def grant_script(
    user: str,
    host: str = "localhost",
    *,
    flavour: Flavour = Flavour.MARIADB,
    canary: bool = True,
    stop_applier: bool = False,
    preflush: bool = False,
    receiving: bool = False,
) -> str:
    """The statements that an administrator runs once, after CREATE USER; enough for every lock strategy.

    `receiving` is for a job whose binlog is archived.
    """
    account = f"'{user}'@'{host}'"
    needed = _needed(flavour, stop_applier=stop_applier, preflush=preflush)
    needed = (*needed, _RECEIVING) if receiving else needed
    levels = dict.fromkeys(privilege.level for privilege in needed)
    lines = [f"GRANT {_names(needed, level)} ON {level} TO {account};" for level in levels]
    if canary:
        lines.append(f"GRANT CREATE, SELECT, INSERT, DELETE ON `{CANARY_SCHEMA}`.* TO {account};")
    return "\n".join(lines) + "\n"


def _names(needed: Sequence[Privilege], level: str) -> str:
    return ", ".join(privilege.name for privilege in needed if privilege.level == level)


def _needed(flavour: Flavour, *, stop_applier: bool, preflush: bool) -> tuple[Privilege, ...]:
    stopping = (_STOPPING[flavour],) if stop_applier else ()
    flushing = (_FLUSHING[flavour],) if preflush else ()
    return (*_NEEDED[flavour], *stopping, *flushing)


def _has(session: Session, privilege: Privilege) -> bool:
    """True too where this server does not know what the privilege is for."""
    try:
        if privilege.probe:
            session.query(privilege.probe)
        else:
            replica_status(session)
    except StatementError as error:
        if error.denied:
            return False
        if not error.unknown_here and error.number not in privilege.answers:
            raise
    return True
