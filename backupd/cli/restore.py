"""`backupd restore`: from the target back into a folder or a volume, and what the copy needs next."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import IdentityOption
from backupd.cli.moments import (
    AskedMoment,
    BeforeGtidOption,
    JobOption,
    LatestOption,
    ToGtidOption,
    ToPositionOption,
    ToTimeOption,
    moment_of,
    restore_moment,
)
from backupd.cli.output import print_as_it_is, print_text, say, tell
from backupd.cli.selection import GOOD_RUN, TargetOption, copies_of, identities_in, run_of, sources_of, unpruned
from backupd.vocabulary.errors import CatalogueError, ExitStatus, UsageError
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.servers import LoadingWay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.lvm import BlankVolumes
    from backupd.mysql.tablefiles import Table
    from backupd.operations.restore.into_server import IntoServer, TablesWanted
    from backupd.operations.tools import HostTools
    from backupd.targets import BackupSource
    from backupd.vocabulary.records import RunDetails
    from backupd.vocabulary.storage import Manifest

_MOUNT_POINT = Path("MOUNT-POINT")  # of a volume that a person mounts later


def restore(
    ctx: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help=f"{GOOD_RUN} Not needed with a moment.", show_default=False)
    ] = None,
    *,
    to: Annotated[
        Path | None,
        typer.Option(help="An empty folder, or one in which this restore was interrupted.", show_default=False),
    ] = None,
    into_volume: Annotated[
        str | None,
        typer.Option(
            metavar="VG/LV",
            help=("A blank logical volume instead of a folder; it gets a file system."),
            show_default=False,
        ),
    ] = None,
    overwrite_leftovers: Annotated[
        bool,
        typer.Option("--overwrite-leftovers", help="With --into-volume: also a volume with data in no known format."),
    ] = False,
    prepare_replica: Annotated[
        bool,
        typer.Option(
            "--prepare-replica", help=("Also write the statements for a replica to replica.sql next to the datadir.")
        ),
    ] = False,
    target: TargetOption = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DB.T,…",
            help="Restore only these tables, and what a server needs. May be repeated.",
            show_default=False,
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="With --tables: load them into this running server, a host of the configuration.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="With --into: the new schema for the tables.", show_default=False),
    ] = None,
    by: Annotated[
        LoadingWay | None,
        typer.Option(
            help="With --into: import the tables' files, or load their rows. Default: what suits the server.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --into: tell how much would be loaded, and how; load nothing."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON document on stdout.")] = False,
    to_time: ToTimeOption = None,
    to_gtid: ToGtidOption = None,
    before_gtid: BeforeGtidOption = None,
    to_position: ToPositionOption = None,
    latest: LatestOption = False,
    job: JobOption = None,
    identity: IdentityOption = None,
) -> None:
    """Restore a backup into an empty folder, or continue an interrupted restore. Every byte is compared before use.

    With a moment (--to-time and others), the job's binlog archive is applied up to exactly there. Prints the next
    statements for a replica. With --into, single tables are loaded into a running server under a new schema, and
    compared with the live ones.
    """
    from backupd import wiring
    from backupd.cli.progress import share_done
    from backupd.host.signals import cancellable
    from backupd.mysql.tablefiles import tables_in
    from backupd.operations import context
    from backupd.operations.restore.on_record import Deed, on_record

    asked = _Asked(run_id, job, to, into_volume, into, schema, tables, by)
    if overwrite_leftovers and into_volume is None:
        raise UsageError("--overwrite-leftovers belongs to --into-volume", hint="omit it, or add --into-volume VG/LV")
    moment = moment_of(to_time, to_gtid, before_gtid, to_position, latest=latest)
    if moment is None:
        asked.require_fits(prepare_replica=prepare_replica, dry_run=dry_run, json=json)
    else:
        asked.require_fits_a_moment(more=prepare_replica or dry_run or json)
    chosen = () if tables is None else tables_in(",".join(tables))
    configuration, identities = context.configuration(ctx.obj.config), identities_in(identity)
    if moment is not None:
        assert to is not None
        wanted_moment = AskedMoment(moment, run_id, job)
        if restore_moment(configuration, wanted_moment, to=to, target=target, identities=identities, tables=chosen):
            raise typer.Exit(ExitStatus.ATTENTION)
        return
    assert run_id is not None
    server = None if into is None else _server(configuration, into, schema or "", chosen, by)
    with context.catalogue(configuration) as catalogue:
        run = run_of(configuration, catalogue, run_id, target=target)
        sources = sources_of(configuration, catalogue, run, copies_of(run, target=target, broken_last=True))
        if into is None:
            _tell_where_its_archive_leads(run, catalogue, configuration)
        with cancellable(), unpruned(configuration, run), share_done("restored") as copied:
            confined = not configuration.restore.unconfined
            wanted = _Wanted(run, sources, identities, copied, prepare_replica=prepare_replica, confined=confined)

            def tools() -> "HostTools":
                """A restore into a folder goes without them: who this machine is need not be known."""
                return wiring.host_tools(configuration, catalogue.identity().name)

            if server is not None and dry_run:
                _plan(wanted.of(chosen), server, tools(), catalogue, json=json)
                return
            place = server.told if server else to.absolute() if to is not None else str(into_volume)
            named = {"tables": list(map(str, chosen))} if chosen else {}
            with on_record(catalogue, run.run_id, Deed.RESTORE, place, sources, telling=tell, **named) as done:
                if to is not None:
                    done.attentions.extend(_to_folder(wanted, to, chosen))
                elif into_volume is not None:
                    blanks = wiring.blank_volumes(overwrite_leftovers=overwrite_leftovers)
                    done.attentions.extend(_into_volume(wanted, into_volume, tools(), blanks, catalogue))
                elif server is not None:
                    done.attentions.extend(_into_server(wanted.of(chosen), server, tools(), catalogue))
    if done.attentions:
        raise typer.Exit(ExitStatus.ATTENTION)


@dataclass(frozen=True)
class _Asked:
    """What is to be restored, and to where, as it was typed."""

    run_id: str | None
    job: str | None
    to: Path | None
    into_volume: str | None
    into: str | None
    schema: str | None
    tables: "Sequence[str] | None"
    by: LoadingWay | None

    def require_fits_a_moment(self, *, more: bool) -> None:
        """A moment is restored into a folder, with `more` options for nothing else.

        Raises:
            UsageError: something else was asked for.
        """
        if self.into is not None:
            raise UsageError(
                "--into cannot load tables as of a moment",
                hint="use --tables DB.T --to DIR with the moment, then import the files as the output says",
            )
        if self.to is None or [self.into_volume, self.schema, self.by].count(None) != 3 or more:
            raise UsageError(
                "a restore to a moment needs --to DIR, and takes --tables but no other option of restores",
                hint="give --to DIR, and --tables if you like; what a replica needs is printed anyway",
            )

    def require_fits(self, *, prepare_replica: bool, dry_run: bool, json: bool) -> None:
        """A run and one place are named, and the options belong to it.

        Raises:
            UsageError: not so.
        """
        if self.run_id is None:
            raise UsageError(
                "name the run to restore", hint="RUN is an id, latest[:JOB], latest-good[:JOB] or as-of=TIME[:JOB]"
            )
        if self.job is not None:
            raise UsageError(
                "--job belongs to a moment, and none was given", hint="omit --job, or add --to-latest or --to-time"
            )
        if [self.to, self.into_volume, self.into].count(None) != 2:
            raise UsageError(
                "give one place to restore to",
                hint="--to DIR, or --into-volume VG/LV, or --tables DB.T --into HOST --as NAME",
            )
        if (self.into is None) != (self.schema is None) or (self.into is not None and self.tables is None):
            raise UsageError(
                "--into HOST and --as NAME belong together, and need --tables",
                hint="give all three: --tables DB.T --into HOST --as NAME; NAME must not exist there",
            )
        if self.by is not None and self.into is None:
            raise UsageError("--by belongs to --into", hint="--tables DB.T --into HOST --as NAME --by rows")
        if (dry_run and self.into is None) or (json and not dry_run):
            raise UsageError(
                "--dry-run belongs to --into, and --json to --dry-run",
                hint="--tables DB.T --into HOST --as NAME --dry-run --json",
            )
        if self.tables is not None and (self.into_volume is not None or prepare_replica):
            raise UsageError(
                "single tables can only be restored into a folder or a running server, and make no replica",
                hint="with --tables, give --to DIR, or --into HOST --as NAME",
            )


def _tell_where_its_archive_leads(run: "RunDetails", catalogue: "Catalogue", configuration: "Configuration") -> None:
    """Before hours are spent on the backup alone: what was committed after it can be had as well. Where the catalogue
    does not tell that, the backup is restored all the same.
    """
    from backupd.cli.history import leads_to_of

    rolled = None
    with suppress(CatalogueError):
        rolled = leads_to_of(run, catalogue, configuration)
    if rolled is not None:
        wanted = "To include all of it" if rolled.to_the_end else "To restore a moment until then"
        moment = "--to-latest" if rolled.to_the_end else "--to-time TIME"
        tell(
            f"this restores the backup alone, as of {to_the_second(rolled.since)}; the binlog archive reaches"
            f" {to_the_second(rolled.until)}. {wanted}: backupd restore {run.run_id} {moment} --to DIR"
        )


@dataclass(frozen=True)
class _Wanted:
    """What is restored, from where, and what is to be said afterwards."""

    run: "RunDetails"
    sources: "Sequence[BackupSource]"
    identities: "Identities | None"
    copied: "Callable[[int, int], None]"
    prepare_replica: bool
    confined: bool

    def of(self, tables: "Sequence[Table]") -> "TablesWanted":
        """These tables of it, for a running server."""
        from backupd.operations.restore.into_server import TablesWanted

        return TablesWanted(
            self.sources,
            tables,
            identities=self.identities,
            confined=self.confined,
            copied=self.copied,
            telling=tell,
        )

    def steps(self, manifest: "Manifest", folder: Path, seen_as: Path) -> str:
        """What the copy in a folder needs next, which people see under another name; written beside it if wanted."""
        from backupd.host.filesystem import write_beside
        from backupd.mysql.next_steps import next_steps
        from backupd.mysql.replica_files import STATEMENTS_FILE

        found = self.run.position if self.run.derived else None
        text = next_steps(manifest, seen_as / manifest.datadir, found=found)
        if self.prepare_replica:
            hint = "the restored copy is complete; without --prepare-replica the same text goes to stdout only"
            write_beside(folder / STATEMENTS_FILE, text, hint=hint)
        return text


def _to_folder(wanted: _Wanted, to: Path, tables: "Sequence[Table]") -> "Sequence[str]":
    """What a person should look at although the files are restored."""
    if tables:
        return _tables_to_folder(wanted, to, tables)
    from backupd.mysql.restored_owner import restored_owner
    from backupd.operations.restore.into_folder import restore as restore_backup

    manifest = restore_backup(
        wanted.sources, to=to, identities=wanted.identities, copied=wanted.copied, confined=wanted.confined
    )
    steps = wanted.steps(manifest, to, to.absolute())
    say(f"restored run {wanted.run.run_id} to {to}: datadir {to / manifest.datadir}")
    print_text(f"{restored_owner(to.absolute() / manifest.datadir)}{steps.rstrip()}")
    return ()


def _tables_to_folder(wanted: _Wanted, to: Path, tables: "Sequence[Table]") -> "Sequence[str]":
    from backupd.cli.exported_tables import tell_restored
    from backupd.operations.restore.tables_into_folder import restore_tables

    restored = restore_tables(
        wanted.sources,
        to=to,
        tables=tables,
        identities=wanted.identities,
        copied=wanted.copied,
        confined=wanted.confined,
        telling=tell,
    )
    return tell_restored(to.absolute(), restored, tables)


def _server(
    configuration: "Configuration", host: str, schema: str, tables: "Sequence[Table]", by: LoadingWay | None
) -> "IntoServer":
    """Imported here: a restore into a folder loads nothing into a server."""
    from backupd.operations.configured_servers import connect_to
    from backupd.operations.restore.into_server import into_server

    return into_server(host, connect_to(configuration, host), schema, tables, by=by)


def _plan(
    wanted: "TablesWanted", server: "IntoServer", tools: "HostTools", catalogue: "Catalogue", *, json: bool
) -> None:
    """What a load says beforehand is told as ever; a program takes it from the document."""
    from backupd.cli.documents import loading_document
    from backupd.cli.output import print_document
    from backupd.operations.restore.into_server import plan_tables

    run_id = wanted.sources[0].run_id
    plan = plan_tables(wanted, server, tools, catalogue)
    if json:
        print_document(loading_document(run_id, plan))
    else:
        say(f"dry run: nothing of run {run_id} was loaded into {server.place.host}, and nothing was left behind")


def _into_server(
    wanted: "TablesWanted", server: "IntoServer", tools: "HostTools", catalogue: "Catalogue"
) -> "Sequence[str]":
    from backupd.cli.loaded_tables import loaded_lines
    from backupd.operations.restore.into_server import load_tables

    loaded = load_tables(wanted, server, tools, catalogue)
    for line in loaded_lines(wanted.sources[0].run_id, server.place, loaded):
        print_as_it_is(line)
    for text in loaded.attentions:
        tell(f"attention: {text}")
    return loaded.attentions


def _into_volume(
    wanted: _Wanted, name: str, tools: "HostTools", blanks: "BlankVolumes", catalogue: "Catalogue"
) -> "Sequence[str]":
    from backupd.mysql.restored_owner import restored_owner
    from backupd.operations.restore.into_folder import restore_at
    from backupd.operations.restore.into_volume import restore_into_volume
    from backupd.operations.restore.next_copy import agreed

    manifest, sources = agreed(wanted.sources, wanted.identities)
    steps = ""

    def fill(at: Path) -> None:
        nonlocal steps
        with restore_at(
            *(at, sources, manifest),
            identities=wanted.identities,
            copied=wanted.copied,
            confined=wanted.confined,
        ):
            steps = wanted.steps(manifest, at, _MOUNT_POINT)
        owner = restored_owner(at / manifest.datadir, seen_as=_MOUNT_POINT / manifest.datadir)
        steps = f"{owner}{steps}"

    filled = restore_into_volume(manifest, name, tools, blanks, catalogue, fill=fill)
    say(f"restored run {manifest.run_id} to {filled.volume.full_name}: datadir {_MOUNT_POINT / manifest.datadir}")
    say(f"mount it: {filled.mount_line}")
    print_text(steps.rstrip())
    for text in filled.attentions:
        tell(f"attention: {text}")
    return filled.attentions
