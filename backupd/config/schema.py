"""What a configuration consists of: every table and key, its type, its default and its meaning, as frozen values.

Knows: the keys. Refuses to know: files, secrets, and faults' wording. A key that holds a time or a size is named for
what it means in TOML (`wait_timeout = "2s"`) and for its unit in Python (`wait_timeout_seconds`).
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WrapSerializer
from pydantic.dataclasses import dataclass

from backupd.config.fields import (
    AbsolutePath,
    Blackouts,
    BlockSize,
    ChunkSize,
    Command,
    Count,
    CowDevices,
    CowSize,
    CowStripes,
    Credential,
    Cron,
    Duration,
    FileName,
    FinishBy,
    Flag,
    FlagOrAuto,
    KeyPrefix,
    MailAddress,
    MailAddresses,
    Name,
    Number,
    ObjectSize,
    PartSize,
    Paths,
    PositiveDuration,
    ProbeFileSize,
    Rate,
    Recipients,
    SecretFile,
    SpoolSize,
    TargetNames,
    Text,
    Url,
    Variable,
    WebAddress,
    WholeSeconds,
    Zone,
)
from backupd.vocabulary.schedule import Activity, NoticeKind
from backupd.vocabulary.volumes import AUTO

_TABLE = ConfigDict(
    extra="forbid",
    validate_by_name=True,  # in Python; `load` reads TOML's spelling only
    validate_by_alias=True,
    hide_input_in_errors=True,  # a secret may stand where it does not belong
    allow_inf_nan=False,
)


def _key(name: str) -> Any:
    return Field(validation_alias=name, serialization_alias=name)


# The key of the table itself, `[hosts.NAME]`; never a key inside it.
_OwnName = Annotated[Name, Field(exclude=True)]


def _with_names(tables: object) -> object:
    if not isinstance(tables, Mapping):
        return tables
    return {key: {**table, "name": key} if isinstance(table, dict) else table for key, table in tables.items()}


_NAMED = BeforeValidator(_with_names)
_FROZEN = AfterValidator(MappingProxyType)
_THAWED = WrapSerializer(lambda tables, serialize: serialize(dict(tables)))


class LockStrategy(StrEnum):
    """Ways of locking a server."""

    AUTO = "auto"
    FTWRL = "ftwrl"
    BACKUP_STAGE = "backup-stage"
    NONE = "none"


class TargetKind(StrEnum):
    """Kinds of places where backups live.

    What is stored on another machine may be read there by somebody else; of a kind that is not said to be on this one
    that is taken for granted. Who serves an NFS folder is the administrator's business.
    """

    on_this_machine: bool

    def __new__(cls, name: str, on_this_machine: bool = False) -> Self:
        """Remote, unless it says otherwise."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.on_this_machine = on_this_machine
        return kind

    DIRECTORY = "directory", True
    SFTP = "sftp"
    S3 = "s3"


class NotificationKind(StrEnum):
    """Ways of telling somebody."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    PING = "ping"
    APPRISE = "apprise"


class MailSecurity(StrEnum):
    """How the way to a mail server is secured."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class HookPoint(StrEnum):
    """When a hook can run. Between the two of the lock nothing can."""

    BEFORE_RUN = "before-run"
    BEFORE_PREFLIGHT = "before-preflight"
    AFTER_PREFLIGHT = "after-preflight"
    BEFORE_BASELINE = "before-baseline"
    AFTER_BASELINE = "after-baseline"
    BEFORE_LOCK = "before-lock"
    AFTER_LOCK = "after-lock"
    BEFORE_SETTLE = "before-settle"
    AFTER_SETTLE = "after-settle"
    BEFORE_COPY = "before-copy"
    AFTER_COPY = "after-copy"
    BEFORE_RELEASE = "before-release"
    AFTER_RELEASE = "after-release"
    BEFORE_SEND = "before-send"
    AFTER_SEND = "after-send"
    BEFORE_VERIFY = "before-verify"
    AFTER_VERIFY = "after-verify"
    AFTER_RUN = "after-run"


class PartChecksum(StrEnum):
    """What is sent with each part of an upload for the storage to compare."""

    SHA256 = "sha256"
    CRC32 = "crc32"
    NONE = "none"


