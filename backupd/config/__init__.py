"""The configuration: one TOML file as frozen, typed values.

Knows: what may be configured, and everything that is wrong with a file, at once. Refuses to know a secret:
`backupd.config.secrets` finds one when a connection is opened.

Its names are imported when they are first asked for: who needs one light module need not wait for the whole schema.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backupd.config.binlog import BinlogConfig
    from backupd.config.catalogue import CatalogueConfig
    from backupd.config.documents import DEFAULT_PATH, locate
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
    from backupd.config.reading import load
    from backupd.config.retention import RetentionConfig, TargetRetentionConfig
    from backupd.config.schema import (
        BackupScheduleConfig,
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
else:  # which mypy does not see: it would take any name for one of them
    _HOMES = ("documents", "catalogue", "reading", "schema", "targets", "notifications")
    _HOMES += ("retention", "drill_checks", "binlog", "fields")

    def __getattr__(name: str) -> object:
        for home in _HOMES if name in __all__ else ():
            names = vars(import_module(f"{__name__}.{home}"))
            if name in names:
                return globals().setdefault(name, names[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
