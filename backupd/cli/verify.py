"""`backupd verify`: what is stored is read back and compared; no key is needed."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.binlog_verify import ReadBack, read_back
from backupd.cli.invocation import JsonOption
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import print_document, reported, say, tell
from backupd.cli.selection import (
    GOOD_RUN,
    TargetOption,
    copies_of,
    run_of,
    sources_of,
    targets_with_segments,
    tell_out_of_reach,
    unpruned,
)
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    TargetError,
    Unreadable,
    UsageError,
    VerificationError,
    worst_of,
)

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.restore.verify import Verified
    from backupd.targets import BackupSource
    from backupd.vocabulary.records import RunDetails
    from backupd.vocabulary.storage import Backup


def verify(
    ctx: typer.Context,
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help=GOOD_RUN, show_default=False),
    ] = None,
    *,
    job: Annotated[
        str | None,
        typer.Option(help="All stored backups of this job instead, and its binlog archive.", show_default=False),
    ] = None,
    target: TargetOption = None,
    sample: Annotated[
        str | None, typer.Option(metavar="P%", help="Read only a random sample of this size.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Read the next Nth of each copy; needs --job; default: as configured.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read back a backup, bypassing the page cache, and compare every digest: all copies, completely or as a sample."""
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.restore.verify import share_of

    share = None if sample is None else share_of(sample)
    configuration = context.configuration(ctx.obj.config)
    if sample is not None and rounds is not None:
        raise UsageError(
            "--sample and --rounds cannot be combined", hint="use one: --sample 5% reads at random, --rounds 20 in turn"
        )
    if job is not None:
        configured = context.job(configuration, job).verify.rounds
        rounds = rounds or (configured if sample is None else None)
    errors: list[BackupdError] = []
    documents: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    with (
        context.own_catalogue(configuration) as catalogue,
        cancellable(),
        left_for_node_exporter(configuration, catalogue),
    ):
        for run in _chosen(configuration, catalogue, run_id, job, target):
            try:
                manner = _Manner(target, share, rounds or 1, of_job=job is not None, quiet=json)
                documents += _verify_run(configuration, catalogue, run, manner, errors)
            except Busy as error:  # one of them is being removed
                if job is None:
                    raise
                errors.append(error)
        if job is not None:
            part = share if share is not None else 1 / (rounds or 1)
            segments = _verify_archive(configuration, catalogue, job, target, ReadBack(part, None, quiet=json), errors)
    if json:
        print_document(documents[0] if job is None else {"job": job, "runs": documents, "binlog": segments})
    if errors:
        raise worst_of(errors)


def _verify_archive(
    configuration: "Configuration",
    catalogue: "Catalogue",
    job: str,
    target: str | None,
    manner: ReadBack,
    errors: list[BackupdError],
) -> list[dict[str, Any]]:
    """Of its binlog, on the targets that have segments of it."""
    stored = catalogue.stored_segments(job)
    with_some = targets_with_segments(configuration, job, stored)
    there = [name for name in with_some if name in stored and target in (None, name)]
    return read_back(configuration, catalogue, job, there, manner, errors)


@dataclass(frozen=True, slots=True)
class _Manner:
    """Which copies, how much of each, and whether people are told."""

    target: str | None
    share: float | None
    rounds: int  # in which all is read
    of_job: bool  # the run is one of all that its job has
    quiet: bool


def _chosen(
    configuration: "Configuration", catalogue: "Catalogue", run_id: str | None, job: str | None, target: str | None
) -> "list[RunDetails]":
    """The run that is named, or all of a job's here that have a backup that can be read (there): good and broken ones,
    newest first. Those on targets that are no longer configured are told, and passed over.

    Raises:
        UsageError: both or neither are named, or there is no backup.
    """
    if (run_id is None) == (job is None):
        raise UsageError("name a run or a job", hint="backupd verify RUN, or backupd verify --job JOB")
    if run_id is not None:
        return [run_of(configuration, catalogue, run_id, target=target)]
    runs = catalogue.runs_with_backup(job, broken_too=True)
    if target is None:
        tell_out_of_reach(configuration, runs)
    if found := [run for run in runs if _meant(configuration, run, target)]:
        return found
    on = f" on target {target}" if target is not None else ""
    raise UsageError(f"there is no backup of job {job}{on}", hint="see `backupd history`")


def _meant(configuration: "Configuration", run: "RunDetails", target: str | None) -> "list[Backup]":
    """Of the copies of one of a job's runs."""
    targets = configuration.targets if target is None else (target,)
    return [backup for backup in run.backups if backup.removed_at is None and backup.target in targets]