class LockMode(StrEnum):
    """S3's modes of Object Lock."""

    GOVERNANCE = "governance"
    COMPLIANCE = "compliance"


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class CatalogueConfig:
    """`[catalogue]`: the record of all runs."""

    path: AbsolutePath = Path("/var/lib/backupd/catalogue.sqlite")


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class PathsConfig:
    """`[paths]`: folders of ours on the host."""

    run: AbsolutePath = Path("/run/backupd")  # lock files and mount points
    staging: AbsolutePath = Path("/var/lib/backupd/staging")  # drills
    log: AbsolutePath = Path("/var/log/backupd")  # one file for each run


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class ServiceConfig:
    """`[service]`: the daemon, and what it shows."""

    zone: Zone | None = None  # of schedules that name none; None: this machine's
    max_runs: Annotated[Count, Field(ge=1, le=64)] = 1  # at a time on this machine
    address: Text = "127.0.0.1"
    port: Annotated[Count, Field(ge=0, le=65535)] = 9476  # 0: any free one
    token_file: SecretFile | None = None  # what a browser or Prometheus must show
    textfile: AbsolutePath | None = None  # written after each run, for node_exporter


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class RestoreConfig:
    """`[restore]`: what a restore, a drill and a clone do on this machine."""

    unconfined: Flag = False  # where the kernel has nothing to keep what is unpacked in its folder


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class HostConfig:
    """`[hosts.NAME]`: a server, who we are to it, and at most one place to find the password in."""

    name: _OwnName
    socket: AbsolutePath | None = None
    address: Text | None = None
    port: Annotated[Count, Field(ge=1, le=65535)] = 3306
    user: Text = ""  # empty: the option file names it
    tls_ca: AbsolutePath | None = None
    password_file: SecretFile | None = None
    password_env: Variable | None = None
    password_credential: Credential | None = None
    defaults_file: SecretFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class DirectoryConfig:
    """`[targets.NAME]` with `type = "directory"`: a folder on this machine, local or NFS."""

    name: _OwnName
    type: Literal[TargetKind.DIRECTORY]
    path: AbsolutePath
    sentinel: FileName | None = None  # a file that is in the folder when its file system is mounted


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class SftpConfig:
    """`[targets.NAME]` with `type = "sftp"`: a folder on another machine, over SSH."""

    name: _OwnName
    type: Literal[TargetKind.SFTP]
    address: Text
    port: Annotated[Count, Field(ge=1, le=65535)] = 22
    user: Text
    path: AbsolutePath  # on that machine
    key_file: SecretFile
    known_hosts: AbsolutePath = Path("/etc/ssh/ssh_known_hosts")
    sentinel: FileName | None = None
    timeout_seconds: Annotated[PositiveDuration, _key("timeout")] = 60.0
    outage_seconds: Annotated[PositiveDuration, _key("outage")] = 900.0
    accept_unencrypted: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class S3Config:
    """`[targets.NAME]` with `type = "s3"`: a bucket of Amazon's, or of any store that speaks the same protocol."""

    name: _OwnName
    type: Literal[TargetKind.S3]
    bucket: Text
    prefix: KeyPrefix = ""
    endpoint: Url | None = None  # None: Amazon's
    accept_http: Flag = False
    region: Text | None = None
    credentials_file: SecretFile | None = None  # None: where the AWS tools look too
    profile: Text | None = None
    ca: AbsolutePath | None = None
    part_size: PartSize = 16 << 20  # at least; more where the backup needs it
    parts_in_flight: Annotated[Count, Field(ge=1, le=32)] = 4
    checksum: PartChecksum = PartChecksum.SHA256
    lock_mode: LockMode | None = None  # None: without Object Lock
    lock_seconds: Annotated[PositiveDuration, _key("lock_for")] = 7 * 86400.0
    timeout_seconds: Annotated[PositiveDuration, _key("timeout")] = 60.0
    outage_seconds: Annotated[PositiveDuration, _key("outage")] = 900.0
    accept_unencrypted: Flag = False


TargetConfig = DirectoryConfig | SftpConfig | S3Config


_ALARMS = (
    NoticeKind.FAILED,
    NoticeKind.MISSED,
    NoticeKind.ATTENTION,
    NoticeKind.RECOVERED,
    NoticeKind.DRILL_OVERDUE,
)
_ENDINGS = (
    NoticeKind.STARTED,
    NoticeKind.SUCCEEDED,
    NoticeKind.ATTENTION,
    NoticeKind.RECOVERED,
    NoticeKind.FAILED,
    NoticeKind.MISSED,
)


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class MailConfig:
    """`[notifications.NAME]` with `type = "mail"`: a mail, through a server that takes it."""

    name: _OwnName
    type: Literal[NotificationKind.MAIL]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()  # every one when empty; the same below
    address: Text = "localhost"
    port: Annotated[Count, Field(ge=1, le=65535)] | None = None  # None: 587, 465 with tls, 25 with none
    security: MailSecurity = MailSecurity.STARTTLS
    ca: AbsolutePath | None = None
    user: Text | None = None  # None: the server asks nobody
    password_file: SecretFile | None = None
    sender: MailAddress
    recipients: MailAddresses


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class WebhookConfig:
    """`[notifications.NAME]` with `type = "webhook"`: one JSON document, to a program that listens."""

    name: _OwnName
    type: Literal[NotificationKind.WEBHOOK]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()
    url: WebAddress | None = None
    url_file: SecretFile | None = None
    token_file: SecretFile | None = None
    ca: AbsolutePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class PingConfig:
    """`[notifications.NAME]` with `type = "ping"`: to a watcher that misses what does not come, as healthchecks.io."""

    name: _OwnName
    type: Literal[NotificationKind.PING]
    on: tuple[NoticeKind, ...] = _ENDINGS
    jobs: tuple[Text, ...] = ()
    url: WebAddress | None = None
    url_file: SecretFile | None = None
    ca: AbsolutePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class AppriseConfig:
    """`[notifications.NAME]` with `type = "apprise"`: whatever that package can reach."""

    name: _OwnName
    type: Literal[NotificationKind.APPRISE]
    on: tuple[NoticeKind, ...] = _ALARMS
    jobs: tuple[Text, ...] = ()
    urls_file: SecretFile


