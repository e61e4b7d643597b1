"""`backupd drill`: the proof of a backup, of the one that needs it most where none is named."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.drawn_moments import Drawn
from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.moment_drill import DrillTimeOption, SeedOption, drilled_moment_of, moment_to_prove
from backupd.cli.moments import BeforeGtidOption, LatestOption, ToGtidOption, ToPositionOption
from backupd.cli.output import print_document, print_text, say, tell
from backupd.cli.selection import (
    GOOD_RUN,
    TargetOption,
    copies_of,
    identities_in,
    run_of,
    sources_of,
    tell_out_of_reach,
    unpruned,
)
from backupd.vocabulary.errors import BackupdError, Busy, ExitStatus, Undecided, UsageError, VerificationError
from backupd.vocabulary.instants import to_the_minute
from backupd.vocabulary.records import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration, DrillCheckConfig
    from backupd.operations.tools import HostTools
    from backupd.policy.moments import Moment
    from backupd.targets import BackupSource
    from backupd.vocabulary.records import Drill, DrilledMoment, RunDetails

DRILL_AGAIN = "drill it again with more time, memory or disk space, or with keys that its server may read"


def drill(
    ctx: typer.Context,
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help=f"{GOOD_RUN} Default: the newest unproven backup, or the one with the oldest proof.",
            show_default=False,
        ),
    ] = None,
    *,
    job: Annotated[str | None, typer.Option(help="Choose among this job's backups only.", show_default=False)] = None,
    target: TargetOption = None,
    to_time: DrillTimeOption = None,
    seed: SeedOption = None,
    to_gtid: ToGtidOption = None,
    before_gtid: BeforeGtidOption = None,
    to_position: ToPositionOption = None,
    latest: LatestOption = False,
    identity: IdentityOption = None,
    json: JsonOption = False,
) -> None:
    """Prove a backup: restore it, start a server on it, and compare. The result is recorded in the catalogue.

    With a moment (--to-time and others), the job's binlog archive is applied up to exactly there, and that is proven;
    also with --job alone, where `drill.moment` says so.
    """
    from backupd import wiring
    from backupd.cli.documents import drill_document
    from backupd.cli.failure_answers import failure_answers
    from backupd.cli.run_text import drill_table
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.ownership import ownership_of
    from backupd.operations.restore.on_record import broken_copies, drilled_on_record
    from backupd.operations.restore.proofs import leave_proof
    from backupd.operations.upkeep import notices
    from backupd.report.words import duration, too_long

    moment = drilled_moment_of(to_time, to_gtid, before_gtid, to_position, latest=latest, seed=seed)
    configuration, identities = context.configuration(ctx.obj.config), identities_in(identity)
    if run_id is not None and job is not None:
        raise UsageError("both a run and a job were given", hint="give one of them: a run belongs to one job anyway")
    if job is not None and context.job(configuration, job).drill.moment is not None and moment is None:
        moment = Drawn.anew()
    with (
        context.own_catalogue(configuration) as catalogue,
        left_for_node_exporter(configuration, catalogue),
        ExitStack() as kept,
    ):
        wanted = _Wanted(configuration, catalogue, run_id, job, target, identities, kept)
        drilling = wanted.backup() if moment is None else wanted.moment(moment)
        run, sources = drilling.run, drilling.sources
        answers = partial(failure_answers(configuration).of_drill, run.job, run.run_id, catalogue=catalogue)
        notifier = wiring.notifier(configuration)
        told = partial(notices.failure_told, notifier, run.job, run.run_id, answers=answers, what="drill")
        with told(), cancellable(), unpruned(configuration, run):
            machine = catalogue.identity().name
            tools = wiring.host_tools(configuration, machine)
            # within `unpruned`: what is proven is on record before anybody may prune it
            result = drilled_on_record(
                *(catalogue, run.run_id, sources), partial(drilling.act, tools), moment=drilling.moment, telling=tell
            )
            broken = broken_copies(sources)
            for text in broken:
                notices.attend(catalogue, notifier, run.run_id, text, found_by="drill")
            for failure in leave_proof(sources, result, ownership_of(catalogue, tools), host=run.host):
                tell(f"warning: {failure}")
                notices.attend(catalogue, notifier, run.run_id, failure, found_by="drill")
            if result.ok and (long := too_long(result.seconds, _restore_within(configuration, run, machine))):
                tell(f"attention: the drill took {long}")
                catalogue.attention(run.run_id, f"a drill took {long}")
                notifier.tell(notices.drill_took_long(run.job, run.run_id, long))
        if json:
            print_document(drill_document(result))
        else:
            print_text(drill_table(result.checks))
            outcome = f"undecided: {result.undecided};" if result.undecided else "proven" if result.ok else "NOT proven"
            of = f"drill {result.to_moment}: " if result.to_moment else ""
            say(f"{of}{outcome} in {duration(result.seconds)}")
        if (error := _error_of(result, run.job)) is not None:
            with told():
                raise error
    if broken:
        raise typer.Exit(ExitStatus.ATTENTION)


@dataclass(frozen=True, slots=True)
class _Drilling:
    """A drill that is about to be done."""

    run: "RunDetails"
    sources: "Sequence[BackupSource]"
    act: "Callable[[HostTools], Drill]"
    moment: "DrilledMoment | None" = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command line says of a drill."""

    configuration: "Configuration"
    catalogue: "Catalogue"
    run_id: str | None
    job: str | None
    target: str | None
    identities: "Identities | None"
    kept: ExitStack  # as long as that is open, nobody removes what was chosen

    def backup(self) -> _Drilling:
        """Of the backup that is meant, alone."""
        from backupd.operations.restore.drill import drill as drill_backup

        configuration, catalogue = self.configuration, self.catalogue
        run = self._chosen()
        sources = sources_of(configuration, catalogue, run, copies_of(run, target=self.target))
        act = partial(
            drill_backup,
            sources,
            identities=self.identities,
            confined=not configuration.restore.unconfined,
            checks=_own_checks(configuration, run, catalogue.identity().name),
            telling=tell,
        )
        return _Drilling(run, sources, act)

    def _chosen(self) -> "RunDetails":
        """The run that is named, or the one that needs a proof most and is not being removed; then it is told which,
        and why.
        """
        if self.run_id is not None:
            return run_of(self.configuration, self.catalogue, self.run_id, target=self.target)
        candidates = self.catalogue.newest_unproven(self.job)
        if self.target is None:
            tell_out_of_reach(self.configuration, candidates)
        for wanted in filter(self._may_read, candidates):
            try:
                self.kept.enter_context(unpruned(self.configuration, wanted))
            except Busy as error:
                tell(f"run {wanted.run_id} is passed over: {error.message}")
                continue
            run = self.catalogue.run(wanted.run_id)  # as it is since nobody removes it
            if self._may_read(run):
                when = f"it has the oldest proof, of {to_the_minute(run.proven_at)}" if run.proven_at else ""
                tell(f"run {run.run_id} of job {run.job}: {when or 'the newest that no drill has proven'}")
                return run
        raise UsageError("there is no backup to drill", hint="see `backupd history`")

    def _may_read(self, run: "RunDetails") -> bool:
        """It has a backup where that is looked for. One that is being removed may be half gone."""
        whole = (backup for backup in run.backups if backup.is_there and not backup.is_being_removed)
        targets = self.configuration.targets if self.target is None else (self.target,)
        return any(backup.target in targets for backup in whole)

    def moment(self, wanted: "Moment | Drawn") -> _Drilling:
        """Of a moment that is named, or drawn."""
        from backupd.operations.restore.moment.moment_drill import drill_to_moment

        run, moment = moment_to_prove(
            self.configuration,
            self.catalogue,
            wanted,
            run_id=self.run_id,
            job=self.job,
            target=self.target,
            identities=self.identities,
        )
        checks = _own_checks(self.configuration, run, self.catalogue.identity().name)
        act = partial(drill_to_moment, moment, checks=checks, telling=tell)
        return _Drilling(run, moment.sources, act, moment.told)


