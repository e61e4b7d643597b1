"""`backupd prune`, `pin` and `unpin`: which backups stay, and the person's word that one must."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import print_document, print_text, say, tell
from backupd.cli.selection import GoodRunArgument, run_of, unpruned
from backupd.vocabulary.errors import BackupdError, Cancelled, ExitStatus, UsageError, worst_of_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration, JobConfig
    from backupd.operations.upkeep.prune import Pruning


def prune(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job; default: all jobs.")] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed and why; change nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Remove backups that their job's retention no longer keeps, and leftovers of dead runs on the targets.

    Of a binlog archive, remove the segments that no kept backup can be rolled forward by. The exit status is 3 where
    backups were found missing that backupd has not removed, and this was recorded: not with --dry-run.
    """
    from backupd import wiring
    from backupd.cli.documents import prune_document
    from backupd.cli.failure_answers import failure_answers
    from backupd.cli.run_text import prune_table, pruned_segments_table
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.ownership import ownership_of
    from backupd.operations.upkeep import notices
    from backupd.operations.upkeep.proofs_read import read_proofs
    from backupd.operations.upkeep.prune import prune as prune_job

    configuration = context.configuration(ctx.obj.config)
    chosen = list(configuration.jobs.values()) if job is None else [context.job(configuration, job)]
    keys = frozenset(configuration.proofs.signers)
    prunings: list[Pruning] = []
    errors: list[BackupdError] = []
    with (
        cancellable(),
        context.catalogue(configuration) as catalogue,
        left_for_node_exporter(configuration, catalogue),
    ):
        machine = catalogue.identity().name
        ownership = ownership_of(catalogue, wiring.host_tools(configuration, machine))
        for one in chosen:
            try:
                names = (*one.targets, *_former(configuration, catalogue, one))
                targets = [wiring.target(configuration, name, machine) for name in names]
                if keys and not dry_run:
                    notifier, answers = wiring.notifier(configuration), failure_answers(configuration)
                    within = one.restore_within_seconds
                    read_proofs(*(one.name, targets, catalogue, keys, notifier), answers=answers, within_seconds=within)
                vanished: list[tuple[str, str]] = []
                try:
                    prunings.append(
                        prune_job(
                            *(one, targets, catalogue),
                            ownership=ownership,
                            configured=configuration.targets,
                            dry_run=dry_run,
                            vanished=vanished,
                        )
                    )
                finally:  # the next pruning finds nothing gone: nobody else would tell
                    if vanished and not dry_run:
                        wiring.notifier(configuration).tell(notices.backups_vanished(one.name, vanished))
                prunings[-1].require_complete()
            except Cancelled:
                raise
            except BackupdError as error:
                errors.append(error)
        if job is None:
            _tell_former_jobs(configuration, catalogue)
    if json:
        print_document(prune_document(prunings, dry_run=dry_run))
    elif any(pruning.fates for pruning in prunings):
        print_text(prune_table(prunings, dry_run=dry_run))
        if any(pruning.segments for pruning in prunings):
            print_text(pruned_segments_table(prunings, dry_run=dry_run))
    elif not errors:
        say("no backup yet")
    for pruning in prunings:
        for target, run_id in pruning.vanished:
            tell(f"warning: backup {run_id} of job {pruning.job} is no longer on target {target}")
    if errors:
        raise worst_of_all(errors)
    if any(pruning.vanished for pruning in prunings) and not dry_run:
        raise typer.Exit(ExitStatus.ATTENTION)


def _former(configuration: "Configuration", catalogue: "Catalogue", job: "JobConfig") -> "Sequence[str]":
    """Targets that the job no longer names and that can be pruned; each that has backups of it is told."""
    from backupd.operations.upkeep.former_targets import former_targets, rule_on

    former = former_targets(job, catalogue)
    for name, backups in former.items():
        found = f"job {job.name} does not use target {name}, which has {backups} of its backups;"
        if name not in configuration.targets:
            tell(f"attention: {found} they stay, because the configuration no longer has that target")
        elif rule_on(job, name, catalogue) is None:
            tell(f"attention: {found} they stay, because no rule was ever set: see [jobs.{job.name}.retention.{name}]")
        else:
            ruled = "the target's own rule" if name in job.retention.targets else "the last rule that applied there"
            tell(f"{found} they are pruned by {ruled}")
    return [name for name in former if name in configuration.targets]


def _tell_former_jobs(configuration: "Configuration", catalogue: "Catalogue") -> None:
    """Jobs that were renamed or taken out, and still have backups: nobody prunes those."""
    from backupd.report.words import many

    for one in catalogue.stored():
        if one.job not in configuration.jobs:
            tell(
                f"attention: the configuration has no job {one.job}: its {many(one.backups, 'backup')} on target"
                f" {one.target} stay until a job of that name prunes them"
            )


def pin(
    ctx: typer.Context,
    run_id: GoodRunArgument,
    *,
    note: Annotated[str, typer.Option(help="Reason, shown with the run or job from now on.")],
) -> None:
    """Keep the backups of RUN, whatever retention says, until `unpin`."""
    from backupd.operations import context

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with (
        context.own_catalogue(configuration) as catalogue,
        unpruned(configuration, meant := run_of(configuration, catalogue, run_id)),
    ):
        run = catalogue.run(meant.run_id)  # as it is now that nobody removes it
        if run.backup is None:
            raise UsageError(
                f"run {run.run_id} has no backup to pin (status {run.status})", hint="see `backupd history`"
            )
        catalogue.pin(run.run_id, note)
    say(f"run {run.run_id} is pinned: {note}")


def unpin(ctx: typer.Context, run_id: GoodRunArgument) -> None:
    """Let retention decide about RUN again."""
    from backupd.operations import context

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with context.own_catalogue(configuration) as catalogue:
        run = run_of(configuration, catalogue, run_id)
        catalogue.unpin(run.run_id)
    say(f"run {run.run_id} was not pinned" if run.pin is None else f"run {run.run_id} is no longer pinned")
