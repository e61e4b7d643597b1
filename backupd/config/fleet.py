"""What `/etc/backupd/fleet.toml` consists of: tables and keys, their types, defaults and meanings, as frozen values.

Knows: the keys. What takes two of them to see is in `fleet_rules`, the file itself in `fleet_reading`.
"""

import re
from collections.abc import Mapping
from datetime import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PlainValidator
from pydantic.dataclasses import dataclass

from backupd.config.fields import (
    AbsolutePath,
    Command,
    Credential,
    Duration,
    Flag,
    Name,
    PagesAddress,
    PositiveDuration,
    Rate,
    SecretFile,
    Text,
    Variable,
    WholeNumber,
    in_editors,
)
from backupd.config.table import FROZEN, NAMED, TABLE, THAWED, OwnName, key
from backupd.config.times import Blackouts, ClockTime, Windows, Zone
from backupd.vocabulary.faults import BadValue, quoted
from backupd.vocabulary.schedule import Blackout

DEFAULT_POLICY: Final = "default"  # it is there whether or not the file has a table for it
DEFAULT_JOB: Final = "nightly"
SSH_PORT: Final = 22
MOST_RETRIES: Final = 8  # a try's number is one digit of its run id
NIGHTS = Blackout(frozenset(range(7)), time(21), time(6))
_MEMBERS_HINT = 'write "least-lag", "all", or the names of hosts in the order of preference: ["db2", "db1"]'
HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)
_POSTGRESQL = re.compile(
    r"postgresql://(?:(?P<user>[A-Za-z0-9_.%-]+)(?P<password>:[^@/]*)?@)?"
    r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])?(?::[0-9]{1,5})?/[A-Za-z0-9_-]{1,63}(?:\?[A-Za-z0-9_./:=&%-]*)?",
    re.ASCII,
)
_DATABASE_HINT = (
    'write "postgresql://backupd@127.0.0.1/backupd", or an absolute path for an SQLite file, which is enough for a try'
)


class MemberChoice(StrEnum):
    """Which members of a cluster are backed up, where they are not named."""

    LEAST_LAG = "least-lag"  # one: of the replicas below the limit the one that is least behind
    ALL = "all"  # each of them, one after the other


class RetryBy(StrEnum):
    """Which member makes the next try."""

    ANOTHER = "another"  # one that has not tried, where one is fit
    SAME = "same"


def _host_name(value: str) -> str:
    if not HOST_NAME.fullmatch(value):
        raise BadValue(f"{quoted(value)} is not the name of a host", "use 1 to 128 of a-z, A-Z, 0-9, ., _ and -")
    return value


def _database(value: str) -> str:
    """The message shows nothing of it: someone may have written the password into it."""
    if value.startswith("/") and "\0" not in value:
        return value
    match = _POSTGRESQL.fullmatch(value)
    if match is None:
        raise BadValue("neither the address of a PostgreSQL database nor an absolute path", _DATABASE_HINT)
    if match["password"] is not None or "password=" in value:
        raise BadValue("has a password in it", "remove it, and use password_file, password_env or password_credential")
    return value


def _member(value: object) -> MemberChoice | tuple[str, ...]:
    if isinstance(value, MemberChoice):
        return value
    if isinstance(value, str) and value in list(MemberChoice):
        return MemberChoice(value)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) for name in value):
        raise BadValue(f"{quoted(value)} does not say which member", _MEMBERS_HINT)
    if len(set(value)) < len(value):
        raise BadValue("names a host twice", "name each once, the preferred first")
    return tuple(value)


def _distinct(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(value)) < len(value):
        raise BadValue("names one twice", "name each once")
    return value