NotificationConfig = MailConfig | WebhookConfig | PingConfig | AppriseConfig


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class LockConfig:
    """`[jobs.NAME.lock]`: how the server is asked to hold still, and when to stop asking."""

    strategy: LockStrategy = LockStrategy.AUTO
    wait_timeout_seconds: Annotated[WholeSeconds, _key("wait_timeout")] = 2.0
    tries: Annotated[Count, Field(ge=1)] = 10
    pause_seconds: Annotated[Duration, _key("pause")] = 5.0
    hold_budget_seconds: Annotated[PositiveDuration, _key("hold_budget")] = 10.0
    blocker_age_seconds: Annotated[PositiveDuration, _key("blocker_age")] = 10.0
    stop_applier: Flag = False  # of a replica, from before the lock until the snapshot exists
    temporary_tables_wait_seconds: Annotated[Duration, _key("temporary_tables_wait")] = 300.0  # of a replica's applier
    preflush: Flag = False  # the server writes its dirty pages before the lock
    preflush_wait_seconds: Annotated[PositiveDuration, _key("preflush_wait")] = 60.0  # at most, until few are left


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class SnapshotConfig:
    """`[jobs.NAME.snapshot]`: the snapshot's COW area."""

    size: CowSize = AUTO
    chunk_size: ChunkSize = AUTO
    pvs: CowDevices = ()  # anywhere in the volume group when empty; auto: where a probe found it best
    stripes: CowStripes = AUTO  # PVs that it is striped over; auto: linear, unless a probe found stripes better
    extend: Flag = True  # while it fills, where there is room


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class SettleConfig:
    """`[jobs.NAME.settle]`: how the write penalty is measured, and when it is worth paying."""

    enabled: Flag = True
    probe: FlagOrAuto = AUTO  # "auto": where waiting for what it says can pay
    window_seconds: Annotated[WholeSeconds, _key("window")] = 1.0
    duty: Annotated[Number, Field(gt=0, le=0.5)] = 0.1  # share of the time that probe windows take
    baseline_windows: Annotated[Count, Field(ge=1)] = 3
    file_size: ProbeFileSize = 8 << 20
    block_size: BlockSize = 16 << 10
    threads: Annotated[Count, Field(ge=1)] = 1
    threshold: Annotated[Number, Field(ge=1)] = 1.25  # baseline ÷ window
    windows: Annotated[Count, Field(ge=1)] = 3  # in a row
    plateau_windows: Annotated[Count, Field(ge=2)] = 6  # over which a penalty that has not fallen is as low as it gets
    plateau_looks: Annotated[Count, Field(ge=2)] = 60  # the same without a probe: looks at the counters, one a second
    quiet_share: Annotated[Number, Field(ge=0, le=1)] = 0.2  # of the server's first writes' peak: they have died down
    patience: Annotated[Number, Field(ge=0)] = 1.0  # the longest wait ÷ what the copy is expected to take
    max_wait_seconds: Annotated[Duration, _key("max_wait")] = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class LimitsConfig:
    """`[jobs.NAME.limits]`: what the server may suffer before the backup is given up."""

    max_penalty: Annotated[Number, Field(gt=1)] | None = None  # baseline ÷ window
    max_replica_lag_seconds: Annotated[PositiveDuration | None, _key("max_replica_lag")] = None
    max_cow_fill: Annotated[Number, Field(gt=0, le=1)] = 0.9
    max_latency: Annotated[Number, Field(gt=1)] | None = None  # of a write: times what it takes with the snapshot alone
    max_penalty_seconds: PositiveDuration | None = None  # of the server's writing that the copy may take away


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class CopyConfig:
    """`[jobs.NAME.copy]`: how the snapshot is streamed to the target."""

    streams: Annotated[Count, Field(ge=0, le=16)] = 1  # 0: one per core
    object_size: ObjectSize = 128 << 30  # plain bytes; a larger file makes its object larger
    level: Annotated[Count, Field(ge=1, le=19)] = 1  # zstd's
    threads: Annotated[Count, Field(ge=0)] = 1  # 0: one per core
    max_rate: Rate | None = None  # bytes a second read from the snapshot, or from the spool
    must_finish_by: FinishBy | None = None
    spool: AbsolutePath | None = None  # a folder on other disks; None: the snapshot lives until all is sent
    spool_size: SpoolSize | None = None  # None: what the file system has room for
    include_binlogs: Flag = False
    option_files: Paths = ()  # stored without the secrets in them


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class EncryptionConfig:
    """`[jobs.NAME.encryption]`: who can read the backups."""

    recipients: Recipients = ()  # age's public keys; everybody where there is none


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class RetentionConfig:
    """`[jobs.NAME.retention]`: how many backups are kept, and of which kind."""

    keep_last: Annotated[Count, Field(ge=1)] = 7
    daily: Annotated[Count, Field(ge=0)] = 0
    weekly: Annotated[Count, Field(ge=0)] = 0
    monthly: Annotated[Count, Field(ge=0)] = 0
    yearly: Annotated[Count, Field(ge=0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class ScheduleConfig:
    """`[jobs.NAME.schedules.ACTIVITY]`: when it is due, how late it may begin, and when it may not."""

    cron: Cron
    zone: Zone | None = None  # None: the service's
    start_within_seconds: Annotated[PositiveDuration, _key("start_within")] = 4 * 3600.0  # later ones are missed
    spread_seconds: Annotated[Duration, _key("spread")] = 0.0  # a fixed part of it is added to each time
    blackout: Blackouts = ()


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class SchedulesConfig:
    """`[jobs.NAME.schedules]`: what is done by schedule; nothing of which there is no table."""

    backup: ScheduleConfig | None = None
    probe: ScheduleConfig | None = None
    drill: ScheduleConfig | None = None
    verify: ScheduleConfig | None = None
    prune: ScheduleConfig | None = None

    def items(self) -> tuple[tuple[Activity, ScheduleConfig], ...]:
        """Those that there are."""
        found = ((activity, getattr(self, activity.value)) for activity in Activity)
        return tuple((activity, schedule) for activity, schedule in found if schedule is not None)


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class HookConfig:
    """`[jobs.NAME.hooks.NAME]`: a program that runs before or after something, and may end the run."""

    name: _OwnName
    when: Annotated[tuple[HookPoint, ...], Field(min_length=1)]
    command: Command
    timeout_seconds: Annotated[PositiveDuration, _key("timeout")] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class VerifyConfig:
    """`[jobs.NAME.verify]`: in how many rounds `backupd verify --job` reads each copy once."""

    rounds: Annotated[Count, Field(ge=1, le=1000)] = 1


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class JobConfig:
    """`[jobs.NAME]`: which host goes to which target, how often, and under which conditions."""

    name: _OwnName
    host: Text
    targets: TargetNames
    every_seconds: Annotated[PositiveDuration, _key("every")] = 86400.0
    canary: Flag = False
    lock: LockConfig = LockConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    settle: SettleConfig = SettleConfig()
    limits: LimitsConfig = LimitsConfig()
    copy: CopyConfig = CopyConfig()
    encryption: EncryptionConfig = EncryptionConfig()
    retention: RetentionConfig = RetentionConfig()
    verify: VerifyConfig = VerifyConfig()
    schedules: SchedulesConfig = SchedulesConfig()
    hooks: Annotated[Mapping[Name, HookConfig], _NAMED, _FROZEN, _THAWED] = Field(default_factory=dict)
    drill_within_seconds: Annotated[PositiveDuration | None, _key("drill_within")] = (
        None  # a proof that is older: alarm
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=_TABLE)
class Configuration:
    """The whole file."""

    catalogue: CatalogueConfig = CatalogueConfig()
    paths: PathsConfig = PathsConfig()
    service: ServiceConfig = ServiceConfig()
    restore: RestoreConfig = RestoreConfig()
    hosts: Annotated[Mapping[Name, HostConfig], _NAMED, _FROZEN, _THAWED] = Field(default_factory=dict)
    targets: Annotated[
        Mapping[Name, Annotated[TargetConfig, Field(discriminator="type")]], _NAMED, _FROZEN, _THAWED
    ] = Field(default_factory=dict)
    notifications: Annotated[
        Mapping[Name, Annotated[NotificationConfig, Field(discriminator="type")]], _NAMED, _FROZEN, _THAWED
    ] = Field(default_factory=dict)
    jobs: Annotated[Mapping[Name, JobConfig], _NAMED, _FROZEN, _THAWED] = Field(default_factory=dict)
