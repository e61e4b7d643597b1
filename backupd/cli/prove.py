"""`backupd prove`: a proof host drills the copies on its targets that need it most, and leaves signed proofs there."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.drill import DRILL_AGAIN
from backupd.cli.invocation import IdentityOption
from backupd.cli.output import say, tell
from backupd.cli.selection import TargetOption, identities_in
from backupd.vocabulary.errors import BackupdError, Undecided, UsageError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from backupd.config import Configuration
    from backupd.operations.restore.proof_host import Proof, TooLarge
    from backupd.operations.restore.proving import Proven
    from backupd.operations.upkeep.proving_notices import Problem
    from backupd.policy.proof_order import ProvableCopy
    from backupd.targets import Target


def prove(
    ctx: typer.Context,
    *,
    everything: Annotated[
        bool, typer.Option("--all/--once", help="Drill every copy, or only the one that needs it most.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="Drill at most N copies.", show_default=False)
    ] = None,
    target: TargetOption = None,
    identity: IdentityOption = None,
) -> None:
    """Drill stored backups of any machine, those that need it most first, and leave signed proofs beside them.

    For a proof host: a machine with access to the targets, the age identity and server programs, apart from the
    database hosts. These believe it once its public key is in their configuration.
    """
    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.upkeep.proving_notices import proving_told

    if everything and limit is not None:
        raise UsageError("--all and --limit cannot be combined", hint="use one of them")
    configuration = context.configuration(ctx.obj.config)
    most = None if everything else limit or 1
    with proving_told(wiring.notifier(configuration)) as problems, cancellable():
        _prove(configuration, target, identity, most=most, trouble=problems.extend)


def _prove(
    configuration: "Configuration",
    target: str | None,
    identity: "Path | None",
    *,
    most: int | None,
    trouble: "Callable[[Sequence[Problem]], object]",
) -> None:
    from backupd import wiring
    from backupd.operations import context
    from backupd.operations.ownership import signer_of
    from backupd.operations.restore.proof_host import ProofHost
    from backupd.operations.restore.proving import prove_copies

    if configuration.restore.unconfined:
        raise UsageError(
            "restore.unconfined = true is not allowed on a proof host, which unpacks backups that anybody may have"
            " written",
            hint="remove it, and run `backupd prove` where the kernel offers namespaces or Landlock",
        )
    settings = configuration.prove
    identities = identities_in(identity or settings.identity_file)
    with context.own_catalogue(configuration) as catalogue:
        name = catalogue.identity().name
        tools = wiring.host_tools(configuration, name)
        host = ProofHost(
            *(name, tools, signer_of(catalogue, tools.machine), identities, settings.servers),
            max_bytes=settings.max_size,
            checks=tuple(settings.checks.values()),
        )
        for told in prove_copies(
            *(host, _targets(configuration, name, target)),
            signers=frozenset(configuration.proofs.signers),
            most=most,
            not_now=_hours(configuration),
            stepping=lambda copy, step: tell(f"{_named(copy)}: {step}"),
        ):
            trouble(_told(told))


def _targets(configuration: "Configuration", machine: str, named: str | None) -> "dict[str, Target]":
    """By name. Raises UsageError where there is none, or none of that name."""
    from backupd import wiring

    names = list(configuration.targets) if named is None else [named]
    if not names:
        raise UsageError("no target is configured", hint="add a table [targets.NAME] for each storage with backups")
    return {name: wiring.target(configuration, name, machine) for name in names}


def _hours(configuration: "Configuration") -> "Callable[[], str]":
    """Why no drill may begin now; empty where one may."""
    from backupd.policy.blackouts import next_start
    from backupd.service.timetables import zone_of

    settings = configuration.prove
    if not settings.blackout:
        return lambda: ""
    zone = settings.zone or zone_of(configuration)

    def why() -> str:
        now = datetime.now(UTC)
        start = next_start(now, settings.blackout, zone)
        if start == now:
            return ""
        return "no drill may begin now (prove.blackout)" + (f": the next one at {start:%H:%M} UTC" if start else "")

    return why


def _told(what: "Proven") -> "Sequence[Problem]":
    """In one line; what is wrong with it is returned."""
    from backupd.operations.restore.proof_host import TooLarge
    from backupd.operations.restore.proving import LostTarget, NotNow, UnaskedCheck
    from backupd.operations.upkeep.proving_notices import Problem

    match what:
        case NotNow():
            say(what.why)
            return ()
        case LostTarget():
            rest = f"; copies on it that are passed over: {what.passed_over}" if what.passed_over else ""
            tell(f"target {what.name}: {what.why.message}{rest}")
            return (Problem(f"target {what.name}: {what.why.message}", what.why),)
        case UnaskedCheck(check):
            whose = f"job {check.job}" + (f" of machine {check.machine}" if check.machine else "")
            tell(f"attention: prove.checks.{check.name} is never asked: no backup of {whose} was found")
            return ()
    copy, named, result = what.copy, _named(what.copy), what.result
    if isinstance(result, BackupdError):
        say(f"not drilled: {named}: {result.message}")
        return (Problem(f"{named} was not drilled: {result.message}", result, copy.machine, copy.job),)
    if isinstance(result, TooLarge):
        say(_too_large(named, result))
        return ()
    say(_sentence(named, result))
    return [Problem(error.message, error, copy.machine, copy.job) for error in _faults(named, result)]


def _named(copy: "ProvableCopy") -> str:
    return f"run {copy.run_id} of job {copy.job} of machine {copy.machine} on target {copy.target}"


def _too_large(named: str, done: "TooLarge") -> str:
    from backupd.report.words import size

    return f"passed over: {named}: it takes {size(done.needed)}, and prove.max_size is {size(done.allowed)}"


def _sentence(named: str, done: "Proof") -> str:
    from backupd.report.words import duration

    drill = done.drill
    took = f"{len(drill.checks)} checks, server {done.server}, in {duration(drill.seconds)}"
    if drill.undecided:
        return f"undecided: {named}: {drill.undecided}"
    if drill.ok:
        return f"proven: {named}: {took}"
    wrong = "; ".join(f"{one.name}: found {one.found}, expected {one.expected}" for one in drill.checks if not one.ok)
    return f"NOT proven: {named}: {wrong}"


def _faults(named: str, done: "Proof") -> "list[BackupdError]":
    found: list[BackupdError] = []
    if done.drill.failed:
        hint = "do not rely on this copy; its machine reports it, if it trusts this proof host"
        if done.drill.only_own_checks_failed:
            hint = "the copy restores, but its data is not what [prove.checks] expects: look at the data, and at them"
        found.append(VerificationError(f"the drill failed: {named}", hint=hint))
    if done.drill.undecided:
        found.append(Undecided(f"the drill was undecided: {named}", hint=DRILL_AGAIN))
    if done.unwritten is not None:
        tell(f"the proof could not be written: {done.unwritten.message}")
        found.append(done.unwritten)
    return found
