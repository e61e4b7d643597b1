"""A moment that a person wants to have back: its options, and a restore to it."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.drawn_moments import Drawn, drawn_moment, readable
from backupd.cli.instants import instant
from backupd.cli.output import print_text, say, tell
from backupd.cli.selection import copies_of, run_of, sources_of, targets_with_segments, unpruned
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.instants import to_the_second

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.mysql.binlog.applying import ApplyingProgress
    from backupd.mysql.tablefiles import Table
    from backupd.operations.binlog.segment_reader import SegmentReader
    from backupd.operations.restore.moment.moment_copy import RollForward
    from backupd.operations.restore.moment.to_moment import RestoredMoment
    from backupd.policy.moments import Moment
    from backupd.policy.roll_forward import RestorePlan
    from backupd.targets import BackupSource
    from backupd.vocabulary.binlogs import BinlogPlace
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
    typer.Option(metavar="GTID", help="Roll forward through this transaction.", show_default=False),
]
BeforeGtidOption = Annotated[
    str | None,
    typer.Option(metavar="GTID", help="Roll forward to just before this transaction.", show_default=False),
]
ToPositionOption = Annotated[
    str | None,
    typer.Option(metavar="FILE:OFFSET", help="Roll forward to this place in the server's binlog.", show_default=False),
]
LatestOption = Annotated[
    bool, typer.Option("--to-latest", help="Roll forward to the last transaction that is archived.", show_default=False)
]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Whose binlog archive, where several jobs have one.", show_default=False),
]

_PLACE = re.compile(r"[^:]{1,200}\.[0-9]{6,10}:[0-9]{1,18}", re.ASCII)
_TOLD = 5  # names of tables
ONE_MOMENT = "give one of --to-time, --to-gtid, --before-gtid, --to-position and --to-latest"


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


@dataclass(frozen=True, slots=True)
class AskedMoment:
    """A moment, and what a person said of how to get there."""

    moment: "Moment | Drawn"
    run_id: str | None  # None: the best backup
    job: str | None = None


@dataclass(frozen=True, slots=True)
class FoundMoment:
    """The backup that leads to a moment, where its copies are, and what to apply to it."""

    run: "RunDetails"
    manifest: "Manifest"
    copies: "Sequence[BackupSource]"  # all of them
    sources: "Sequence[BackupSource]"  # from the first on that has a manifest which can be used
    forward: "RollForward"
    asked: AskedMoment
    doubt: str  # why the moment may have other times than the server had; empty: it cannot

    @property
    def moment(self) -> str:
        """In words."""
        return str(self.asked.moment)


def found_moment(
    configuration: "Configuration",
    catalogue: "Catalogue",
    asked: AskedMoment,
    *,
    to: Path,
    target: str | None,
    identities: "Identities | None",
    applied: "Callable[[ApplyingProgress], None]" = lambda _progress: None,
) -> FoundMoment:
    """How the moment is reached; where `to` has an unfinished restore to it, from the same backup.

    Raises:
        UsageError: it cannot be reached, or `to` has an unfinished restore of another job.
        TargetError, VerificationError, NoKey: no target has the backup's manifest.
    """
    from backupd.operations.restore.moment.moment_copy import RollForward, doubt_of_log
    from backupd.operations.restore.next_copy import agreed
    from backupd.operations.restore.on_record import damage_on_record
    from backupd.operations.restore.unfinished import unfinished_in
    from backupd.operations.restore.unfinished_marker import of_something_else
    from backupd.report.words import many

    begun = unfinished_in(to)
    if begun is not None and asked.job not in (None, begun.job):
        raise of_something_else(to, begun)
    if asked.run_id is None and begun is not None and begun.moment == str(asked.moment):
        asked = replace(asked, run_id=begun.run_id)
    way = way_to(configuration, catalogue, asked, target=target, identities=identities)
    tell(f"from run {way.run.run_id} and {many(len(way.plan.segments), 'binlog segment')} after it")
    tell_statements(way.plan)
    with damage_on_record(catalogue, way.copies, telling=tell):
        manifest, sources = agreed(way.copies, identities)
    doubt = doubt_of_log(way.plan, manifest)
    if doubt:
        tell(f"attention: {doubt}")
    return FoundMoment(way.run, manifest, way.copies, sources, RollForward(way.plan, way.reader, applied), asked, doubt)


@dataclass(frozen=True, slots=True)
class WayToMoment:
    """By which backup and segments a moment is reached, and where they are read."""

    run: "RunDetails"
    plan: "RestorePlan"
    copies: "Sequence[BackupSource]"  # of the backup, the first preferred
    reader: "SegmentReader"


def way_to(
    configuration: "Configuration",
    catalogue: "Catalogue",
    asked: AskedMoment,
    *,
    target: str | None,
    identities: "Identities | None",
) -> WayToMoment:
    """How the moment is reached: from all targets that are configured, or by what is on that one alone.

    Raises:
        UsageError: it cannot be; or no moment can, and one was to be drawn.
    """
    from backupd.operations.binlog.placed_backups import looked_on, placed_backups
    from backupd.operations.restore.moment.log_to_moment import planned
    from backupd.policy.rising_numbers import doubt
    from backupd.policy.roll_forward import plan

    # what is told of the run that a word means is told once
    run_id = None if asked.run_id is None else run_of(configuration, catalogue, asked.run_id).run_id
    job = archived_job(configuration, catalogue, run_id, asked.job)
    targets = looked_on(catalogue, job, configuration.targets, target=target)
    runs = _usable_runs(configuration, catalogue, job, run_id=run_id, targets=targets)
    if isinstance(asked.moment, Drawn):
        runs = readable(runs, targets, identities)
    backups = placed_backups(runs)
    reader = segments_read(configuration, catalogue, job, target=target, identities=identities)
    with catalogue.archive_search(job, backups, targets=targets) as archive:
        moment = asked.moment
        if isinstance(moment, Drawn):
            moment = drawn_moment(moment.seed, backups, archive, identities)

        def by_archive(passed: "Collection[str]") -> "RestorePlan":
            named, now = run_id is not None, datetime.now(UTC)
            try:
                return plan(backups, archive, moment, now=now, named=named, passed=passed)
            except UsageError as error:
                told = doubt(moment, (row.segments[-1] for row in archive.rows)) or error.hint
                left = "" if targets is None or target is not None else "; a target that is not configured may have it"
                raise UsageError(error.message, hint=f"{told}{left}") from error

        found = planned(by_archive, reader)
    run = catalogue.run(found.backup.run_id)
    copies = sources_of(configuration, catalogue, run, copies_of(run, target=target, broken_last=True))
    return WayToMoment(run, found, copies, reader)


def tell_statements(plan: "RestorePlan") -> None:
    """That what the log has as statements may have another result, where it has any."""
    from backupd.policy.roll_forward import statements_in
    from backupd.vocabulary.escaping import on_one_line, some

    if tables := statements_in(plan.segments):
        named = some([on_one_line(table) for table in tables], _TOLD)
        tell(
            f"the log changes {named} by statements instead of rows: some, such as with UUID() or LIMIT, give"
            " a different result when applied again; binlog_format = ROW avoids that"
        )


def restore_moment(
    configuration: "Configuration",
    asked: AskedMoment,
    *,
    to: Path,
    target: str | None,
    identities: "Identities | None",
    tables: "Sequence[Table]" = (),
) -> "Sequence[str]":
    """The folder is at the moment, and has these tables for import; what was done, and what can be done now, is told.

    What a person should look at is returned.

    Raises:
        UsageError: the moment cannot be reached, or no such table was ever there; or as the restore says.
    """
    from backupd.cli.exported_tables import tell_exported
    from backupd.cli.progress import log_applied
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.restore.moment.moment_tables import require_tables
    from backupd.operations.restore.moment.to_moment import restore_to_moment
    from backupd.operations.restore.on_record import Deed, on_record

    place, confined = to.absolute(), not configuration.restore.unconfined
    with context.catalogue(configuration) as catalogue, log_applied() as applied:
        found = found_moment(
            configuration, catalogue, asked, to=place, target=target, identities=identities, applied=applied
        )
        run, sources = found.run, found.sources
        detail = {"moment": found.moment, **({"tables": list(map(str, tables))} if tables else {})}
        with (
            cancellable(),
            unpruned(configuration, run),
            on_record(catalogue, run.run_id, Deed.RESTORE, place, found.copies, telling=tell, **detail) as done,
        ):
            require_tables(tables, found.manifest, sources, found.forward.plan, identities)
            restored = restore_to_moment(
                *(found.forward, found.manifest, sources),
                to=place,
                identities=identities,
                tables=tables,
                confined=confined,
                telling=tell,
            )
            done.detail["position"] = f"{restored.position.binlog_file}:{restored.position.binlog_offset}"
            _tell(found, restored, steps=not tables)
            if found.doubt:
                done.attentions.append(found.doubt)
            if tables:
                done.attentions.extend(tell_exported(place, found.manifest, restored.exported))
    return done.attentions


def _tell(found: FoundMoment, restored: "RestoredMoment", *, steps: bool) -> None:
    from backupd.mysql.next_steps import next_steps
    from backupd.mysql.replica_files import position_in_words
    from backupd.mysql.restored_owner import restored_owner

    last = restored.committed_at
    committed = "no transaction was applied" if last is None else f"last commit {to_the_second(last)}"
    say(f"restored run {found.run.run_id} and its binlog up to {found.moment}: datadir {restored.datadir}")
    say(f"position: {position_in_words(restored.position)}, {committed}")
    if steps:
        text = next_steps(found.manifest, restored.datadir, reached=restored.position)
        print_text(f"{restored_owner(restored.datadir)}{text.rstrip()}")


def archived_job(configuration: "Configuration", catalogue: "Catalogue", run_id: str | None, job: str | None) -> str:
    """Whose archive is meant.

    Raises:
        UsageError: nobody can tell, or that job has none; or the run is another job's.
    """
    if run_id is not None:
        run = run_of(configuration, catalogue, run_id)
        if run.machine != catalogue.identity().name:
            raise UsageError(
                f"run {run.run_id} is of machine {run.machine}: this catalogue has no binlog archive of that machine",
                hint="without a moment the backup alone is restored; the archive belongs to that machine, or to whoever"
                " adopts its identity: `backupd identity adopt`",
            )
        if job not in (None, run.job):
            raise UsageError(f"run {run.run_id} is of job {run.job}, not of {job}", hint="omit --job, or the run")
        return run.job
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


def _usable_runs(
    configuration: "Configuration",
    catalogue: "Catalogue",
    job: str,
    *,
    run_id: str | None,
    targets: "Collection[str] | None",
) -> "list[RunDetails]":
    """Those by which a moment of the job can be restored, on these targets; or this one alone, wherever it is, and
    whatever a drill or a verification has said of it: there may be no other.
    """
    if run_id is not None:
        run = run_of(configuration, catalogue, run_id)
        if run.doubted:
            tell(f"the last drill of run {run.run_id} failed; it is used because you named it")
        return [replace(run, drills=(), backups=tuple(replace(backup, broken="") for backup in run.backups))]
    runs = catalogue.runs_with_backup(job, targets=targets)
    newest = next(iter(runs), None)
    if newest is not None and newest.doubted:
        tell(f"run {newest.run_id} is passed over: its last drill failed. To use it all the same, name it before --to")
    return runs


def segments_read(
    configuration: "Configuration",
    catalogue: "Catalogue",
    job: str,
    *,
    target: str | None,
    identities: "Identities | None",
) -> "SegmentReader":
    """Where the job's segments are read: from this target alone, or from all of the job's and those that were.

    Raises:
        UsageError, ConfigurationError: there is no such job, or target.
    """
    from backupd import wiring
    from backupd.operations.binlog.segment_reader import SegmentReader

    machine = catalogue.identity().name
    names = (
        [target] if target is not None else targets_with_segments(configuration, job, catalogue.stored_segments(job))
    )
    targets = [wiring.target(configuration, name, machine) for name in names]
    return SegmentReader(job, targets, identities)


def _place(text: str) -> "BinlogPlace":
    """A place as SHOW BINARY LOG STATUS has it.

    Raises:
        UsageError: it is none.
    """
    from backupd.vocabulary.binlogs import BinlogPlace

    file, _, offset = text.rpartition(":")
    if _PLACE.fullmatch(text) is None:
        raise UsageError(f"{text!r:.80} is not a binlog position", hint="write FILE:OFFSET, such as binlog.000042:1234")
    return BinlogPlace(file, int(offset))
