"""`backupd catalogue`: the record of all runs itself."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import print_document, say, tell
from backupd.vocabulary.errors import CatalogueError, TargetError, UsageError
from backupd.vocabulary.escaping import some
from backupd.vocabulary.units import format_size

if TYPE_CHECKING:
    from backupd.targets import Target

_NAMED = 5

app = typer.Typer(no_args_is_help=True, help="The record of all runs.")


@app.callback()
def commands() -> None:
    """The record of all runs."""


@app.command()
def rebuild(
    ctx: typer.Context,
    *,
    target: Annotated[str, typer.Option(help="The target whose backups are read.")],
    machine: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MACHINE",
            help=("Import another machine's backups, to restore from; retention never removes them."),
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only backups of this job.")] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help=(
                "Trust this public key from now on: as `backupd identity show` printed it on the machine that"
                " took the backups; repeatable."
            ),
            show_default=False,
        ),
    ] = None,
    unsigned: Annotated[
        bool,
        typer.Option(
            "--unsigned",
            help=("Also accept backups not signed by a trusted key: whoever can write to the target is trusted."),
        ),
    ] = False,
    set_back: Annotated[
        bool,
        typer.Option(
            "--set-back",
            help="This catalogue was set back to an earlier state: also add what was recorded under this machine's name"
            " beside it. What a clone took is added, too.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Add every finished backup of a target that the catalogue lacks, from its manifest, and results of drills that it
    lacks; existing rows stay.

    Of this machine's own jobs, segments of binlog archives are added as well. Only what a trusted key has signed is
    added: this machine's own, and those given with --trust.
    """
    from dataclasses import replace

    from backupd import wiring
    from backupd.cli.documents import rebuild_document
    from backupd.cli.identity import require_known
    from backupd.host import machine_ids as machines
    from backupd.host.claims import Claims
    from backupd.operations import context
    from backupd.operations.ownership import signer_of
    from backupd.operations.upkeep.rebuild import Rebuilding, recorded_here
    from backupd.operations.upkeep.rebuild import rebuild as read_manifests
    from backupd.operations.upkeep.rebuild_segments import rebuild_segments, require_rebuilt
    from backupd.policy.signing import require_public
    from backupd.policy.trust import Known
    from backupd.report.words import many

    keys = [require_public(key) for key in trust or ()]
    if unsigned:
        tell(
            "warning: --unsigned: the origin of these backups cannot be verified. Whoever can write to the target may"
            " have planted backups there, which a restore unpacks as root and a drill starts a server on"
        )

    configuration = context.configuration(ctx.obj.config)
    if machine is not None:
        with suppress(TargetError):  # a machine's folder may be read in one that may not be listed
            require_known(configuration, [target], machine)
    with context.own_catalogue(configuration) as catalogue:
        signer_of(catalogue, machines.this_machine())  # its key may have outlived its catalogue
        place = wiring.target(configuration, target, machine or catalogue.identity().name)
        for key in keys:
            catalogue.know_key(key, place.machine, Known.TRUSTED)
        believed = replace(catalogue.trust(place.machine), unsigned=unsigned)
        keys_of_hosts = frozenset(configuration.proofs.signers)
        own = place.machine == catalogue.identity().name
        here = recorded_here(catalogue) if own and not set_back else None
        reading = Claims(configuration.paths.run).reading
        rebuilding = read_manifests(
            *(place, catalogue, believed), job=job, proof_keys=keys_of_hosts, here=here, reading=reading
        )
        archives = rebuild_segments(place, catalogue, believed, job=job, here=here) if own else []
        if job is not None and rebuilding == Rebuilding():
            _require_of_job(place, job)
        others: list[str] = []
        if own and rebuilding == Rebuilding():
            with suppress(TargetError):
                others = sorted({*place.machines()} - {place.machine})
    if json:
        print_document(rebuild_document(place.name, rebuilding, archives))
    else:
        for run_id in rebuilding.imported:
            say(f"run {run_id}: added to the catalogue")
        for run_id in rebuilding.unfinished:
            say(f"run {run_id}: unfinished, skipped")
        say(f"{len(rebuilding.imported)} new, {len(rebuilding.known)} already known")
        for archive in archives:
            say(f"binlog of job {archive.job}: {many(archive.imported, 'segment')} new, {archive.known} already known")
    if own and rebuilding.imported:
        tell(
            "attention: pins are not stored on targets: `backupd prune --dry-run` shows which of these backups the next"
            " run will remove; pin again those that must stay: `backupd pin RUN --note WHY`"
        )
    if others:
        tell(
            f"attention: target {place.name} has no backups of this machine ({place.machine}), but has backups of"
            f" {some(others, _NAMED)}: to restore from them add --from MACHINE; if this machine replaces that one, run"
            " `backupd identity adopt MACHINE` first"
        )
    for archive in archives:
        if archive.strangers:
            tell(f"binlog of job {archive.job}: not backupd's, skipped: {some(archive.strangers, _NAMED)}")
    rebuilding.require_complete()
    require_rebuilt(archives)