def _verify_run(
    configuration: "Configuration",
    catalogue: "Catalogue",
    run: "RunDetails",
    manner: _Manner,
    errors: list[BackupdError],
) -> list[dict[str, Any]]:
    """What became of each copy, as a document; what is wrong with one is in `errors`, too.

    Nothing of one of a job's that retention has removed since they were listed, which may be hours ago.
    """
    results: list[dict[str, Any]] = []
    with unpruned(configuration, run):
        run = replace(run, backups=catalogue.backups_of(run.run_id))  # as they are now that nobody removes them
        if not manner.of_job:
            copies = copies_of(run, target=manner.target, broken_too=True)
        elif not (copies := _meant(configuration, run, manner.target)):
            return []
        by_target = {backup.target: backup for backup in copies}
        for source in sources_of(configuration, catalogue, run, copies):
            try:
                found = _verify(source, catalogue, manner, by_target[source.target.name])
                _tell_of_unknown(configuration, catalogue, run, source, found)
            except (TargetError, VerificationError) as error:
                errors.append(error)
                results.append(_failed(source, error))
                tell(f"target {source.target.name}: {error.message}")
                continue
            results.append(_good(source, found))
            if not manner.quiet:
                with reported(errors):
                    say(_sentence(source, found))
    return [{"run_id": run.run_id, "copies": results}]


def _verify(source: "BackupSource", catalogue: "Catalogue", manner: _Manner, backup: "Backup") -> "Verified":
    """The answer is in the catalogue, too; a sample that was good proves nothing of the rest.

    Where all is read in rounds, it is known to be whole since the first of them, once the last has come to the end.
    """
    from backupd.cli.progress import share_done
    from backupd.operations.restore.verify import Round, verify_backup

    part = Round(backup.read_frames, manner.rounds) if manner.rounds > 1 else None
    since = (backup.reading_since if part is not None and backup.read_frames else None) or datetime.now(UTC)
    try:
        with share_done(f"reading {source.run_id} on {source.target.name}") as read:
            found = verify_backup(source, share=manner.share, part=part, read=read)
    except Unreadable:  # no byte was found damaged
        raise
    except VerificationError as error:
        catalogue.found_broken(source.run_id, source.target.name, error.message)
        raise
    if part is not None and found.next_frame:
        kept = catalogue.read_on(source.run_id, source.target.name, frames=found.next_frame, since=since, seen=backup)
    elif found.whole or part is not None:
        kept = catalogue.verified(source.run_id, source.target.name, since, seen=backup)
    else:
        return found
    if not kept:
        _require_still_good(source, catalogue)
    return found


def _require_still_good(source: "BackupSource", catalogue: "Catalogue") -> None:
    """What was found equal counts for nothing where another process has found damage meanwhile: it may have looked at
    what was read before it came.

    Raises:
        VerificationError: one has.
    """
    for backup in catalogue.backups_of(source.run_id):
        if backup.target == source.target.name and backup.broken:
            raise VerificationError(
                f"run {source.run_id} on target {backup.target} was found broken by another process while it was read:"
                f" {backup.broken}",
                hint=f"`backupd verify {source.run_id}` reads all of it again",
            )


def _tell_of_unknown(
    configuration: "Configuration", catalogue: "Catalogue", run: "RunDetails", source: "BackupSource", found: "Verified"
) -> None:
    """What lies beside the objects is kept with the run and notified once, and shown each time."""
    from backupd import wiring
    from backupd.operations.upkeep.notices import attend
    from backupd.targets.listing import unknown_beside

    if found.unknown:
        text = unknown_beside(found.unknown, source.target.name)
        tell(f"warning: {text}")
        if text not in run.attention:
            attend(catalogue, wiring.notifier(configuration), run.run_id, text, found_by="verification")


def _sentence(source: "BackupSource", found: "Verified") -> str:
    from backupd.report.words import duration, size

    read = "all of it" if found.whole else f"{found.share:.1%} of it, {found.frames} frames,"
    return (
        f"run {source.run_id} on target {source.target.name}: {read} read back, equal to what was stored"
        f" ({size(found.bytes_read)} of {size(found.bytes_stored)}, {found.objects} objects,"
        f" {duration(found.seconds)})"
    )


def _good(source: "BackupSource", found: "Verified") -> dict[str, Any]:
    return {
        "target": source.target.name,
        "status": "verified" if found.whole else "sampled",
        "objects": found.objects,
        "frames_read": found.frames,
        "bytes_read": found.bytes_read,
        "bytes_stored": found.bytes_stored,
        "seconds": round(found.seconds, 3),
        "next_frame": found.next_frame,
        "unknown": list(found.unknown),
        "error": None,
    }


def _failed(source: "BackupSource", error: BackupdError) -> dict[str, Any]:
    status = "broken" if isinstance(error, VerificationError) else "unreachable"
    return {
        "target": source.target.name,
        "status": "unreadable" if isinstance(error, Unreadable) else status,
        "error": {"code": error.code, "message": error.message, "hint": error.hint},
    }
