"""Tables of a backup loaded into a running server, in a schema that it did not have.

As tablespaces where that can be: these are taken only by a server of the same series, page size and row format, from
somebody who can write to its datadir, and never reach its replicas. Else by rows, which need an account alone, and
arrive everywhere.

The tables are recovered by a server of their own in the staging folder, as for a restore into a folder. Then they are
loaded under a name that nobody uses (`loading_schema`), compared with what the recovered server has, and only then seen
under the one that was asked for. An interrupted load is removed at once, or by `recover`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.host.filesystem import remove_tree
from backupd.host.signals import shielded
from backupd.mysql.loading_schema import (
    LoadingPlace,
    LoadingServer,
    new_place,
    require_takes,
)
from backupd.mysql.row_differences import COMPARE_SECONDS, TableDifference, difference
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.session import Connect, Session
from backupd.mysql.tablefiles import Table
from backupd.mysql.tablespace_loading import obstacle, obstacle_of_backup
from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.table_loading import LoadedTable, LoadedTables, LoadingPlan, TableLoading
from backupd.operations.run_holdings import RunHoldings
from backupd.operations.tools import HostTools
from backupd.targets import BackupSource
from backupd.vocabulary.errors import Refused, ServerError, UsageError
from backupd.vocabulary.servers import LoadingWay
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class IntoServer:
    """The server that a person named, and the new schema."""

    connect: Connect
    place: LoadingPlace
    by: LoadingWay | None = None  # None: by tablespace where nothing speaks against it

    @property
    def told(self) -> str:
        """The place for the audit trail."""
        return f"server {self.place.host}, schema {self.place.schema}"


def into_server(
    host: str, connect: Connect, schema: str, tables: Sequence[Table], *, by: LoadingWay | None = None
) -> IntoServer:
    """Where these tables can be loaded.

    Raises:
        UsageError: the name is not one for a new schema, or two of the tables have the same name.
    """
    names = [table.name.lower() for table in tables]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two of these tables are called {twice}, and both go into schema {schema}",
            hint="load one after the other, each under a schema of its own",
        )
    place = new_place(host, schema)
    return IntoServer(connect, replace(place, logged=by is not LoadingWay.TABLESPACE), by)


@dataclass(frozen=True, slots=True)
class TablesWanted:
    """Tables of one run, and what their restore into the staging folder needs."""

    sources: Sequence[BackupSource]  # copies of one run, the first of them preferred
    tables: Sequence[Table]
    identities: "Identities | None" = None
    confined: bool = True
    copied: Callable[[int, int], None] = lambda _done, _total: None
    telling: Callable[[str], None] = lambda _step: None


def load_tables(wanted: TablesWanted, into: IntoServer, tools: HostTools, catalogue: Catalogue) -> LoadedTables:
    """The tables are in the new schema, whole, and compared with the live ones. When it raises, that is not there,
    unless it was stopped during that comparison: then it was told that they are complete.

    Nothing is left in the staging folder.

    Raises:
        Refused: the schema exists, the account lacks a privilege, or the server is read-only. Nothing was fetched.
        UsageError: there is no such table in the backup; no room in the staging folder; the backup is encrypted, and no
            identity opens it; or as `load_recovered`.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written; or as `load_recovered`.
        ServerError: as `load_recovered`.
        Busy: this run's tables are being loaded, or the run is alive.
    """
    with _restored(wanted, into, tools) as (folder, manifest):
        journal = RunHoldings(catalogue, wanted.sources[0].run_id)
        return load_recovered(
            *(folder, manifest, wanted.tables, into, journal), confined=wanted.confined, telling=wanted.telling
        )


def plan_tables(wanted: TablesWanted, into: IntoServer, tools: HostTools, catalogue: Catalogue) -> LoadingPlan:
    """What `load_tables` would do, told. The tables are fetched and recovered for it; nothing of them is left, and
    nothing is made in the running server.

    Raises:
        As `load_tables` before it makes anything there.
    """
    with _restored(wanted, into, tools) as (folder, manifest):
        journal = RunHoldings(catalogue, wanted.sources[0].run_id)
        with _recovered(*(folder, manifest, into, journal), confined=wanted.confined, telling=wanted.telling) as (
            work,
            against,
        ):
            return work.plan(wanted.tables, against)


@contextmanager
def _restored(wanted: TablesWanted, into: IntoServer, tools: HostTools) -> Iterator[tuple[Path, Manifest]]:
    """In a folder that is gone after the block."""
    with into.connect() as session:
        require_takes(session, into.place)
        _require_imports(session, into)
    run_id = wanted.sources[0].run_id
    folder = tools.places.drill_folder(f"{run_id}-tables")
    with tools.claims.run(folder.name), tools.claims.beside(run_id, "tables"):
        remove_tree(folder)
        try:
            yield (
                folder,
                restore(
                    wanted.sources,
                    to=folder,
                    identities=wanted.identities,
                    tables=wanted.tables,
                    copied=wanted.copied,
                    confined=wanted.confined,
                    keeps=False,
                    staging=True,
                ),
            )
        finally:
            with shielded():
                remove_tree(folder)


def load_recovered(
    folder: Path,
    manifest: Manifest,
    tables: Sequence[Table],
    into: IntoServer,
    journal: RunHoldings,
    *,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> LoadedTables:
    """The same from a folder into which these tables were restored.

    Raises:
        Refused: as `load_tables`.
        UsageError: one is no table whose rows can be loaded; nothing here can keep a server within its bounds.
        VerificationError: a table is damaged, or what was loaded is not what the backup has.
        ServerError: either server failed, or the running one cannot have such a table.
    """
    with _recovered(folder, manifest, into, journal, confined=confined, telling=telling) as (work, against):
        loaded = work.load(tables, against)
    telling(f"schema {into.place.schema} is complete on {into.place.host}")
    return _compared(into, work.server, loaded, telling)


@contextmanager
def _recovered(
    folder: Path,
    manifest: Manifest,
    into: IntoServer,
    journal: RunHoldings,
    *,
    confined: bool,
    telling: Callable[[str], None],
) -> Iterator[tuple[TableLoading, str | None]]:
    """With a server on these files, and with what speaks against tablespaces."""
    with into.connect() as session:
        server = require_takes(session, into.place)
        own = ScratchServer(folder, manifest, partial=True, confined=confined)
        against = _against(session, into, server, manifest, recovered_by=own.require_startable())
    place = replace(into.place, logged=into.place.logged or not server.logs)
    telling("starting a server on the restored files")
    with own.running() as scratch:
        yield (
            TableLoading(into.connect, into.by, server, place, journal, scratch, folder, manifest, telling),
            against,
        )


def _require_imports(session: Session, into: IntoServer) -> None:
    """Where tables are to be imported, the server can.

    Raises:
        Refused: it cannot, whatever the backup.
    """
    if into.by is LoadingWay.TABLESPACE and (found := obstacle(session)) is not None:
        raise _cannot_import(into, found)


def _cannot_import(into: IntoServer, why: str) -> Refused:
    return Refused(f"{into.place.host} cannot import a tablespace of this backup: {why}", hint="load with --by rows")


def _against(
    session: Session, into: IntoServer, server: LoadingServer, manifest: Manifest, *, recovered_by: str
) -> str | None:
    """Why all tables are loaded by rows, as a clause; None where their tablespaces can be imported.

    Raises:
        Refused: they are to be, and cannot.
    """
    if into.by is LoadingWay.ROWS:
        return "as asked for"
    found = obstacle(session) or obstacle_of_backup(session, manifest, recovered_by)
    if into.by is LoadingWay.TABLESPACE and found is not None:
        raise _cannot_import(into, found)
    if found is None and into.by is None and server.logs:
        return (
            "the server's binary log is on: its replicas, and a recovery from that log, would lack the tables"
            " (--by tablespace imports anyway)"
        )
    return found


def _compared(
    into: IntoServer, server: LoadingServer, loaded: LoadedTables, telling: Callable[[str], None]
) -> LoadedTables:
    """The same with what each differs in from the live table; that it cannot be asked makes no table worse."""
    found: list[LoadedTable] = []
    noted = list(loaded.attentions)
    for each in loaded.tables:
        telling(f"comparing {into.place.schema}.{each.shape.table.name} with the live {each.shape.table}")
        try:
            with into.connect(answer_seconds=2 * COMPARE_SECONDS) as session:
                told = difference(session, each.shape, into.place.schema, server.flavour)
        except ServerError as error:
            told = TableDifference(untold=error.message)
            noted.append(f"{each.shape.table} was not compared with the live table: {error.message}")
        found.append(replace(each, difference=told))
    return replace(loaded, tables=tuple(found), attentions=tuple(noted))