def _error_of(result: "Drill", job: str) -> BackupdError | None:
    """Why the backup is not proven; None where it is."""
    if result.undecided:
        hint = f"nothing was learned about the backup: {DRILL_AGAIN}"
        if result.checks and result.checks[-1].name == CLEAN_SHUTDOWN:
            hint = f"take a new backup, which records what was not known: `backupd run {job}`"
            if "time zone" in result.undecided:
                hint = f"name that time zone by TZ=ZONE in the environment, or take a new backup: `backupd run {job}`"
        return Undecided(f"the drill of run {result.run_id} was undecided: {result.undecided}", hint=hint)
    if result.ok:
        return None
    failed = [check for check in result.checks if not check.ok]
    hint = "do not rely on this backup; take a new one"
    if result.moment is not None:
        hint = (
            f"`backupd drill {result.run_id}` tells whether the backup alone is sound, `backupd binlog verify {job}`"
            " whether the archive is; take a new backup"
        )
    if result.only_own_checks_failed:
        hint = (
            "the backup restores, but its data is not what the job's own checks expect: look at the data,"
            f" and at [jobs.{job}.drill.checks]"
        )
    names = ", ".join(check.name for check in failed)
    drilled = " ".join(filter(None, ("the drill of run", result.run_id, result.to_moment)))
    return VerificationError(f"{drilled} failed: {names}", hint=hint)


def _own_checks(configuration: "Configuration", run: "RunDetails", machine: str) -> "tuple[DrillCheckConfig, ...]":
    """The checks that the run's job has now, unless another machine's job made the backup."""
    job = configuration.jobs.get(run.job)
    checks = () if job is None else tuple(job.drill.checks.values())
    if checks and run.machine != machine:
        tell(f"the checks of job {run.job} are not run: the backup is of another machine, {run.machine}")
        return ()
    return checks


def _restore_within(configuration: "Configuration", run: "RunDetails", machine: str) -> float | None:
    """What the run's job allows, unless another machine's job made the backup."""
    job = configuration.jobs.get(run.job)
    return job.restore_within_seconds if job is not None and run.machine == machine else None
