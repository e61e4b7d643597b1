"""What the settle gate goes by where a test says nothing else: the configuration's defaults, without patience."""

from dataclasses import replace
from typing import Any

from backupd.config import LimitsConfig, SettleConfig
from backupd.operations.gate_limits import gate_limits
from backupd.policy.settle_gate import SettleLimits

CONFIGURED = gate_limits(SettleConfig(), LimitsConfig())


def settle_limits(**said: Any) -> SettleLimits:
    """The fields of `SettleLimits` that a test is about."""
    return replace(CONFIGURED, **{"patience": None, **said})
