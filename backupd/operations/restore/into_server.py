"""Tables of a backup loaded by rows into a running server, in a schema that it did not have.

By rows, and not as tablespaces: these are taken only by a server of the same series, page size and row format, from
somebody who can write to its datadir, and never reach its replicas. Rows need an account, and arrive everywhere.

The tables are recovered by a server of their own in the staging folder, as for a restore into a folder. Then they are
loaded under a name that nobody uses (`loading_schema`), compared with what the recovered server has, and only then seen
under the one that was asked for. An interrupted load is removed at once, or by `recover`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.host.filesystem import remove_tree
from backupd.host.holdings import held
from backupd.host.signals import shielded
from backupd.mysql.loading_schema import (
    LOAD_SECONDS,
    LoadingPlace,
    LoadingServer,
    make,
    new_place,
    prepare,
    publish,
    remove_loading,
    require_takes,
)
from backupd.mysql.proof import table_results
from backupd.mysql.relocation import Relocation
from backupd.mysql.row_differences import COMPARE_SECONDS, TableDifference, difference
from backupd.mysql.row_loading import checksum, load_rows, prepare_source
from backupd.mysql.scratch import CHECK_SECONDS, RunningServer, ScratchServer
from backupd.mysql.session import Connect, Session
from backupd.mysql.sqltext import quoted
from backupd.mysql.table_shape import TableShape, shape_of
from backupd.mysql.tablefiles import Table, TableFiles
from backupd.operations.restore.into_folder import restore
from backupd.operations.run_holdings import RunHoldings
from backupd.operations.tools import HostTools
from backupd.report import words
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ServerError, UsageError, VerificationError
from backupd.vocabulary.records import HoldingKind
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

_LARGEST_ROW = 1 << 30  # bytes: the most that either server lets a packet be


@dataclass(frozen=True, slots=True)
class IntoServer:
    """The server that a person named, and the new schema."""

    connect: Connect
    place: LoadingPlace

    @property
    def told(self) -> str:
        """The place for the audit trail."""
        return f"server {self.place.host}, schema {self.place.schema}"


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table in the running server, as whole as in the backup."""

    shape: TableShape
    size: int  # bytes of its files
    rows: int
    checksum: str | None  # None: the servers do not work it out alike, or not at all
    difference: TableDifference | None = None  # None: not looked for yet


@dataclass(frozen=True, slots=True)
class LoadedTables:
    """All of them, and what a person should look at."""

    tables: tuple[LoadedTable, ...]
    attentions: tuple[str, ...]


def into_server(host: str, connect: Connect, schema: str, tables: Sequence[Table]) -> IntoServer:
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
    return IntoServer(connect, new_place(host, schema))


def load_tables(
    sources: Sequence[BackupSource],
    tables: Sequence[Table],
    into: IntoServer,
    tools: HostTools,
    catalogue: Catalogue,
    *,
    identities: "Identities | None" = None,
    confined: bool = True,
    copied: Callable[[int, int], None] = lambda _done, _total: None,
    telling: Callable[[str], None] = lambda _step: None,
) -> LoadedTables:
    """The tables are in the new schema, whole, and compared with the live ones. When it raises, that is not there,
    unless it was stopped during that comparison: then it was told that they are complete.

    `sources` are copies of one run, the first of them preferred. Nothing is left in the staging folder.

    Raises:
        Refused: the schema exists, the account lacks a privilege, or the server is read-only. Nothing was fetched.
        UsageError: there is no such table in the backup; no room in the staging folder; the backup is encrypted, and no
            identity opens it; or as `load_recovered`.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written; or as `load_recovered`.
        ServerError: as `load_recovered`.
        Busy: this run's tables are being loaded, or the run is alive.
    """
    with into.connect() as session:
        require_takes(session, into.place)
    run_id = sources[0].run_id
    folder = tools.places.drill_folder(f"{run_id}-tables")
    with tools.claims.run(folder.name), tools.claims.run(run_id):
        remove_tree(folder)
        try:
            manifest = restore(
                sources,
                to=folder,
                identities=identities,
                tables=tables,
                copied=copied,
                confined=confined,
                keeps=False,
            )
            journal = RunHoldings(catalogue, run_id)
            return load_recovered(folder, manifest, tables, into, journal, confined=confined, telling=telling)
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
    with into.connect() as session:
        server = require_takes(session, into.place)
    telling("starting a server on the restored files")
    with ScratchServer(folder, manifest, partial=True, confined=confined).running() as scratch:
        work = _Loading(into, server, journal, scratch, manifest, telling)
        loaded = work.load(tables, _sizes(tables, folder, manifest))
    telling(f"schema {into.place.schema} is complete on {into.place.host}")
    return _compared(into, server, loaded, telling)


