"""What is worth knowing of one run, in words: once for the terminal, the demo and the page.

Knows: how it is said, in the order in which it happened. What the run cost is in `bill_words`; the page shows a run's
error, its attention, its copies and its drills in places of their own.
"""

from backupd.mysql import UNLOCKED, confirmed_words
from backupd.policy.write_penalty import penalty_of
from backupd.report.gate_words import gate_words
from backupd.report.words import duration, instant, ratio, size
from backupd.vocabulary.instants import to_the_minute, to_the_second
from backupd.vocabulary.penalty import SPOOL_STAGE
from backupd.vocabulary.records import Check, Drill, Phase, RunDetails, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position, ReplicaPosition
from backupd.vocabulary.storage import Backup

Facts = list[tuple[str, str]]


def run_facts(run: RunDetails) -> Facts:
    """Name and words of everything worth knowing of one run."""
    copies = [(f"on {copy.target}: " if len(run.backups) > 1 else "", copy) for copy in run.backups]
    return [
        ("run", run.run_id),
        ("status", run.status.value),
        *course_facts(run),
        *(
            ("backup", f"{on}{copy.location} ({_size_of(copy)}{copy_state(copy)}{readers_words(run, copy)})")
            for on, copy in copies
        ),
        *([("error", run.error.message)] if run.error is not None else []),
        *([("hint", run.error.hint)] if run.error is not None and run.error.hint else []),
        *(("attention", text) for text in run.attention),
        *(("proof", _proof(drill)) for drill in run.drills),
    ]


def course_facts(run: RunDetails) -> Facts:
    """What happened from its begin to the end of its copy, and whether a person keeps it."""
    facts = [
        ("job", f"{run.job or 'none'} on host {run.host or 'this one'}"),
        ("machine", run.machine),
        ("started", to_the_second(run.started_at)),
    ]
    if run.ended_at is not None:
        took = "" if run.seconds is None else f", after {duration(run.seconds)}"
        facts.append(("ended", f"{to_the_second(run.ended_at)}{took}"))
    if run.max_rate is not None:
        facts.append(("ceiling", f"reads at most {size(run.max_rate)}/s, as it was started"))
    if run.lock is not None:
        facts.append(("lock", _lock(run.lock, run.phases.get(Phase.SNAPSHOT))))
    if run.position is not None:
        facts += _position(run.position, derived=run.derived)
    if run.snapshot is not None:
        facts += _snapshot(run.snapshot)
    penalty = penalty_of(run.samples)
    if penalty.baseline_iops is not None:
        when = "when the copy started" if Phase.COPY in run.phases else "when last measured"
        facts.append(
            (
                "write penalty",
                f"{ratio(penalty.initial_ratio)} at first, {ratio(penalty.settled_ratio)} {when}"
                f" (baseline {penalty.baseline_iops:.0f} IOPS)",
            )
        )
    if run.verdict is not None:
        facts.append(("gate", gate_words(run.verdict)))
    facts += _spool(run)
    if run.backups:
        facts.append(("copy", _copy(run.backups[0], run.phases.get(Phase.COPY))))
    if run.pin is not None:
        facts.append(("pinned", f"{run.pin.note or 'without a note'}, since {instant(run.pin.at)}"))
    return facts


def copy_state(copy: Backup) -> str:
    """What became of one copy."""
    if copy.removed_at is not None:
        return f"removed {instant(copy.removed_at)}: {copy.removed_because or 'no reason recorded'}"
    if copy.broken:
        return f"BROKEN: {copy.broken}"
    return "read back and equal" if copy.verified_at else "not read back"


def readers_words(run: RunDetails, copy: Backup) -> str:
    """Whom one copy is encrypted for, where the run's copies differ in that; what was removed is nobody's."""
    known = {frozenset(one.recipients) for one in run.backups if one.removed_at is None}
    if len(known) < 2 or copy.removed_at is not None:
        return ""
    return f", encrypted for {', '.join(copy.recipients)}" if copy.recipients else ", not encrypted"


def _size_of(copy: Backup) -> str:
    return f"{size(copy.bytes_stored)}, " if copy.is_there else ""


