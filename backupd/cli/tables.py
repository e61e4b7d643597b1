"""How runs look to a person: pure functions from the model to text. `documents` is the same for machines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backupd.mysql import UNLOCKED
from backupd.policy.write_penalty import penalty_of
from backupd.report.bill_words import bill_words, count
from backupd.report.gate_words import gate_words
from backupd.report.words import columns, duration, instant, ratio, size
from backupd.vocabulary.penalty import SPOOL_STAGE
from backupd.vocabulary.records import Check, Drill, Phase, RunDetails, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position
from backupd.vocabulary.storage import Backup

if TYPE_CHECKING:  # it loads the catalogue's driver
    from backupd.operations.upkeep.prune import Pruning
    from backupd.operations.upkeep.prune_plan import Fate


def run_summary(run: RunDetails) -> str:
    """A run in a dozen lines: what it cost, and what is there now."""
    return columns([(f"{name}:", text) for name, text in run_facts(run)])


def bill_table(run: RunDetails) -> str:
    """What it cost the server, a line for each kind; empty where that is not known."""
    return columns([(f"{name}:", text) for name, text in bill_words(run)])


def run_facts(run: RunDetails) -> list[tuple[str, str]]:
    """Name and words of everything worth knowing of one run, in the order in which it happened."""
    phases, penalty = run.phases, penalty_of(run.samples)
    facts = [("run", run.run_id), ("job", f"{run.job} on host {run.host}"), ("machine", run.machine)]
    facts += [("status", run.status.value), ("started", f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC")]
    if run.lock is not None:
        facts.append(("lock", _lock(run.lock, phases.get(Phase.SNAPSHOT))))
    if run.position is not None and run.position.binlog_file is not None:
        facts.append(("position", _position(run.position, derived=run.derived)))
    if run.snapshot is not None:
        facts.append(("volume", _volume(run.snapshot)))
        facts.append(("chunks", _chunks(run.snapshot)))
        facts.append(_area(run.snapshot))
        if run.snapshot.size_reason:
            facts.append(("its size", run.snapshot.size_reason))
        if run.snapshot.redo_left_out:
            facts.append(("redo log", f"{size(run.snapshot.redo_left_out)} not stored: recovery does not need it"))
    if penalty.baseline_iops is not None:
        facts.append(
            (
                "write penalty",
                f"{ratio(penalty.initial_ratio)} at first, {ratio(penalty.settled_ratio)} when the copy started"
                f" (baseline {penalty.baseline_iops:.0f} IOPS)",
            )
        )
    if run.verdict is not None:
        facts.append(("gate", gate_words(run.verdict)))
    facts += _spool(run)
    if run.backups:
        facts += _backups(run)
    if run.error is not None:
        facts.append(("error", run.error.message))
        if run.error.hint:
            facts.append(("hint", run.error.hint))
    if run.pin is not None:
        facts.append(("pinned", f"{run.pin.note}, since {instant(run.pin.at)}"))
    facts += [("attention", text) for text in run.attention]
    facts += [("proof", _proof(drill)) for drill in run.drills]
    return facts


def history_table(runs: Sequence[RunDetails], *, own: str) -> str:
    """Runs, newest first, a line each; where some are not of the machine `own`, each has its machine's name."""
    head = (
        "RUN",
        "JOB",
        "STATUS",
        "STARTED (UTC)",
        "LOCK",
        "LOST",
        "WAITED",
        "COPIED IN",
        "STORED",
        "VERIFIED",
        "PROVEN",
    )
    pinned = any(run.pin is not None for run in runs)
    others = any(run.machine != own for run in runs)
    rows = [(*head, *("PINNED",) * pinned, *("MACHINE",) * others)]
    rows += [(*_history_row(run), *(_pinned(run),) * pinned, *(run.machine,) * others) for run in runs]
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


def _fate(fate: "Fate", *, dry_run: bool) -> str:
    if fate.decision.keep:
        return "keep"
    return "remove" if dry_run else "removed" if fate.removed else "NOT REMOVED"


def drill_table(checks: Sequence[Check]) -> str:
    """The checks of a drill, a line each."""
    rows = [
        ("ok" if check.ok else "FAILED", check.name, check.found if check.ok else _differs(check)) for check in checks
    ]
    return columns(rows)


def _differs(check: Check) -> str:
    return f"expected {check.expected}, found {check.found}"


def _history_row(run: RunDetails) -> tuple[str, ...]:
    return (
        run.run_id,
        run.job,
        run.status.value,
        f"{run.started_at:%Y-%m-%d %H:%M}",
        duration(run.phases.get(Phase.LOCK_HOLD)),
        count(None if run.losses is None else run.losses.lost),
        duration(run.phases.get(Phase.SETTLE)),
        duration(run.phases.get(Phase.COPY)),
        _stored(run),
        _verified(run),
        _proven(run),
    )


