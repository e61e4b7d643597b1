"""The configuration: one TOML file as frozen, typed values.

Knows: what may be configured, and everything that is wrong with a file, at once. Refuses to know a secret:
`backupd.config.secrets` finds one when a connection is opened.
"""

from backupd.config.binlog import BinlogConfig
from backupd.config.drill_checks import DrillCheckConfig, DrillConfig, ProofCheckConfig
from backupd.config.fields import SnapshotSize
from backupd.config.notifications import (
    AppriseConfig,
    MailConfig,
    MailSecurity,
    NotificationConfig,
    NotificationKind,
    PingConfig,
    WebhookConfig,
)
from backupd.config.reading import DEFAULT_PATH, load, locate
from backupd.config.retention import RetentionConfig, TargetRetentionConfig
from backupd.config.schema import (
    BackupScheduleConfig,
    CatalogueConfig,
    Configuration,
    CopyConfig,
    EncryptionConfig,
    HookConfig,
    HookPoint,
    HostConfig,
    JobConfig,
    LimitsConfig,
    LockConfig,
    LockStrategy,
    PathsConfig,
    ScheduleConfig,
    SchedulesConfig,
    ServiceConfig,
    SettleConfig,
    SnapshotConfig,
    archived_twice,
)
from backupd.config.targets import (
    AzureConfig,
    DirectoryConfig,
    GcsConfig,
    LockMode,
    PartChecksum,
    S3Config,
    SftpConfig,
    TargetConfig,
    TargetKind,
)

__all__ = [
    "DEFAULT_PATH",
    "AppriseConfig",
    "AzureConfig",
    "BackupScheduleConfig",
    "BinlogConfig",
    "CatalogueConfig",
    "Configuration",
    "CopyConfig",
    "DirectoryConfig",
    "DrillCheckConfig",
    "DrillConfig",
    "EncryptionConfig",
    "GcsConfig",
    "HookConfig",
    "HookPoint",
    "HostConfig",
    "JobConfig",
    "LimitsConfig",
    "LockConfig",
    "LockMode",
    "LockStrategy",
    "MailConfig",
    "MailSecurity",
    "NotificationConfig",
    "NotificationKind",
    "PartChecksum",
    "PathsConfig",
    "PingConfig",
    "ProofCheckConfig",
    "RetentionConfig",
    "S3Config",
    "ScheduleConfig",
    "SchedulesConfig",
    "ServiceConfig",
    "SettleConfig",
    "SftpConfig",
    "SnapshotConfig",
    "SnapshotSize",
    "TargetConfig",
    "TargetKind",
    "TargetRetentionConfig",
    "WebhookConfig",
    "archived_twice",
    "load",
    "locate",
]