def _require_of_job(target: "Target", job: str) -> None:
    """Raise where there is something of others of its machine's jobs, and nothing of this one.

    Raises:
        UsageError: naming those.
        TargetError: the target cannot be read.
    """
    there = {*target.archived_jobs(), *(backup.job for backup in target.backups())}
    if there and job not in there:
        raise UsageError(
            f"target {target.name} has nothing of job {job!r} of machine {target.machine}",
            hint=f"it has backups of {some(sorted(there), _NAMED)}",
        )


@app.command()
def check(ctx: typer.Context) -> None:
    """Read the whole catalogue: its pages, its references and every value. Changes nothing.

    The exit status is 13 where it is damaged. A digit or letter that was changed within a value shows in `audit
    verify`, where the audit trail tells of it.
    """
    from backupd.host.filesystem import is_absent
    from backupd.operations import context

    configuration = context.configuration_or_defaults(ctx.obj.config)
    path = configuration.catalogue.path
    if is_absent(path):
        raise CatalogueError(
            f"there is no catalogue {path}",
            hint="`backupd identity adopt MACHINE` makes one; `backupd catalogue rebuild --target T` adds each target's"
            " backups",
        )
    with context.catalogue(configuration) as catalogue:
        for fault in catalogue.faults():
            tell(f"fault: {fault}")
        catalogue.require_whole()
        rows = catalogue.rows()
    size = path.stat().st_size
    say(f"the catalogue {path} is whole: {rows} rows, {format_size(size)}")


@app.command()
def proofs(
    ctx: typer.Context,
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="Only those on this target.", show_default=False)
    ] = None,
) -> None:
    """Read the results that proof hosts have left beside this machine's backups; `serve` does it every hour.

    Only those signed by a key in proofs.signers count. A drill that failed is notified.
    """
    from backupd import wiring
    from backupd.cli.failure_answers import failure_answers
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.upkeep.proofs_read import read_proofs

    configuration = context.configuration(ctx.obj.config)
    keys = frozenset(configuration.proofs.signers)
    if not keys:
        raise UsageError(
            "no proof host is trusted",
            hint="enter its public key, as `backupd identity show` prints it there, into proofs.signers",
        )
    notifier, answers, taken = wiring.notifier(configuration), failure_answers(configuration), 0
    errors: dict[str, TargetError] = {}
    with cancellable(), context.catalogue(configuration) as catalogue:
        machine = catalogue.identity().name
        names = list(configuration.targets) if target is None else [target]
        for place in [wiring.target(configuration, name, machine) for name in names]:
            for job in configuration.jobs.values():
                within = job.restore_within_seconds
                read = read_proofs(
                    *(job.name, [place], catalogue, keys, notifier), answers=answers, within_seconds=within
                )
                taken += read.taken
                if read.errors:  # it would be the same for the next job
                    errors[place.name] = read.errors[0]
                    break
    say(f"{taken} new")
    if errors:
        told = "; ".join(f"{name}: {error.message}" for name, error in errors.items())
        raise TargetError(f"not all proofs could be read: {told}", hint=next(iter(errors.values())).hint)