def _lock(receipt: LockReceipt, snapshot_seconds: float | None) -> str:
    took = f"(snapshot {duration(snapshot_seconds)})"
    if receipt.strategy == UNLOCKED:
        return f"none {took}: the backup is what a power cut would have left"
    waited, held = duration(receipt.wait_seconds), duration(receipt.hold_seconds)
    tries = f", {receipt.tries} tries" if receipt.tries > 1 else ""
    return f"{receipt.strategy}: waited {waited}{tries}, held {held} {took}; {confirmed_words(receipt.proof)}"


def _position(position: Position, *, derived: bool) -> Facts:
    """The server's own, and where it stood in its sources' binlogs."""
    own = [("position", _offset(position, derived=derived))] if position.binlog_file is not None else []
    return [*own, *map(_replica, position.replicas)]


def _offset(position: Position, *, derived: bool) -> str:
    if position.binlog_offset is None:
        return f"in {position.binlog_file}; a drill finds the offset"
    gtid = f", GTID {position.gtid}" if position.gtid else ""
    return f"{position.binlog_file}:{position.binlog_offset}{gtid}{' (found by the drill)' if derived else ''}"


def _replica(channel: ReplicaPosition) -> tuple[str, str]:
    name = f"replica {channel.channel}" if channel.channel else "replica"
    if not channel.source_log_file:
        return (name, f"GTID {channel.gtid or 'none'}")
    return (name, f"{channel.source_log_file}:{channel.source_log_offset} of its source")


def _snapshot(snapshot: SnapshotFacts) -> Facts:
    stripes = f", {snapshot.stripes} stripes of {size(snapshot.stripe_size)}" if snapshot.stripes > 1 else ""
    reason = f": {snapshot.chunk_reason}" if snapshot.chunk_reason else ""
    facts = [
        ("volume", f"{snapshot.volume}, {snapshot.layout}{stripes}"),
        ("chunks", f"{size(snapshot.chunk_size)}{reason}"),
        _area(snapshot),
    ]
    if snapshot.size_reason:
        facts.append(("its size", snapshot.size_reason))
    if snapshot.redo_left_out:
        facts.append(("redo log", f"{size(snapshot.redo_left_out)} not stored: recovery does not need it"))
    return facts


def _area(snapshot: SnapshotFacts) -> tuple[str, str]:
    """What filled while the snapshot existed: a pool is everybody's, so what was used in it was not ours alone."""
    added = f" ({size(snapshot.cow_extended)} of it added while it filled)" if snapshot.cow_extended else ""
    filled = f"{size(snapshot.cow_size)}{added}, at most {size(snapshot.cow_used_peak)} used"
    return ("COW area", filled) if snapshot.pool is None else ("thin pool", f"{snapshot.pool}, {filled}")


def _spool(run: RunDetails) -> Facts:
    """What was read before the snapshot was released, and sent only then; nothing where nothing was."""
    spooled = sum(stage.bytes for stage in run.throughput if stage.stage == SPOOL_STAGE)
    if not spooled:
        return []
    read, sent = duration(run.phases.get(Phase.COPY)), duration(run.phases.get(Phase.SEND))
    return [("spool", f"{size(spooled)} in {read}; sent in {sent} after the snapshot was removed")]


def _copy(first: Backup, seconds: float | None) -> str:
    rate = f" at {size(first.bytes_read / seconds)}/s" if seconds else ""
    return f"{size(first.bytes_read)} in {duration(seconds)}{rate}, {first.files} files"


def outcome_of(check: Check) -> str:
    """What a drill found, beside what was expected where that differs, or is the job's own."""
    if not check.ok:
        return f"expected {check.expected}, found {check.found}"
    return f"{check.found}, expected {check.expected}" if check.asked and check.found != check.expected else check.found


def _proof(drill: Drill) -> str:
    said = f"{sum(check.ok for check in drill.checks)} of {len(drill.checks)} checks"
    outcome = f"undecided ({drill.undecided})" if drill.undecided else "restored and started" if drill.ok else "FAILED"
    of = f"{drill.to_moment}: " if drill.to_moment else ""
    return f"{of}{outcome}: {said} in {duration(drill.seconds)}, {to_the_minute(drill.at)}"
