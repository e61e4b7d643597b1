"""A database server: what it is, where it stands, whom it follows, and the lock that it granted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from backupd.vocabulary.escaping import Prose


class Flavour(StrEnum):
    """Whose server it is."""

    MARIADB = "mariadb"
    MYSQL = "mysql"


class Cluster(StrEnum):
    """Kinds of clusters in which a lock on one member is felt by the others."""

    GROUP_REPLICATION = "group-replication"
    GALERA = "galera"


class LoadingWay(StrEnum):
    """How a table gets into a running server."""

    TABLESPACE = "tablespace"  # its file is imported
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """How far one replication channel had *applied* (not: received) its source's binlog."""

    channel: str
    source_log_file: str  # empty: it had none, or goes by GTIDs alone
    source_log_offset: int
    gtid: Prose = ""  # MySQL breaks a long set into lines


@dataclass(frozen=True, slots=True)
class Position:
    """Where the server stood in its binlog and as a replica; all None where the binlog is off."""

    binlog_file: str | None = None
    binlog_offset: int | None = None
    gtid: Prose | None = None  # MySQL breaks a long set into lines
    replicas: tuple[ReplicaPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class DataPath:
    """A file or folder that the server writes, and whether a snapshot without it is no backup."""

    role: str  # datadir, redo, undo, doublewrite, system tablespace, aria log, tablespace, symlink, binlog, …
    path: Path
    must_share: bool  # must lie on the snapshotted volume


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What kind of server it is, and the settings that a restored copy needs to start."""

    flavour: Flavour
    version: str  # as the server says it
    version_number: tuple[int, int, int]
    datadir: Path
    socket: Path | None
    binlog_basename: Path | None  # None: the binlog is off
    binlog_expire_seconds: int | None  # None: kept indefinitely
    read_only: bool
    is_replica: bool
    redo_logging: bool
    page_size: int
    settings: Mapping[str, Prose] = field(default_factory=dict)  # server variables recorded for the drill
    cluster: Cluster | None = None  # of which it is a member


@dataclass(frozen=True, slots=True)
class Channel:
    """One replication channel of a replica, as it runs now."""

    name: str  # empty: the default one
    receiving: bool  # its I/O thread runs
    applying: bool  # its SQL thread runs
    lag_seconds: float | None  # None where it is unknown: a thread stands still
    by_gtid: bool  # it finds its place by GTID: file and offset do not matter
    until: bool  # it is to stop by itself at a position that a new START would forget


@dataclass(frozen=True, slots=True)
class Replication:
    """What a replica does beside serving its clients."""

    channels: tuple[Channel, ...]
    workers: int  # that apply in parallel; 0: the SQL thread applies by itself
    logs_updates: bool  # what it applies is in its own binlog too
    open_temporary_tables: int  # of its appliers: they are in no snapshot, and later events may need them


@dataclass(frozen=True, slots=True)
class Membership:
    """How a member is in its cluster."""

    cluster: Cluster
    members: int
    state: str  # the cluster's own word: ONLINE, Synced, Donor/Desynced, …
    primary: bool  # clients may write to it
    desynced: bool = False  # Galera's: an administrator has told the others not to wait for it


@dataclass(frozen=True, slots=True)
class Blocker:
    """A statement that has run for long and that a lock would wait behind."""

    connection_id: int
    user: str
    seconds: float
    statement: str  # cut to 100 characters


class PreflushEnd(StrEnum):
    """Why a run waited no longer for the dirty pages to be written."""

    FEW = "few"  # next to none are left
    STEADY = "steady"  # they hardly fell any more
    LIMIT = "limit"  # it had waited for as long as the job lets it


@dataclass(frozen=True, slots=True)
class Preflush:
    """What it brought to have the server write its dirty pages before the lock."""

    pages_before: int
    pages_after: int
    seconds: float
    ended: PreflushEnd


@dataclass(frozen=True, slots=True)
class LockReceipt:
    """What the lock cost, and how it was proven."""

    strategy: str
    tries: int
    wait_seconds: float  # first lock statement sent, to last one granted, over all tries
    hold_seconds: float  # last lock statement granted, to unlock returned
    proof: str  # "metadata-locks", or "session and position"; "none" where nothing proves it, or nothing was locked
    lsn: int | None = None  # InnoDB's log sequence number while locked
    position_seconds: float = 0.0  # of the hold: where the server stands was read
    flush_seconds: float = 0.0  # of the hold: the engines wrote their logs, and up to where was read
    proof_seconds: float = 0.0  # of the hold: what proves it was read, and who waited was counted
    unlock_seconds: float = 0.0  # of the hold: from the unlock's being sent for to its answer
    stalled: int | None = None  # statements of others, reads aside, under way at the unlock; None: nobody counted