HostName = Annotated[str, AfterValidator(_host_name)]
OwnHostName = Annotated[HostName, Field(exclude=True)]  # the key of the table itself
_Database = Annotated[Text, AfterValidator(_database)]
_Member = Annotated[
    MemberChoice | tuple[str, ...],
    PlainValidator(_member),
    in_editors(["string", "array"], f"^({'|'.join(MemberChoice)})$", items={"type": "string"}, minItems=1),
]
_Members = Annotated[tuple[Text, ...], AfterValidator(_distinct)]
_Jobs = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_distinct)]
_Port = Annotated[WholeNumber, Field(ge=1, le=65535)]


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ControlConfig:
    """`[control]`: the control host: its database, its pages, how it reaches hosts, and when a night is."""

    database: _Database = "/var/lib/backupd/fleet.sqlite"  # an SQLite file, or PostgreSQL's address
    password_file: SecretFile | None = None  # at most one of these three; None of them: the database asks for none
    password_env: Variable | None = None
    password_credential: Credential | None = None
    zone: Zone = "UTC"  # of nights, windows and blackouts
    night_begins: ClockTime = time(12)  # a night lasts from then to the same time of the next day
    address: Text = "127.0.0.1"
    port: Annotated[WholeNumber, Field(ge=0, le=65535)] = 9477  # 0: any free one
    public_url: PagesAddress | None = None
    token_file: SecretFile | None = None
    notifications: AbsolutePath | None = None  # the configuration of backupd whose [notifications.NAME] are told
    user: Text = "root"  # on every host that names none
    key_file: SecretFile = Path("/etc/backupd/fleet_key")
    known_hosts: AbsolutePath = Path("/etc/ssh/ssh_known_hosts")
    poll_seconds: Annotated[PositiveDuration, key("poll")] = 15.0  # how often a host that is at work is asked
    ask_at_once: Annotated[WholeNumber, Field(ge=1, le=512)] = 32  # hosts
    connect_timeout_seconds: Annotated[PositiveDuration, key("connect_timeout")] = 10.0
    answer_timeout_seconds: Annotated[PositiveDuration, key("answer_timeout")] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class InventoryConfig:
    """`[inventory]`: hosts that somebody else lists: a command, or a file of Ansible's."""

    command: Command | None = None  # one of these two; what it prints is JSON
    file: AbsolutePath | None = None
    timeout_seconds: Annotated[PositiveDuration, key("timeout")] = 30.0  # of the command
    group: Text | None = None  # only its hosts; None: all
    cluster_variable: Text = "backupd_cluster"  # of a host or its group: the cluster that it is in
    cluster_prefix: Text = "cluster_"  # of a group's name: the rest of it is the cluster of its hosts
    last_good: AbsolutePath = Path("/var/lib/backupd/fleet-inventory.json")  # ours; used while there is no better one

    @property
    def source(self) -> str:
        """The file or the program, as people are told of it."""
        return str(self.file or (self.command or ("",))[0])


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class FleetHostConfig:
    """`[hosts.NAME]`: where a host is reached by SSH, and which cluster it is in."""

    name: OwnHostName
    address: Text | None = None  # None: its name
    port: _Port = SSH_PORT
    user: Text | None = None  # None: the control host's
    cluster: Name | None = None  # None: the one that lists it, else one of its own, under its name


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ClusterConfig:
    """`[clusters.NAME]`: hosts that have the same data, and what is done with them."""

    name: OwnName
    members: _Members = ()  # and those hosts that name this cluster
    jobs: _Jobs = (DEFAULT_JOB,)  # as its members call them
    policy: Name = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class PolicyConfig:
    """`[policies.NAME]`: which member is backed up, when, how often, and what is done when that fails."""

    name: OwnName
    member: _Member = MemberChoice.LEAST_LAG
    max_lag_seconds: Annotated[PositiveDuration, key("max_lag")] = 600.0  # a replica that is further behind is not fit
    allow_source: Flag = False  # where no replica is fit; a cluster of one host has no other
    every_seconds: Annotated[PositiveDuration, key("every")] = 86400.0
    drill_within_seconds: Annotated[PositiveDuration | None, key("drill_within")] = None
    windows: Windows = (NIGHTS,)  # in which a backup may begin
    blackout: Blackouts = ()  # in which none begins
    start_within_seconds: Annotated[PositiveDuration | None, key("start_within")] = None  # of the window's opening
    spread_seconds: Annotated[Duration, key("spread")] = 0.0
    retries: Annotated[WholeNumber, Field(ge=0, le=MOST_RETRIES)] = 2
    retry_after_seconds: Annotated[PositiveDuration, key("retry_after")] = 900.0  # doubled with each further try
    retry_by: RetryBy = RetryBy.ANOTHER


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class FleetTargetConfig:
    """`[targets.NAME]`: a target that hosts share under this name: how much it takes at a time."""

    name: OwnName
    slots: Annotated[WholeNumber, Field(ge=1, le=1000)] = 4  # backups at a time
    max_rate: Rate | None = None  # bytes a second, of all of them together; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class FleetConfiguration:
    """The whole file, with the hosts of the inventory."""

    control: ControlConfig = ControlConfig()
    inventory: InventoryConfig | None = None
    hosts: Annotated[Mapping[HostName, FleetHostConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
    clusters: Annotated[Mapping[Name, ClusterConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
    policies: Annotated[Mapping[Name, PolicyConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
    targets: Annotated[Mapping[Name, FleetTargetConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