@dataclass(frozen=True, slots=True)
class _Loading:
    """From a server on the restored files into the running one."""

    into: IntoServer
    server: LoadingServer
    journal: RunHoldings
    scratch: RunningServer
    manifest: Manifest
    telling: Callable[[str], None]

    def load(self, tables: Sequence[Table], sizes: Sequence[int]) -> LoadedTables:
        """All tables, seen together."""
        self.scratch.session.execute(f"SET GLOBAL max_allowed_packet = {_LARGEST_ROW}")
        shapes = [shape_of(self.scratch.session, table) for table in tables]
        attentions = _attentions(self.server, self.into.place)
        for told in (_beforehand(self.server, self.into.place, sum(sizes)), *_left_behind(shapes), *attentions):
            self.telling(told)
        connect, place = self.into.connect, self.into.place
        releases = {HoldingKind.LOADING_SCHEMA: lambda holding: remove_loading(connect, holding)}
        with (
            held(self.journal, place.holding(tables), releases),
            connect(answer_seconds=LOAD_SECONDS) as session,
        ):
            prepare(session, self.server.flavour)
            make(session, place, shapes)
            loaded = [self._table(session, shape, size) for shape, size in zip(shapes, sizes, strict=True)]
            with shielded():
                publish(session, place, tables)
        unsure = [
            f"{each.shape.table}: {self.server.host} is of another series than the backup's server, and their checksums"
            f" differ or cannot be compared; the number of rows is the same"
            for each in loaded
            if each.checksum is None
        ]
        return LoadedTables(tuple(loaded), (*attentions, *unsure, *self.journal.attentions))

    def _table(self, to: Session, shape: TableShape, size: int) -> LoadedTable:
        self.telling(f"checking {shape.table}")
        _require_whole(self.scratch, shape.table)
        self.telling(f"loading {shape.table}")
        schema, name = self.into.place.loading, shape.table.name
        with self.scratch.another_session(answer_seconds=CHECK_SECONDS, as_stored=True) as source:
            prepare_source(source)
            rows = load_rows(
                *(source, to, shape, schema),
                server=self.server,
                loaded=lambda so_far: self.telling(f"loading {shape.table}: {so_far:,} rows so far"),
            )
        self.telling(f"comparing {shape.table} with the backup")
        expected = checksum(self.scratch.session, shape.table.schema, name)
        found = checksum(to, schema, name)
        same = expected is not None and expected == found
        backed_up = self.manifest.server
        series = (backed_up.flavour, backed_up.version_number[:2])
        alike = series == (self.server.flavour, self.server.version_number[:2])
        if not same and alike:
            raise VerificationError(
                f"{shape.table} is not on {self.server.host} as it is in the backup: checksum {found} instead of"
                f" {expected}, of {rows} rows",
                hint="nothing of it was kept there; restore it into a folder instead, with --to DIR",
            )
        return LoadedTable(shape, size, rows, found if same else None)


def _require_whole(scratch: RunningServer, table: Table) -> None:
    """No page of it is damaged: a server that passes over missing tables passes over damaged rows as well.

    Raises:
        VerificationError: one is.
    """
    named = f"{quoted(table.schema)}.{quoted(table.name)}"
    for result in table_results(scratch.session.query(f"CHECK TABLE {named} MEDIUM")):
        if not result.ok:
            raise VerificationError(
                f"{table} is damaged in this backup: {result.text}",
                hint="load it from another backup; `backupd drill` checks all tables of one",
            )


def _compared(
    into: IntoServer, server: LoadingServer, loaded: LoadedTables, telling: Callable[[str], None]
) -> LoadedTables:
    """The same with what each differs in from the live table; that it cannot be asked makes no table worse."""
    found: list[LoadedTable] = []
    attentions = list(loaded.attentions)
    for each in loaded.tables:
        telling(f"comparing {into.place.schema}.{each.shape.table.name} with the live {each.shape.table}")
        try:
            with into.connect(answer_seconds=2 * COMPARE_SECONDS) as session:
                told = difference(session, each.shape, into.place.schema, server.flavour)
        except ServerError as error:
            told = TableDifference(untold=error.message)
            attentions.append(f"{each.shape.table} was not compared with the live table: {error.message}")
        found.append(LoadedTable(each.shape, each.size, each.rows, each.checksum, told))
    return LoadedTables(tuple(found), tuple(attentions))


def _sizes(tables: Sequence[Table], folder: Path, manifest: Manifest) -> list[int]:
    """Bytes of each table's files: what the server's own books say of a table's size is an estimate."""
    datadir = Relocation(folder, manifest.datadir, manifest.server.datadir).datadir
    names = [str(path.relative_to(datadir)) for path in datadir.glob("*/*")]
    lower_case = manifest.server.settings.get("lower_case_table_names", "0") != "0"
    files = TableFiles(names, datadir="", lower_case=lower_case)
    return [sum((datadir / name).lstat().st_size for name in files.of(table, names)) for table in tables]


def _beforehand(server: LoadingServer, place: LoadingPlace, size: int) -> str:
    if not server.logs:
        share = "its binary log is off, so no replica receives them"
    elif server.replicas:
        share = f"they go through its binary log, so each of its {server.replicas} connected replicas writes as much"
    else:
        share = "they go through its binary log, so each replica that it has writes as much"
    return (
        f"loading about {words.size(size)} (the files of the tables) into {place.host} as schema {place.schema},"
        f" by rows: {share}"
    )


def _attentions(server: LoadingServer, place: LoadingPlace) -> list[str]:
    told = []
    if server.left_out:
        told.append(
            f"the binary log of {place.host} is filtered ({server.left_out}): replicas may not receive schema"
            f" {place.schema}, and a RENAME TABLE out of it would stop them"
        )
    if server.is_replica:
        told.append(f"{place.host} is a replica itself: its source does not receive schema {place.schema}")
    return told


def _left_behind(shapes: Sequence[TableShape]) -> list[str]:
    told = []
    for shape in shapes:
        if shape.foreign_keys:
            told.append(f"{shape.table} is loaded without its foreign keys: {'; '.join(shape.foreign_keys)}")
        if shape.triggers:
            told.append(f"{shape.table} is loaded without its triggers: {', '.join(shape.triggers)}")
    return told
