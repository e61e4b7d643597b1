"""`backupd prove`: a proof host drills the copies on its targets that need it most, and leaves signed proofs there."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.chosen import TargetOption, identities_in
from backupd.cli.invocation import IdentityOption
from backupd.cli.output import say, tell
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    Undecided,
    UsageError,
    VerificationError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backupd.config import Configuration
    from backupd.operations.restore.proof_host import Proof, ProofHost, TooLarge
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
    from backupd.policy.proof_order import in_order

    if everything and limit is not None:
        raise UsageError("--all and --limit cannot be combined", hint="use one of them")
    configuration = wiring.configuration(ctx.obj.config)
    if configuration.restore.unconfined:
        raise UsageError(
            "a proof host drills what anybody may have stored, and restore.unconfined = true leaves that unbound",
            hint="remove it, and run `backupd prove` where the kernel offers namespaces or Landlock",
        )
    settings = configuration.prove
    identities = identities_in(identity or settings.identity_file)
    errors: list[BackupdError] = []
    with wiring.own_catalogue(configuration) as catalogue, cancellable():
        from backupd.operations.restore.proof_host import ProofHost
        from backupd.operations.upkeep.ownership import signer_of

        name = catalogue.identity().name
        tools = wiring.host_tools(configuration, name)
        host = ProofHost(
            *(name, tools, signer_of(catalogue, tools.machine), identities, settings.servers),
            max_bytes=settings.max_size,
        )
        targets = {one.name: one for one in _targets(configuration, name, target)}
        found = _provable(host, targets, frozenset(configuration.proofs.signers), errors)
        if not found and not errors:
            raise UsageError("there is no backup to prove", hint="no target has a finished backup")
        _prove_in_order(
            *(host, targets, in_order(found), errors),
            most=len(found) if everything else limit or 1,
            begins=_hours(configuration),
        )
    _raise_gravest(errors)


def _targets(configuration: "Configuration", machine: str, named: str | None) -> "Sequence[Target]":
    """Raises UsageError where there is none, or none of that name."""
    from backupd import wiring

    names = list(configuration.targets) if named is None else [named]
    if not names:
        raise UsageError("no target is configured", hint="add a table [targets.NAME] for each storage with backups")
    return [wiring.target(configuration, name, machine) for name in names]


def _provable(
    host: "ProofHost", targets: "dict[str, Target]", others: frozenset[str], errors: list[BackupdError]
) -> "list[ProvableCopy]":
    """What lies on the targets; one that cannot be read is told, and keeps no other from being looked at."""
    from backupd.operations.restore.proof_host import provable

    found: list[ProvableCopy] = []
    for target in targets.values():
        try:
            found += provable(target, others | {host.signer.public})
        except Cancelled:
            raise
        except BackupdError as error:
            tell(f"target {target.name}: {error.message}")
            errors.append(error)
    return found


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


def _prove_in_order(
    host: "ProofHost",
    targets: "dict[str, Target]",
    copies: "Sequence[ProvableCopy]",
    errors: list[BackupdError],
    *,
    most: int,
    begins: "Callable[[], str]",
) -> None:
    """One line for each copy that was drilled or passed over; what was wrong is in `errors`, too."""
    from backupd.operations.restore.proof_host import TooLarge, prove_copy

    drilled = 0
    for copy in copies:
        if drilled == most:
            return
        if why := begins():
            say(why)
            return
        named = f"run {copy.run_id} of job {copy.job} of machine {copy.machine} on target {copy.target}"
        try:
            done = prove_copy(host, targets[copy.target], copy, partial(_tell_step, named))
        except Cancelled:
            raise
        except BackupdError as error:
            say(f"not drilled: {named}: {error.message}")
            errors.append(error)
            continue
        if isinstance(done, TooLarge):
            say(_too_large(named, done))
            continue
        drilled += 1
        say(_sentence(named, done))
        errors += _faults(named, done)


def _tell_step(named: str, step: str) -> None:
    tell(f"{named}: {step}")


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
        found.append(
            VerificationError(
                f"the drill failed: {named}",
                hint="do not rely on this copy; its machine learns of it where it believes this host",
            )
        )
    if done.drill.undecided:
        found.append(
            Undecided(f"the drill was undecided: {named}", hint="drill it again with more time, memory or disk space")
        )
    if done.unwritten is not None:
        tell(f"the proof could not be written: {done.unwritten.message}")
        found.append(done.unwritten)
    return found


def _raise_gravest(errors: list[BackupdError]) -> None:
    """A copy that failed its drill before all else; then what came first. The others are told already."""
    if errors:
        raise next((error for error in errors if isinstance(error, VerificationError)), errors[0])
