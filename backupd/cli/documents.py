"""What `--json` prints, as plain values: pure functions from the model. Changes here are additive only."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from backupd.policy.write_penalty import penalty_of
from backupd.report.json_document import Document, iso
from backupd.vocabulary.penalty import Losses, Sample
from backupd.vocabulary.records import Drill, Finding, Phase, RunDetails, SnapshotFacts
from backupd.vocabulary.storage import Backup, Manifest

if TYPE_CHECKING:  # they load the driver or the catalogue's, which `run --json` does without
    from backupd.mysql.seeding import ReplicaWish
    from backupd.operations.binlog.rolling import RolledForward
    from backupd.operations.binlog.searching import LogFindings
    from backupd.operations.restore.clone import Clone
    from backupd.operations.restore.scrubbed_clone import ScrubbedClone
    from backupd.operations.restore.table_loading import LoadingPlan
    from backupd.operations.upkeep.prune import Pruning
    from backupd.operations.upkeep.rebuild import Rebuilding
    from backupd.operations.upkeep.rebuild_segments import SegmentsRebuilt
    from backupd.vocabulary.benches import BenchRecord
    from backupd.vocabulary.probes import ProbeRecord


def run_document(run: RunDetails) -> Document:
    """One run, whatever is archived behind it. Sizes are bytes, times seconds, ratios baseline ÷ window."""
    penalty = penalty_of(run.samples)
    return {
        "run_id": run.run_id,
        "job": run.job,
        "host": run.host,
        "machine": run.machine,
        "status": run.status,
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
        "max_rate": run.max_rate,
        "verdict": None if run.verdict is None else asdict(run.verdict),
        "phases": {phase: run.phases.get(phase) for phase in Phase},
        "preflush": None if run.preflush is None else asdict(run.preflush),
        "lock": None if run.lock is None else asdict(run.lock),
        "position": None if run.position is None else {**asdict(run.position), "derived": run.derived},
        "snapshot": None if run.snapshot is None else _snapshot(run.snapshot),
        "bill": None if run.bill is None else asdict(run.bill),
        "losses": None if run.losses is None else _losses(run.losses),
        "penalty": {**asdict(penalty), "samples": [_sample(sample) for sample in run.samples]},
        "backup": None if run.backup is None else _backup(run.backup),
        "backups": [_backup(backup) for backup in run.backups],
        "throughput": [{**asdict(stage), "bytes_per_second": stage.rate} for stage in run.throughput],
        "pace": [asdict(change) for change in run.pace],
        "attention": list(run.attention),
        "drills": [drill_document(drill) for drill in run.drills],
        "pin": None if run.pin is None else {"note": run.pin.note, "at": iso(run.pin.at)},
        "proven_at": iso(run.proven_at),
        "error": None if run.error is None else asdict(run.error),
    }


def shown_run_document(run: RunDetails, rolled: "RolledForward | None") -> Document:
    """What `run --json` and `show --json` print: the run, and which archived moments its backup leads to."""
    return {**run_document(run), "archive": None if rolled is None else rolled_document(rolled)}


def rolled_document(rolled: "RolledForward") -> Document:
    """From when to when every moment can be restored from a backup; also by what is on each target alone."""
    return {
        "since": iso(rolled.since),
        "until": iso(rolled.until),
        "targets": [{"target": target, "until": iso(until)} for target, until in rolled.targets],
    }


def history_document(runs: Sequence[RunDetails], rolled: Mapping[str, datetime]) -> Document:
    """Many runs, newest first, each without its samples; `rolled`: by run, up to when it can be rolled forward."""
    documents = [{**run_document(run), "rolls_to": iso(rolled.get(run.run_id))} for run in runs]
    for document in documents:
        del document["penalty"]["samples"]
    return {"runs": documents}


def probes_document(probes: "Sequence[ProbeRecord]") -> Document:
    """Many probes, newest first: each as `probe --json` prints it, with its job, and without its curves."""
    from backupd.report import probe_table

    documents = [{**probe_table.document(probe), "job": probe.job} for probe in probes]
    for document in documents:
        del document["curves"]
    return {"probes": documents}


def benches_document(benches: "Sequence[BenchRecord]") -> Document:
    """Many benches, newest first: each as `show --json` prints it, without what the disks did over time."""
    from backupd.report import bench_document

    documents = [bench_document.document(bench) for bench in benches]
    for document in documents:
        del document["samples"]
    return {"benches": documents}


def drill_document(drill: Drill) -> Document:
    """One drill: what `drill --json` prints."""
    return {
        "run_id": drill.run_id,
        "status": "undecided" if drill.undecided else "proven" if drill.ok else "failed",
        "undecided": drill.undecided,
        "checks": [asdict(check) for check in drill.checks],
        "seconds": drill.seconds,
        "at": iso(drill.at),
        "position": None if drill.position is None else asdict(drill.position),
        "moment": None if drill.moment is None else {"name": drill.moment.name, "at": iso(drill.moment.at)},
    }


def clone_document(manifest: Manifest, wanted: "ReplicaWish", made: "Clone") -> Document:
    """One clone: what `clone --json` prints. No password is in it."""
    source = wanted.source
    return {
        "run_id": manifest.run_id,
        "datadir": str(made.datadir),
        "option_file": str(made.option_file),
        "statements_file": str(made.statements_file),
        "server_id": wanted.server_id,
        "following": wanted.following,
        "position": asdict(made.seeded.position),
        "source": None if source is None else {"host": source.host, "port": source.port, "user": source.user},
        "applied": list(made.seeded.applied),
        "left": list(made.seeded.left),
    }


def scrubbed_clone_document(manifest: Manifest, made: "ScrubbedClone") -> Document:
    """One scrubbed copy: what `clone --scrub --json` prints."""
    return {
        "run_id": manifest.run_id,
        "datadir": str(made.datadir),
        "option_file": str(made.option_file),
        "proof": str(made.proof),
        "scrub": made.scrub.document,
    }


def loading_document(run_id: str, plan: "LoadingPlan") -> Document:
    """What `restore --tables … --into HOST --dry-run --json` prints; sizes are bytes of the tables' files."""
    return {
        "run_id": run_id,
        "host": plan.place.host,
        "as": plan.place.schema,
        "bytes": plan.size,
        "binlog": plan.server.logs and plan.place.logged,
        "replicas": plan.server.replicas,
        "not_by_tablespace": plan.against,
        "tables": [
            {
                "table": str(planned.shape.table),
                "bytes": planned.size,
                "by": planned.way.value,
                "reason": planned.odd or plan.against,
                "foreign_keys_left_out": list(planned.shape.foreign_keys),
                "triggers_left_out": [trigger.name for trigger in planned.shape.triggers],
            }
            for planned in plan.tables
        ],
        "attention": list(plan.attentions),
    }


