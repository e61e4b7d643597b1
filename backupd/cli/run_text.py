"""How runs look to a person: pure functions from the model to text. `documents` is the same for machines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backupd.report.bill_words import bill_words
from backupd.report.run_facts import outcome_of, run_facts
from backupd.report.words import columns, size
from backupd.vocabulary.instants import shown
from backupd.vocabulary.records import Check, RunDetails

if TYPE_CHECKING:  # it loads the catalogue's driver
    from backupd.operations.binlog.rolling import RolledForward
    from backupd.operations.upkeep.prune import Pruning
    from backupd.operations.upkeep.prune_work import Fate


def run_summary(run: RunDetails) -> str:
    """A run in a dozen lines: what it cost, and what is there now."""
    return columns([(f"{name}:", text) for name, text in run_facts(run)])


def bill_table(run: RunDetails) -> str:
    """What it cost the server, a line for each kind; empty where that is not known."""
    return columns([(f"{name}:", text) for name, text in bill_words(run)])


def rolled_table(rolled: "RolledForward") -> str:
    """Which moments a backup leads to, a line for each target."""
    rows = [("leads to:", f"every moment from {shown(rolled.since)} to {shown(rolled.until)}")]
    for target, until in rolled.targets:
        words = "nothing that follows this backup" if until is None else f"up to {shown(until)}"
        rows.append((f"on {target}:", words))
    return columns(rows)


def prune_table(prunings: "Sequence[Pruning]", *, dry_run: bool) -> str:
    """What is decided of every backup, and why, newest first on each target."""
    rows = [
        (
            pruning.job,
            fate.target,
            fate.decision.backup_id,
            f"{fate.at:%Y-%m-%d %H:%M}",
            size(fate.bytes_stored),
            _fate(fate, dry_run=dry_run),
            fate.decision.reason,
        )
        for pruning in prunings
        for fate in pruning.fates
    ]
    return columns([("JOB", "TARGET", "RUN", "STORED (UTC)", "SIZE", "FATE", "REASON"), *rows])


def pruned_segments_table(prunings: "Sequence[Pruning]", *, dry_run: bool) -> str:
    """How many segments of binlog archives go, and why, a line for each target and reason."""
    rows = [
        (
            pruning.job,
            fate.target,
            str(fate.segments),
            size(fate.bytes_stored),
            "remove" if dry_run else "removed" if fate.removed == fate.segments else f"{fate.removed} REMOVED",
            fate.reason,
        )
        for pruning in prunings
        for fate in pruning.segments
    ]
    return columns([("JOB", "TARGET", "SEGMENTS", "SIZE", "FATE", "REASON"), *rows])


def _fate(fate: "Fate", *, dry_run: bool) -> str:
    if fate.decision.keep:
        return "keep"
    return "remove" if dry_run else "removed" if fate.removed else "NOT REMOVED"


def drill_table(checks: Sequence[Check]) -> str:
    """The checks of a drill, a line each."""
    return columns([("ok" if check.ok else "FAILED", check.name, outcome_of(check)) for check in checks])
