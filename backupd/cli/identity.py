"""`backupd identity`: which machine this catalogue belongs to, and the ways out where that is not this one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say, tell
from backupd.vocabulary.errors import BackupdError, TargetError, UsageError

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.vocabulary.identity import Identity, Machine

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

app = typer.Typer(
    no_args_is_help=True, help=("A machine's identity: the name under which its backups are stored on targets.")
)


@app.callback()
def commands() -> None:
    """A machine's identity: the name under which its backups are stored on targets."""


@app.command()
def show(ctx: typer.Context, *, json: JsonOption = False) -> None:
    """Show which machine this catalogue belongs to, its public key, and who last wrote on each target.

    Keep the public key off the host, with the age identity: without the catalogue it proves which backups are genuine.
    """
    from backupd.host import machine_ids
    from backupd.operations import context
    from backupd.operations.ownership import signer_of

    configuration = context.configuration_or_defaults(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        identity = catalogue.identity()
        targets = [_on_target(configuration, catalogue, identity, name) for name in configuration.targets]
        here = machine_ids.this_machine()
        key = signer_of(catalogue, here).public if identity.is_of(here) else None
    if json:
        print_document({**_document(identity, here), "public_key": key, "targets": targets})
    else:
        print_text(_table(identity, here, key, targets))


@app.command()
def new(ctx: typer.Context, *, yes: YesOption = False) -> None:
    """On a clone: give this machine its own name. Earlier backups in the catalogue remain the other machine's."""
    from datetime import UTC, datetime

    from backupd.catalogue.audit import Event
    from backupd.cli.bench_plan import require_consent
    from backupd.host import machine_ids
    from backupd.operations import context
    from backupd.operations.ownership import signer_of
    from backupd.policy.signing import new_signer_at
    from backupd.vocabulary.identity import Identity, new_name
    from backupd.vocabulary.records import HoldingKind

    configuration = context.configuration_or_defaults(ctx.obj.config)
    here = machine_ids.this_machine()
    with context.catalogue(configuration) as catalogue:
        before = catalogue.identity().name
        tell(f"this machine gives up the name {before} and its backups on targets")
        require_consent(yes=yes)
        made = Identity(new_name(here.host), here.marks, datetime.now(UTC))
        new_signer_at(catalogue.key_file)  # first: the other machine has the old key, too
        catalogue.take_identity(made, Event.IDENTITY_NEW)
        key = signer_of(catalogue, here).public
        for run_id, holding in catalogue.holdings():
            if holding.kind in (HoldingKind.PARTIAL, HoldingKind.UPLOAD):  # the other machine may be at work on it
                catalogue.released(run_id, holding)
            elif holding.kind in (HoldingKind.SNAPSHOT, HoldingKind.SCRATCH_VOLUME):
                catalogue.released(run_id, holding)
                tell(
                    f"{holding.name} came with the image of {before}'s disk and has its name: `backupd recover`"
                    f" ignores it from now on. To remove it here: lvremove {holding.name}"
                )
    say(
        f"this machine is {made.name} from now on; the backups of {before} can be restored, and retention never"
        f" removes them"
    )
    say(f"it signs with a new key: {key}")


@app.command()
def adopt(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The machine's name on a target; default: the catalogue's own.", show_default=False
        ),
    ] = None,
    *,
    on: Annotated[
        list[str] | None,
        typer.Option("--target", help="Take over backups on this target only; repeatable.", show_default=False),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Continue here with a machine's identity: on new hardware, with a lost catalogue, or after a clone took over."""
    from datetime import UTC, datetime

    from backupd import wiring
    from backupd.catalogue.audit import Event
    from backupd.cli.bench_plan import require_consent
    from backupd.host import machine_ids
    from backupd.operations import context
    from backupd.operations.ownership import ownership_of, signer_of
    from backupd.vocabulary.identity import Identity

    configuration = context.configuration(ctx.obj.config)
    here = machine_ids.this_machine()
    with context.catalogue(configuration) as catalogue:
        name = name or catalogue.identity().name
        for target in on or ():
            wiring.target(configuration, target, name)  # raises where there is none of this name
        targets = on or [*configuration.targets]
        if name != catalogue.identity().name:
            require_known(configuration, targets, name)
        tell(
            f"this machine continues as {name}, and retention may remove its backups; any other machine with that"
            f" name is refused from now on{'' if on is None else ' on ' + ', '.join(on)}"
        )
        require_consent(yes=yes)
        catalogue.take_identity(Identity(name, here.marks, datetime.now(UTC)), Event.IDENTITY_ADOPTED)
        signer_of(catalogue, here)  # continues with the key that is here
        ownership = ownership_of(catalogue, wiring.host_tools(configuration, name))
        errors: list[BackupdError] = []
        for target in targets:
            try:
                ownership.adopt(wiring.target(configuration, target, name))
                tell(f"target {target}: taken over")
            except BackupdError as error:
                tell(f"target {target}: NOT taken over: {error.message}")
                errors.append(error)
    say(
        f"this machine is {name} from now on; `backupd catalogue rebuild --target T --trust KEY` adds its backups to"
        f" the catalogue, by the public key of the machine that took them"
    )
    if errors:
        errors[0].add_note("once it can be reached: `backupd identity adopt --target T` takes over the backups there")
        raise errors[0]


def require_known(configuration: "Configuration", targets: list[str], name: str) -> None:
    """A machine of this name has a folder on one of these targets.

    Raises:
        UsageError: none has, or no machine can be called so.
        TargetError: none that could be asked has, and this one could not.
    """
    from backupd import wiring
    from backupd.vocabulary.identity import is_name

    if not is_name(name):
        raise UsageError(
            f"{name!r} is not a machine's name", hint="HOST-xxxxxxxx, like the name of its folder on a target"
        )
    there: set[str] = set()
    errors: list[TargetError] = []
    for target in targets:
        try:
            there.update(wiring.target(configuration, target, name).machines())
        except TargetError as error:
            errors.append(error)
    if name not in there and errors:
        raise errors[0]
    if name not in there:
        known = ", ".join(sorted(there)) or "no machine's folder"
        raise UsageError(f"no target has a folder of machine {name}", hint=f"machines on the targets: {known}")


def _on_target(
    configuration: "Configuration", catalogue: "Catalogue", identity: "Identity", name: str
) -> dict[str, Any]:
    """Who wrote the last owner record there, and whether that was this catalogue's machine."""
    from backupd import wiring
    from backupd.policy import owner_record

    try:
        found = wiring.target(configuration, name, identity.name).owner()
    except BackupdError as error:
        return {"target": name, "number": None, "at": None, "host": None, "ours": None, "error": error.message}
    if found is None:
        return {"target": name, "number": 0, "at": None, "host": None, "ours": None, "error": None}
    ours = catalogue.end_of_chain(identity.name, owner_record.to_text(found)) is not None
    at = found.at.isoformat()
    return {"target": name, "number": found.number, "at": at, "host": found.host, "ours": ours, "error": None}


def _document(identity: "Identity", machine: "Machine") -> dict[str, Any]:
    return {
        "name": identity.name,
        "made_at": identity.made_at.isoformat(),
        "bound_to": sorted(identity.bound_to),
        "this_machine": identity.is_of(machine),
    }


def _table(identity: "Identity", machine: "Machine", key: str | None, targets: list[dict[str, Any]]) -> str:
    from backupd.report.words import columns, instant

    return columns(
        [
            ("machine:", identity.name),
            ("since:", instant(identity.made_at)),
            ("bound to:", _bound(identity, machine)),
            ("public key:", key or "unknown: it belongs to another machine"),
            *((f"target {one['target']}:", _writer(one)) for one in targets),
        ]
    )


def _bound(identity: "Identity", machine: "Machine") -> str:
    if not identity.bound_to:
        return "nothing: backupd found no id of this machine, so a clone of it cannot be told apart from it"
    by = ", ".join(sorted(identity.bound_to))
    return (
        f"this machine, by its {by}"
        if identity.is_of(machine)
        else f"another machine, by its {by}: nothing can be changed from here"
    )


def _writer(target: dict[str, Any]) -> str:
    from datetime import datetime

    from backupd.report.words import instant

    if target["error"] is not None:
        return f"unknown: {target['error']}"
    if not target["number"]:
        return "nothing written there yet"
    whose = "this catalogue" if target["ours"] else "ANOTHER MACHINE, or another catalogue,"
    at = instant(datetime.fromisoformat(target["at"]))
    return f"last written by {whose}: record {target['number']} at {at}, host {target['host']}"