def _stored(run: RunDetails) -> str:
    """The size of what is there, and in how many copies; or what became of it."""
    if run.backup is not None:
        copies = sum(backup.is_there for backup in run.backups)
        return size(run.backup.bytes_stored) + (f" x {copies}" if copies > 1 else "")
    if not run.backups:
        return "-"
    return "BROKEN" if any(backup.removed_at is None for backup in run.backups) else "removed"


def _verified(run: RunDetails) -> str:
    """When the copy that was read back last was."""
    instants = [backup.verified_at for backup in run.backups if backup.is_there and backup.verified_at is not None]
    return f"{max(instants):%Y-%m-%d}" if instants else "-"


def _pinned(run: RunDetails) -> str:
    return "-" if run.pin is None else run.pin.note or "yes"


def _proven(run: RunDetails) -> str:
    """The last word counts: what could be restored once may have been damaged since."""
    if not run.drills:
        return "not yet" if run.backup is not None else "-"
    if run.doubted:
        return "FAILED"
    return "yes" if run.proven_at is not None else "undecided"


def _lock(receipt: LockReceipt, snapshot_seconds: float | None) -> str:
    took = f"(snapshot {duration(snapshot_seconds)})"
    if receipt.strategy == UNLOCKED:
        return f"none {took}: the backup is what a power cut would have left"
    waited, held = duration(receipt.wait_seconds), duration(receipt.hold_seconds)
    return f"{receipt.strategy}: waited {waited}, held {held} {took}; proof: {receipt.proof}"


def _position(position: Position, *, derived: bool) -> str:
    if position.binlog_offset is None:
        return f"in {position.binlog_file}; a drill finds the offset"
    gtid = f", GTID {position.gtid}" if position.gtid else ""
    return f"{position.binlog_file}:{position.binlog_offset}{gtid}{' (found by the drill)' if derived else ''}"


def _volume(snapshot: SnapshotFacts) -> str:
    stripes = f", {snapshot.stripes} stripes of {size(snapshot.stripe_size)}" if snapshot.stripes > 1 else ""
    return f"{snapshot.volume}, {snapshot.layout}{stripes}"


def _chunks(snapshot: SnapshotFacts) -> str:
    reason = f": {snapshot.chunk_reason}" if snapshot.chunk_reason else ""
    return f"{size(snapshot.chunk_size)}{reason}"


def _area(snapshot: SnapshotFacts) -> tuple[str, str]:
    """What filled while the snapshot existed: a pool is everybody's, so what was used in it was not ours alone."""
    added = f" ({size(snapshot.cow_extended)} of it added while it filled)" if snapshot.cow_extended else ""
    filled = f"{size(snapshot.cow_size)}{added}, at most {size(snapshot.cow_used_peak)} used"
    return ("COW area", filled) if snapshot.pool is None else ("thin pool", f"{snapshot.pool}, {filled}")


def _spool(run: RunDetails) -> list[tuple[str, str]]:
    """What was read before the snapshot was released, and sent only then; nothing where nothing was."""
    spooled = sum(stage.bytes for stage in run.throughput if stage.stage == SPOOL_STAGE)
    if not spooled:
        return []
    read, sent = duration(run.phases.get(Phase.COPY)), duration(run.phases.get(Phase.SEND))
    return [("spool", f"{size(spooled)} in {read}; sent in {sent} after the snapshot was removed")]


def _backups(run: RunDetails) -> list[tuple[str, str]]:
    first, *others = run.backups
    seconds = run.phases.get(Phase.COPY)
    rate = f" at {size(first.bytes_read / seconds)}/s" if seconds else ""
    return [
        ("copy", f"{size(first.bytes_read)} in {duration(seconds)}{rate}, {first.files} files"),
        *(
            ("backup", f"{f'on {backup.target}: ' if others else ''}{backup.location} ({_state(backup)})")
            for backup in run.backups
        ),
    ]


def _state(backup: Backup) -> str:
    if backup.removed_at is not None:
        return f"removed {instant(backup.removed_at)}: {backup.removed_because}"
    if backup.broken:
        return f"BROKEN: {backup.broken}"
    return f"{size(backup.bytes_stored)}, {'read back and equal' if backup.verified_at else 'not read back'}"


def _proof(drill: Drill) -> str:
    said = f"{sum(check.ok for check in drill.checks)} of {len(drill.checks)} checks"
    outcome = f"undecided ({drill.undecided})" if drill.undecided else "restored and started" if drill.ok else "FAILED"
    return f"{outcome}: {said} in {duration(drill.seconds)}, {drill.at:%Y-%m-%d %H:%M} UTC"