def findings_document(job: str, found: "LogFindings") -> Document:
    """What `binlog search --json` prints."""
    from backupd.report.binlog_archive import transaction_document

    return {
        "job": job,
        "transactions": [transaction_document(one) for one in found.transactions],
        "more": found.more,
        "segments": found.segments,
        "read": found.read,
        "unread": [{"code": one.code, "message": one.message, "hint": one.hint} for one in found.unread],
    }


def check_document(job: str, findings: tuple[Finding, ...]) -> Document:
    """A preflight: what `check --json` prints."""
    return {"job": job, "findings": [asdict(finding) for finding in findings]}


def prune_document(prunings: "Sequence[Pruning]", *, dry_run: bool) -> Document:
    """What `prune --json` prints: every backup with what is decided of it, and why; sizes are bytes.

    Of binlog archives only how many segments go, by target and reason.
    """
    return {
        "dry_run": dry_run,
        "backups": [
            {
                "job": pruning.job,
                "target": fate.target,
                "run_id": fate.decision.backup_id,
                "at": iso(fate.at),
                "bytes_stored": fate.bytes_stored,
                "keep": fate.decision.keep,
                "reason": fate.decision.reason,
                "removed": fate.removed,
            }
            for pruning in prunings
            for fate in pruning.fates
        ],
        "segments": [
            {
                "job": pruning.job,
                "target": fate.target,
                "reason": fate.reason,
                "segments": fate.segments,
                "bytes_stored": fate.bytes_stored,
                "removed": fate.removed,
            }
            for pruning in prunings
            for fate in pruning.segments
        ],
        "vanished": [
            {"job": pruning.job, "target": target, "run_id": run_id}
            for pruning in prunings
            for target, run_id in pruning.vanished
        ],
        "failures": [
            {"job": pruning.job, "target": target, "message": error.message, "hint": error.hint}
            for pruning in prunings
            for target, error in pruning.failures
        ],
    }


def rebuild_document(target: str, rebuilding: "Rebuilding", archives: "Sequence[SegmentsRebuilt]" = ()) -> Document:
    """What `catalogue rebuild --json` prints."""
    return {
        "target": target,
        "imported": list(rebuilding.imported),
        "known": list(rebuilding.known),
        "unfinished": list(rebuilding.unfinished),
        "failures": [
            {"run_id": run_id, "message": error.message, "hint": error.hint} for run_id, error in rebuilding.failures
        ],
        "archives": [
            {
                "job": archive.job,
                "imported": archive.imported,
                "known": archive.known,
                "strangers": archive.strangers,
                "failures": [
                    {"segment": name, "message": error.message, "hint": error.hint} for name, error in archive.failures
                ],
            }
            for archive in archives
        ],
    }


def _backup(backup: Backup) -> Document:
    instants = {name: iso(getattr(backup, name)) for name in ("verified_at", "removed_at", "reading_since")}
    return {**asdict(backup), **instants}


def _snapshot(snapshot: SnapshotFacts) -> Document:
    return {**asdict(snapshot), "taken_at": iso(snapshot.taken_at)}


def _losses(losses: Losses) -> Document:
    """Where less than the noise is lost, `lost` is 0."""
    return {**asdict(losses), "expected": losses.expected, "lost": losses.lost}


def _sample(sample: Sample) -> Document:
    return asdict(sample)
