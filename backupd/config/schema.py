"""What a configuration consists of: its tables and keys, their types, defaults and meanings, as frozen values.

Knows: the keys; some tables are in modules of their own, such as those of targets, and faults are worded in `wording`.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from backupd.config.binlog import BinlogConfig
from backupd.config.catalogue import CatalogueConfig
from backupd.config.drill_checks import DrillConfig
from backupd.config.fields import (
    AbsolutePath,
    BlockSize,
    ChunkSize,
    Command,
    CowPvs,
    CowSizeOrAuto,
    CowStripes,
    Credential,
    Duration,
    Flag,
    FlagOrAuto,
    Name,
    Number,
    ObjectSize,
    PagesAddress,
    Paths,
    PositiveDuration,
    ProbeFileSize,
    Rate,
    Recipients,
    SecretFile,
    SpoolSize,
    TargetNames,
    Text,
    Variable,
    WholeNumber,
    WholeSeconds,
)
from backupd.config.notifications import NotificationConfig
from backupd.config.proving import ProofsConfig, ProveConfig
from backupd.config.retention import RetentionConfig
from backupd.config.table import FROZEN, NAMED, TABLE, THAWED, OwnName, key
from backupd.config.targets import TargetConfig
from backupd.config.times import Blackouts, Cron, FinishBy, Zone
from backupd.vocabulary.schedule import Activity
from backupd.vocabulary.volumes import AUTO, PvsGone


class LockStrategy(StrEnum):
    """Ways of locking a server."""

    AUTO = "auto"
    FTWRL = "ftwrl"
    BACKUP_STAGE = "backup-stage"
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


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class PathsConfig:
    """`[paths]`: folders of ours on the host."""

    run: AbsolutePath = Path("/run/backupd")  # lock files and mount points
    staging: AbsolutePath = Path("/var/lib/backupd/staging")  # drills
    log: AbsolutePath = Path("/var/log/backupd")  # one file for each run


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ServiceConfig:
    """`[service]`: the daemon, and what it shows."""

    zone: Zone | None = None  # of schedules that name none; None: this machine's
    max_runs: Annotated[WholeNumber, Field(ge=1, le=64)] = 1  # at a time on this machine
    address: Text = "127.0.0.1"
    port: Annotated[WholeNumber, Field(ge=0, le=65535)] = 9476  # 0: any free one
    public_url: PagesAddress | None = None  # at which people see the pages; notifications link to them
    token_file: SecretFile | None = None  # what a browser or Prometheus must show
    textfile: AbsolutePath | None = None  # written after each run, for node_exporter
    digest: Cron | None = None  # when people are told how all jobs stand; None: never
    storage_full_within_seconds: Annotated[PositiveDuration, key("storage_full_within")] = 14 * 86400.0  # an alarm


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class RestoreConfig:
    """`[restore]`: what a restore, a drill and a clone do on this machine."""

    unconfined: Flag = False  # where the kernel has nothing to keep what is unpacked in its folder


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class EvidenceConfig:
    """`[evidence]`: who signs what `backupd report --evidence` writes."""

    signing_key: SecretFile | None = None  # OpenSSH's, without a passphrase; None: what is written is not signed


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class HostConfig:
    """`[hosts.NAME]`: a server, who we are to it, and at most one place to find the password in."""

    name: OwnName
    socket: AbsolutePath | None = None
    address: Text | None = None
    port: Annotated[WholeNumber, Field(ge=1, le=65535)] = 3306
    user: Text = ""  # empty: the option file names it
    tls_ca: AbsolutePath | None = None
    password_file: SecretFile | None = None
    password_env: Variable | None = None
    password_credential: Credential | None = None
    defaults_file: SecretFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class LockConfig:
    """`[jobs.NAME.lock]`: how the server is asked to hold still, and when to stop asking."""

    strategy: LockStrategy = LockStrategy.AUTO
    wait_timeout_seconds: Annotated[WholeSeconds, key("wait_timeout")] = 2.0
    tries: Annotated[WholeNumber, Field(ge=1)] = 10
    pause_seconds: Annotated[Duration, key("pause")] = 5.0
    hold_budget_seconds: Annotated[PositiveDuration, key("hold_budget")] = 10.0
    blocker_age_seconds: Annotated[PositiveDuration, key("blocker_age")] = 10.0
    stop_applier: Flag = False  # of a replica, from before the lock until the snapshot exists
    temporary_tables_wait_seconds: Annotated[Duration, key("temporary_tables_wait")] = 300.0  # of a replica's applier
    preflush: Flag = False  # the server writes its dirty pages before the lock
    preflush_wait_seconds: Annotated[PositiveDuration, key("preflush_wait")] = 60.0  # at most, until few are left


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class SnapshotConfig:
    """`[jobs.NAME.snapshot]`: the snapshot's COW area."""

    size: CowSizeOrAuto = AUTO
    chunk_size: ChunkSize = AUTO
    pvs: CowPvs = ()  # anywhere in the volume group when empty; auto: where a probe found it best
    pvs_gone: PvsGone = PvsGone.ANYWHERE  # what a run does when one of them cannot be used
    stripes: CowStripes = AUTO  # PVs that it is striped over; auto: linear, unless a probe found stripes better
    extend: Flag = True  # while it fills, where there is room


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class SettleConfig:
    """`[jobs.NAME.settle]`: how the write penalty is measured, and when it is worth paying."""

    enabled: Flag = True
    probe: FlagOrAuto = AUTO  # "auto": where waiting for what it says can pay
    window_seconds: Annotated[WholeSeconds, key("window")] = 1.0
    duty: Annotated[Number, Field(gt=0, le=0.5)] = 0.1  # share of the time that probe windows take
    baseline_windows: Annotated[WholeNumber, Field(ge=1)] = 3
    file_size: ProbeFileSize = 8 << 20
    block_size: BlockSize = 16 << 10
    threads: Annotated[WholeNumber, Field(ge=1)] = 1
    threshold: Annotated[Number, Field(ge=1)] = 1.25  # baseline ÷ window
    windows: Annotated[WholeNumber, Field(ge=1)] = 3  # in a row
    plateau_windows: Annotated[WholeNumber, Field(ge=2)] = 6  # over which a penalty that did not fall is at its lowest
    plateau_looks: Annotated[WholeNumber, Field(ge=2)] = 60  # without a probe: looks at the counters, one a second
    quiet_share: Annotated[Number, Field(ge=0, le=1)] = 0.2  # of the server's first writes' peak: they have died down
    patience: Annotated[Number, Field(ge=0)] = 1.0  # the longest wait ÷ what the copy is expected to take
    max_wait_seconds: Annotated[Duration, key("max_wait")] = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class LimitsConfig:
    """`[jobs.NAME.limits]`: what the server may suffer before the backup is aborted."""

    max_penalty: Annotated[Number, Field(gt=1)] | None = None  # baseline ÷ window
    max_replica_lag_seconds: Annotated[PositiveDuration | None, key("max_replica_lag")] = None
    max_cow_fill: Annotated[Number, Field(gt=0, le=1)] = 0.9
    max_latency: Annotated[Number, Field(gt=1)] | None = None  # of a write: times what it takes with the snapshot alone
    max_penalty_seconds: PositiveDuration | None = None  # of the server's writing that the copy may take away


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class CopyConfig:
    """`[jobs.NAME.copy]`: how the snapshot is streamed to the target."""

    streams: Annotated[WholeNumber, Field(ge=0, le=16)] = 1  # 0: one per core
    object_size: ObjectSize = 128 << 30  # plain bytes; a larger file makes its object larger
    level: Annotated[WholeNumber, Field(ge=1, le=19)] = 1  # zstd's
    threads: Annotated[WholeNumber, Field(ge=0)] = 1  # 0: one per core
    max_rate: Rate | None = None  # bytes a second read from the snapshot, or from the spool
    must_finish_by: FinishBy | None = None
    spool: AbsolutePath | None = None  # a folder on other disks; None: the snapshot lives until all is sent
    spool_size: SpoolSize | None = None  # None: what the file system has room for
    include_binlogs: Flag = False
    option_files: Paths = ()  # stored without the secrets in them


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class EncryptionConfig:
    """`[jobs.NAME.encryption]`: who can read the backups."""

    recipients: Recipients = ()  # age's public keys; everybody where there is none


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ScheduleConfig:
    """`[jobs.NAME.schedules.ACTIVITY]`: when it is due, how late it may begin, and when it may not."""

    cron: Cron
    zone: Zone | None = None  # None: the service's
    start_within_seconds: Annotated[PositiveDuration, key("start_within")] = 4 * 3600.0  # later ones are missed
    spread_seconds: Annotated[Duration, key("spread")] = 0.0  # a fixed part of it is added to each time
    blackout: Blackouts = ()


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class BackupScheduleConfig(ScheduleConfig):
    """`[jobs.NAME.schedules.backup]`: when it is due, how late it may begin, when it may not, how often it is tried
    again where its failure may pass, and when it is left to a fleet."""

    retries: Annotated[WholeNumber, Field(ge=0, le=20)] = 0
    retry_after_seconds: Annotated[PositiveDuration, key("retry_after")] = 900.0  # from the end of one try to the next
    fallback_after_seconds: Annotated[PositiveDuration | None, key("fallback_after")] = (
        None  # of a fleet's control host
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class SchedulesConfig:
    """`[jobs.NAME.schedules]`: what is done by schedule; nothing of which there is no table."""

    backup: BackupScheduleConfig | None = None
    probe: ScheduleConfig | None = None
    drill: ScheduleConfig | None = None
    verify: ScheduleConfig | None = None
    prune: ScheduleConfig | None = None
    check: ScheduleConfig | None = None

    def items(self) -> tuple[tuple[Activity, ScheduleConfig], ...]:
        """Those that there are."""
        found = ((activity, getattr(self, activity.value)) for activity in Activity)
        return tuple((activity, schedule) for activity, schedule in found if schedule is not None)


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class HookConfig:
    """`[jobs.NAME.hooks.NAME]`: a program that runs before or after something, and may end the run."""

    name: OwnName
    when: Annotated[tuple[HookPoint, ...], Field(min_length=1)]
    command: Command
    timeout_seconds: Annotated[PositiveDuration, key("timeout")] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class VerifyConfig:
    """`[jobs.NAME.verify]`: in how many rounds `backupd verify --job` reads each copy once."""

    rounds: Annotated[WholeNumber, Field(ge=1, le=1000)] = 1


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class JobConfig:
    """`[jobs.NAME]`: which host goes to which target, how often, and under which conditions."""

    name: OwnName
    host: Text
    targets: TargetNames
    every_seconds: Annotated[PositiveDuration, key("every")] = 86400.0
    canary: Flag = False
    lock: LockConfig = LockConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    settle: SettleConfig = SettleConfig()
    limits: LimitsConfig = LimitsConfig()
    copy: CopyConfig = CopyConfig()
    encryption: EncryptionConfig = EncryptionConfig()
    binlog: BinlogConfig | None = None
    retention: RetentionConfig = RetentionConfig()
    verify: VerifyConfig = VerifyConfig()
    drill: DrillConfig = DrillConfig()
    schedules: SchedulesConfig = SchedulesConfig()
    hooks: Annotated[Mapping[Name, HookConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
    drill_within_seconds: Annotated[PositiveDuration | None, key("drill_within")] = None  # a proof that is older: alarm
    restore_within_seconds: Annotated[PositiveDuration | None, key("restore_within")] = None  # from a copy


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class Configuration:
    """The whole file."""

    catalogue: CatalogueConfig = CatalogueConfig()
    paths: PathsConfig = PathsConfig()
    service: ServiceConfig = ServiceConfig()
    restore: RestoreConfig = RestoreConfig()
    evidence: EvidenceConfig = EvidenceConfig()
    prove: ProveConfig = ProveConfig()
    proofs: ProofsConfig = ProofsConfig()
    hosts: Annotated[Mapping[Name, HostConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)
    targets: Annotated[Mapping[Name, Annotated[TargetConfig, Field(discriminator="type")]], NAMED, FROZEN, THAWED] = (
        Field(default_factory=dict)
    )
    notifications: Annotated[
        Mapping[Name, Annotated[NotificationConfig, Field(discriminator="type")]], NAMED, FROZEN, THAWED
    ] = Field(default_factory=dict)
    jobs: Annotated[Mapping[Name, JobConfig], NAMED, FROZEN, THAWED] = Field(default_factory=dict)


def archived_twice(configuration: Configuration) -> dict[str, list[str]]:
    """The hosts whose binlog more than one job archives, each with these jobs."""
    jobs: dict[str, list[str]] = {}
    for job in configuration.jobs.values():
        if job.binlog is not None:
            jobs.setdefault(job.host, []).append(job.name)
    return {host: names for host, names in jobs.items() if len(names) > 1}
