"""The configuration: one TOML file as frozen, typed values.

Knows: what may be configured, and everything that is wrong with a file, at once. Refuses to know what the values are
for, and never holds a secret: `backupd.config.secrets` finds one when a connection is opened.
"""

from backupd.config.fields import SnapshotSize
from backupd.config.reading import DEFAULT_PATH, load, locate
from backupd.config.schema import (
    CatalogueConfig,
    Configuration,
    CopyConfig,
    DirectoryConfig,
    EncryptionConfig,
    HostConfig,
    JobConfig,
    LimitsConfig,
    LockConfig,
    LockMode,
    LockStrategy,
    PartChecksum,
    PathsConfig,
    RetentionConfig,
    S3Config,
    ScheduleConfig,
    SchedulesConfig,
    ServiceConfig,
    SettleConfig,
    SftpConfig,
    SnapshotConfig,
    TargetConfig,
    TargetKind,
)

__all__ = [
    "DEFAULT_PATH",
    "CatalogueConfig",
    "Configuration",
    "CopyConfig",
    "DirectoryConfig",
    "EncryptionConfig",
    "HostConfig",
    "JobConfig",
    "LimitsConfig",
    "LockConfig",
    "LockMode",
    "LockStrategy",
    "PartChecksum",
    "PathsConfig",
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
    "load",
    "locate",
]
