"""A moment that a person wants to have back: its options, and a restore to it."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.chosen import copies_of, run_of, sources_of, unpruned
from backupd.cli.instants import instant
from backupd.cli.output import print_text, say, tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.binlog.reading import SegmentReader
    from backupd.operations.restore.to_moment import RestoredMoment
    from backupd.policy.binlog_chain import PlacedBackup
    from backupd.policy.moments import Moment
    from backupd.vocabulary.binlogs import BinlogPlace, BinlogSegment
    from backupd.vocabulary.records import RunDetails
    from backupd.vocabulary.storage import Manifest

ToTimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Roll forward to this time: all that was committed before it.", show_default=False
    ),
]
ToGtidOption = Annotated[
    str | None,
    typer.Option(metavar="GTID", help="Roll forward up to this transaction, and with it.", show_default=False),
]
BeforeGtidOption = Annotated[
    str | None,
    typer.Option(metavar="GTID", help="Roll forward up to this transaction, without it.", show_default=False),
]
ToPositionOption = Annotated[
    str | None,
    typer.Option(metavar="FILE:OFFSET", help="Roll forward to this place in the server's binlog.", show_default=False),
]
LatestOption = Annotated[
    bool, typer.Option("--latest", help="Roll forward to the last transaction that is archived.", show_default=False)
]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Whose binlog archive, where several jobs have one.", show_default=False),
]

_PLACE = re.compile(r"[^:]{1,200}\.[0-9]{6,10}:[0-9]{1,18}", re.ASCII)
ONE_MOMENT = "give one of --to-time, --to-gtid, --before-gtid, --to-position and --latest"


def moment_of(
    to_time: str | None, to_gtid: str | None, before_gtid: str | None, to_position: str | None, *, latest: bool
) -> "Moment | None":
    """The moment that the options name; None where none does.

    Raises:
        UsageError: several do, or one names none.
    """
    given = [text for text in (to_time, to_gtid, before_gtid, to_position) if text is not None]
    if len(given) + latest > 1:
        raise UsageError("two moments cannot be restored at once", hint=ONE_MOMENT)
    if not given and not latest:
        return None
    from backupd.policy.moments import BeforeGtid, Latest, ToGtid, ToPosition, ToTime

    if to_time is not None:
        return ToTime(instant("--to-time", to_time, now=datetime.now(UTC)))
    if to_gtid is not None:
        return ToGtid(to_gtid)
    if before_gtid is not None:
        return BeforeGtid(before_gtid)
    return Latest() if to_position is None else ToPosition(_place(to_position))


def restore_moment(
    configuration: "Configuration",
    moment: "Moment",
    *,
    run_id: str | None,
    job: str | None,
    to: Path,
    target: str | None,
    identities: "Identities | None",
) -> None:
    """The folder is at the moment; what was done, and what it can be used for, is told.

    Raises:
        UsageError: the moment cannot be reached; or as the restore says.
    """
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations.restore.fallback import agreed
    from backupd.operations.restore.on_record import Deed, on_record
    from backupd.operations.restore.to_moment import restore_to_moment
    from backupd.policy.roll_forward import plan as planned

    with wiring.catalogue(configuration) as catalogue:
        chosen = archived_job(configuration, catalogue, run_id, job)
        backups, segments = usable_archive(catalogue, chosen, run_id=run_id, target=target)
        plan = planned(backups, segments, moment, now=datetime.now(UTC))
        run = catalogue.run(plan.backup.run_id)
        sources = sources_of(configuration, catalogue, run, copies_of(run, target=target))
        reader = segments_read(configuration, catalogue, chosen, target=target, identities=identities)
        place = to.absolute()
        tell(f"from run {run.run_id} and {len(plan.segments)} binlog segments behind it")
        with (
            cancellable(),
            unpruned(configuration, run),
            on_record(catalogue, run.run_id, Deed.RESTORE, place, sources, telling=tell, moment=str(moment)) as done,
        ):
            manifest, readable = agreed(sources, identities)
            restored = restore_to_moment(
                *(plan, manifest, readable, reader),
                to=place,
                identities=identities,
                confined=not configuration.restore.unconfined,
                telling=tell,
            )
            done.detail["position"] = f"{restored.position.binlog_file}:{restored.position.binlog_offset}"
    _tell(run, moment, manifest, restored)


def _tell(run: "RunDetails", moment: "Moment", manifest: "Manifest", restored: "RestoredMoment") -> None:
    from backupd.mysql.next_steps import next_steps
    from backupd.mysql.replica_files import position_in_words

    last = restored.committed_at
    committed = "no transaction was applied" if last is None else f"last commit {last:%Y-%m-%d %H:%M:%S} UTC"
    say(f"restored run {run.run_id} and its binlog up to {moment}: datadir {restored.datadir}")
    say(f"it stands at {position_in_words(restored.position)}, {committed}")
    print_text(next_steps(manifest, restored.datadir, reached=restored.position).rstrip())


def archived_job(configuration: "Configuration", catalogue: "Catalogue", run_id: str | None, job: str | None) -> str:
    """Whose archive is meant.

    Raises:
        UsageError: nobody can tell, or that job has none.
    """
    if run_id is not None:
        return run_of(catalogue, run_id).job
    archived = [name for name, each in configuration.jobs.items() if each.binlog is not None]
    if job is not None:
        if job not in archived:
            raise UsageError(f"job {job} archives no binlog", hint=f"jobs that do: {', '.join(archived) or 'none'}")
        return job
    if len(archived) != 1:
        raise UsageError(
            "no job archives its binlog" if not archived else f"{len(archived)} jobs archive their binlog",
            hint="[jobs.JOB.binlog] turns it on" if not archived else f"--job JOB, one of {', '.join(archived)}",
        )
    return archived[0]


def usable_archive(
    catalogue: "Catalogue", job: str, *, run_id: str | None, target: str | None
) -> "tuple[list[PlacedBackup], list[BinlogSegment]]":
    """By which backups a moment of the job can be restored, or by this one alone, and its segments; on that target."""
    from backupd.operations.binlog.placed_backups import placed_backups

    runs = catalogue.runs(job=job, ours=True, limit=None) if run_id is None else [run_of(catalogue, run_id)]
    usable = [run for run in runs if target is None or run.backup_on(target) is not None]
    return placed_backups(usable), list(catalogue.segments(job, target=target))


def segments_read(
    configuration: "Configuration",
    catalogue: "Catalogue",
    job: str,
    *,
    target: str | None,
    identities: "Identities | None",
) -> "SegmentReader":
    """Where the job's segments are read: from this target alone, or from all of the job's.

    Raises:
        UsageError, ConfigurationError: there is no such job, or target.
    """
    from backupd import wiring
    from backupd.operations.binlog.reading import SegmentReader

    machine = catalogue.identity().name
    names = [target] if target is not None else list(wiring.job(configuration, job).targets)
    targets = [wiring.target(configuration, name, machine) for name in names]
    return SegmentReader(job, targets, catalogue.trust(machine), identities)


def _place(text: str) -> "BinlogPlace":
    """A place as SHOW BINARY LOG STATUS has it.

    Raises:
        UsageError: it is none.
    """
    from backupd.vocabulary.binlogs import BinlogPlace

    file, _, offset = text.rpartition(":")
    if _PLACE.fullmatch(text) is None:
        raise UsageError(
            f"{text!r:.80} is not a place in a binlog", hint="write FILE:OFFSET, such as binlog.000042:1234"
        )
    return BinlogPlace(file, int(offset))
