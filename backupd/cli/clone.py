"""`backupd clone`: from a backup to a folder in which a new replica starts."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.chosen import (
    GoodRunArgument,
    TargetOption,
    copies_of,
    identities_in,
    run_of,
    sources_of,
    unpruned,
)
from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.output import print_document, say, tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.mysql.seeding import ReplicationSource

_ADDRESS = re.compile(r"(?P<host>[^\s:\[\]'\\]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_LARGEST_PORT = 0xFFFF


def clone(
    ctx: typer.Context,
    run_id: GoodRunArgument,
    *,
    to: Annotated[Path, typer.Option(help="An empty folder.")],
    as_replica: Annotated[
        bool, typer.Option("--as-replica", help=("Required: a replica is all that can be made yet."))
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help=("The server that was backed up, which the replica will follow.")),
    ] = None,
    source_user: Annotated[str | None, typer.Option(help="Replication user on the source.")] = None,
    source_password_file: Annotated[Path | None, typer.Option(help="File with that user's password.")] = None,
    server_id: Annotated[
        int | None, typer.Option(min=1, max=0xFFFF_FFFF, help="server_id of the replica; default: random.")
    ] = None,
    gtid: Annotated[
        bool | None,
        typer.Option(
            "--gtid/--file-position",
            help=("Replicate by GTID or file position; default: GTID if the source uses it."),
            show_default=False,
        ),
    ] = None,
    target: TargetOption = None,
    identity: IdentityOption = None,
    json: JsonOption = False,
) -> None:
    """Make a replica from a backup: a folder, ready for a new server, that knows its replication position."""
    from backupd import wiring
    from backupd.cli.documents import clone_document
    from backupd.host.signals import cancellable
    from backupd.mysql.seeding import Following, Wanted, following, require_password_fits, require_position
    from backupd.operations.restore.clone import clone as clone_backup
    from backupd.operations.restore.clone import new_server_id, require_another_id
    from backupd.operations.restore.fallback import agreed
    from backupd.operations.restore.on_record import Deed, on_record

    if not as_replica:
        raise UsageError(
            "clone can only make replicas", hint="add --as-replica; for a plain copy use `backupd restore`"
        )
    followed = _source(source, source_user, source_password_file)
    configuration, identities = wiring.configuration(ctx.obj.config), identities_in(identity)
    with wiring.catalogue(configuration) as catalogue:
        run = run_of(catalogue, run_id, target=target)
        copies = sources_of(configuration, catalogue, run, copies_of(run, target=target))
        manifest, sources = agreed(copies, identities)
        require_position(manifest)
        if followed is not None:
            require_password_fits(manifest.server.flavour, followed.password)
        if server_id is not None:
            require_another_id(manifest, server_id)
        asked = None if gtid is None else Following.GTID if gtid else Following.FILE_POSITION
        wanted = Wanted(
            server_id=server_id if server_id is not None else new_server_id(manifest),
            following=following(manifest, asked),
            source=followed,
        )
        with (
            cancellable(),
            unpruned(configuration, run),
            on_record(catalogue, run.run_id, Deed.CLONE, to.absolute(), telling=tell, server_id=wanted.server_id),
        ):
            made = clone_backup(
                *(manifest, sources, wanted),
                to=to.absolute(),
                identities=identities,
                confined=not configuration.restore.unconfined,
                telling=tell,
            )
    if json:
        print_document(clone_document(manifest, wanted, made))
    else:
        say(f"cloned run {run.run_id} to {to} as replica {wanted.server_id}, by {wanted.following}")
        say(f"options: {made.option_file}; add socket and port, and start {manifest.server.flavour} with it")
        say(f"then: {'; '.join(made.seeded.left)}")


def _source(address: str | None, user: str | None, password_file: Path | None) -> "ReplicationSource | None":
    from backupd.config.secrets import password_in
    from backupd.mysql.seeding import ReplicationSource

    if address is None:
        if user is not None or password_file is not None:
            raise UsageError("a source user is given, but no source", hint="add --source HOST[:PORT]")
        return None
    found = _ADDRESS.fullmatch(address)
    port = int(found["port"] or 3306) if found else 0
    if found is None or not 0 < port <= _LARGEST_PORT:
        raise UsageError(
            f"{address!r} is not a HOST[:PORT]", hint="for example db1.example.org:3306, or [2001:db8::1]:3306"
        )
    if not user or "\\" in user:
        raise UsageError("--source needs a user", hint="add --source-user NAME, without backslashes")
    password = None if password_file is None else password_in(password_file, named="--source-password-file")
    return ReplicationSource(found["host"].strip("[]"), user, port, password)
