"""What the settle gate goes by, as a job's tables say it: the one place where the two meet."""

from backupd.config import LimitsConfig, SettleConfig
from backupd.policy.settle_gate import SettleLimits


def gate_limits(settle: SettleConfig, limits: LimitsConfig) -> SettleLimits:
    """`[jobs.NAME.settle]` and `[jobs.NAME.limits]`, in the gate's words."""
    return SettleLimits(
        threshold=settle.threshold,
        windows=settle.windows,
        max_wait_seconds=settle.max_wait_seconds,
        patience=settle.patience,
        plateau_windows=settle.plateau_windows,
        plateau_looks=settle.plateau_looks,
        quiet_share=settle.quiet_share,
        max_penalty=limits.max_penalty,
        max_penalty_seconds=limits.max_penalty_seconds,
        max_replica_lag_seconds=limits.max_replica_lag_seconds,
        max_cow_fill=limits.max_cow_fill,
        enabled=settle.enabled,
    )
