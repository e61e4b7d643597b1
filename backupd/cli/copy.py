"""`backupd copy`: one more copy of a backup, or of all that a target lacks, from one target to another."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import IdentityOption
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import say, tell
from backupd.cli.selection import GOOD_RUN, identities_in, run_of
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    CatalogueError,
    ExitStatus,
    NotOurs,
    OutputError,
    TargetAway,
    UsageError,
    worst_of_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.upkeep.additional_copy import AdditionalCopy, CopyRoute


_NAMED = 5  # runs, in a sentence


def copy(
    ctx: typer.Context,
    run_id: Annotated[str | None, typer.Argument(metavar="RUN", help=GOOD_RUN, show_default=False)] = None,
    *,
    origin: Annotated[str, typer.Option("--from", metavar="TARGET", help="Target that has the backup.")],
    destination: Annotated[str, typer.Option("--to", metavar="TARGET", help="Target that gets a copy of it.")],
    missing: Annotated[
        bool,
        typer.Option(
            "--missing", help="All good backups that the first target has and the second lacks, newest first."
        ),
    ] = False,
    job: Annotated[
        str | None, typer.Option(help="With --missing: only this job's; default: all jobs.", show_default=False)
    ] = None,
    recipients: Annotated[
        list[str] | None,
        typer.Option(
            "--recipients",
            metavar="AGE1…",
            help=(
                "Encrypt the copies for these age recipients instead, in memory; several by commas or repeated. What"
                " is encrypted for others is opened with --identity."
            ),
            show_default=False,
        ),
    ] = None,
    identity: IdentityOption = None,
) -> None:
    """Copy verified backups from one target to another. Every byte is compared on the way, and read back afterwards.

    Encrypted backups stay as they are, and no key is needed, unless --recipients names others.
    """
    from backupd import wiring
    from backupd.archive import heap
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.upkeep import additional_copy, lacking, notices

    if (run_id is None) == (not missing):
        raise UsageError(
            "name a run, or --missing", hint="backupd copy RUN --from A --to B; or --missing --from A --to B"
        )
    if job is not None and not missing:
        raise UsageError("--job needs --missing", hint="a run belongs to one job anyway")
    if origin == destination:
        raise UsageError(f"--from and --to are both {origin}", hint="name two targets")
    heap.confine()
    readers = _recipients(recipients)
    configuration = context.configuration(ctx.obj.config)
    jobs = configuration.jobs if job is None else {job: context.job(configuration, job)}
    with (
        context.own_catalogue(configuration) as catalogue,
        cancellable(),
        left_for_node_exporter(configuration, catalogue),
    ):
        route = replace(_route(configuration, catalogue, origin, destination), recipients=readers)
        if readers:
            route = replace(route, identities=identities_in(identity))
        additional_copy.clean_up(route)
        attend = partial(notices.attend, catalogue, wiring.notifier(configuration), found_by="copy")
        if run_id is not None:
            attentions = _copy(route, run_of(configuration, catalogue, run_id, target=origin).run_id, attend)
        else:
            names = tuple(jobs)
            absent = [run.run_id for run in lacking.missing(route, tuple(jobs.values()))]
            broken = [run.run_id for run in lacking.broken_there(route, names)]
            if not absent and not broken:
                say(f"nothing is missing on target {destination}")
            attentions = [
                *_broken_there(route, broken),
                *_copy_all(route, attend, absent),
                *_left_to_others(route, [run.run_id for run in lacking.for_others(route, names)]),
                *_archives_left(route, names),
            ]
    if attentions:
        raise typer.Exit(ExitStatus.ATTENTION)


def _recipients(texts: "Sequence[str] | None") -> tuple[str, ...]:
    """Raises UsageError where one is none."""
    if texts is None:
        return ()
    from backupd.config.recipients import recipients_in
    from backupd.vocabulary.faults import BadValue

    try:
        return recipients_in(texts)
    except BadValue as bad:
        raise UsageError(f"--recipients: {bad.fact}", hint=bad.hint) from None


def _broken_there(route: "CopyRoute", run_ids: "Sequence[str]") -> "Sequence[str]":
    """What a person should know before the first target is emptied: no copy can mend these."""
    if not run_ids:
        return ()
    from backupd.operations.upkeep.additional_copy import BROKEN_GOES
    from backupd.report.words import many
    from backupd.vocabulary.escaping import some

    name, is_are, was_were = route.destination.name, *(("is", "was") if len(run_ids) == 1 else ("are", "were"))
    text = (
        f"{many(len(run_ids), 'backup')} on target {name} {is_are} broken and {was_were} not copied again:"
        f" {some(run_ids, _NAMED)}"
    )
    tell(f"attention: {text}")
    tell(f"hint: {BROKEN_GOES}")
    return (text,)


def _left_to_others(route: "CopyRoute", run_ids: "Sequence[str]") -> "Sequence[str]":
    """What a person should know of backups that are there already, but are not for the recipients that were named."""
    if not run_ids:
        return ()
    from backupd.report.words import many
    from backupd.vocabulary.escaping import some

    is_are, was_were = ("is", "was") if len(run_ids) == 1 else ("are", "were")
    text = (
        f"{many(len(run_ids), 'backup')} on target {route.destination.name} {is_are} not encrypted for exactly these"
        f" recipients, and {was_were} not copied again: {some(run_ids, _NAMED)}"
    )
    tell(f"attention: {text}")
    return (text,)


def _archives_left(route: "CopyRoute", jobs: "Sequence[str]") -> "Sequence[str]":
    """What a person should know before the first target is emptied: a copy takes no binlog archive along."""
    from backupd.report.words import many

    texts = []
    origin, new = route.origin.name, route.destination.name
    for job in jobs:
        if missing := route.ownership.catalogue.segments_missing(job, new, of=origin):
            texts.append(
                f"the binlog archive of job {job} is not copied: {many(missing, 'segment')}"
                f" {'is' if missing == 1 else 'are'} on target {origin} but not on target {new}; moments that need"
                f" {'it' if missing == 1 else 'them'} can be restored as long as target {origin} keeps"
                f" {'it' if missing == 1 else 'them'}"
            )
            tell(f"attention: {texts[-1]}")
    return texts


def _route(configuration: "Configuration", catalogue: "Catalogue", origin: str, destination: str) -> "CopyRoute":
    """Raises UsageError where one of the targets is not configured."""
    from backupd import wiring
    from backupd.config.targets import modest, takes_plain
    from backupd.operations.ownership import ownership_of
    from backupd.operations.upkeep.additional_copy import CopyRoute

    machine = catalogue.identity().name
    targets = {name: modest(target) for name, target in configuration.targets.items()}
    configuration = replace(configuration, targets=targets)
    tools = wiring.host_tools(configuration, machine)
    return CopyRoute(
        wiring.target(configuration, origin, machine),
        wiring.target(configuration, destination, machine),
        ownership=ownership_of(catalogue, tools),
        tools=tools,
        max_rate=wiring.finishing(configuration),
        takes_plain=takes_plain(configuration.targets[destination]),
    )


def _copy_all(route: "CopyRoute", attend: "Callable[[str, str], None]", run_ids: "Sequence[str]") -> "Sequence[str]":
    """Each by itself: one that fails keeps no other from being copied.

    Raises:
        BackupdError: the worst of what failed, with the others as notes. Whatever would fail with every other run too
            ends it: a target that does not answer or is another machine's, the catalogue, a signal.
    """
    attentions: list[str] = []
    errors: list[BackupdError] = []
    for run_id in run_ids:
        try:
            attentions += _copy(route, run_id, attend)
        except (Cancelled, CatalogueError):
            raise
        except OutputError as error:  # the copy is there
            errors.append(error)
        except BackupdError as error:
            tell(f"run {run_id} was not copied: {error.message}")
            errors.append(error)
            if isinstance(error, TargetAway | NotOurs):
                break
    if errors:
        raise worst_of_all(errors)
    return attentions


def _copy(route: "CopyRoute", run_id: str, attend: "Callable[[str, str], None]") -> "Sequence[str]":
    """Say what became of it; return what a person should look at, which is told by `attend` too."""
    from backupd.cli.progress import share_done
    from backupd.operations.upkeep.additional_copy import copy_run

    with share_done(f"copying {run_id} to {route.destination.name}, and reading it back:") as copied:
        done = copy_run(route, run_id, copied=copied)
    if done is None:
        say(f"run {run_id} is on target {route.destination.name} already")
        return ()
    for text in done.attentions:
        attend(run_id, text)
    say(_sentence(route, done))
    for text in done.attentions:
        tell(f"attention: {text}")
    return done.attentions


def _sentence(route: "CopyRoute", done: "AdditionalCopy") -> str:
    from backupd.report.words import duration, size

    return (
        f"copied run {done.run_id} from target {route.origin.name} to target {route.destination.name}{_readers(done)}:"
        f" {size(done.bytes_stored)} in {duration(done.send_seconds)},"
        f" read back in {duration(done.read_back_seconds)}: {done.location}"
    )


def _readers(done: "AdditionalCopy") -> str:
    return f", encrypted for {', '.join(done.recipients)}" if done.recipients else ""
