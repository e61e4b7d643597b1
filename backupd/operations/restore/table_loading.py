"""Tables on their way from the server on restored files into the running one, each by its way, and seen together."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backupd.host.filesystem import room, share_that_stays_free
from backupd.host.holdings import held
from backupd.host.signals import shielded
from backupd.mysql.loading_schema import (
    LOAD_SECONDS,
    LoadingPlace,
    LoadingServer,
    make,
    make_again,
    prepare,
    publish,
    remove_loading,
)
from backupd.mysql.long_values import require_long_values
from backupd.mysql.proof import require_whole
from backupd.mysql.refusals import StatementError
from backupd.mysql.row_differences import TableDifference
from backupd.mysql.row_loading import checksum, load_rows, prepare_source
from backupd.mysql.scratch import CHECK_SECONDS, RunningServer
from backupd.mysql.session import Connect, Session
from backupd.mysql.table_shape import TableShape, shape_of
from backupd.mysql.tablefiles import Table, restored_files
from backupd.mysql.tablespace_loading import (
    binlogs_here,
    datadir_here,
    import_tablespace,
    obstacle_of_table,
    tablespace_of,
)
from backupd.operations.restore.loading_notes import attentions, beforehand, left_behind
from backupd.operations.run_holdings import RunHoldings
from backupd.policy.loading_pace import LoadingPace
from backupd.report import words
from backupd.vocabulary.errors import Refused, Undecided, VerificationError
from backupd.vocabulary.records import HoldingKind
from backupd.vocabulary.servers import LoadingWay
from backupd.vocabulary.storage import Manifest

_LARGEST_ROW = 1 << 30  # bytes: the most that either server lets a packet be
_WORTH_TELLING = 1.0  # seconds


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
    logged: bool = True  # the new schema is in the server's binary log, where it has one


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table in the server on the restored files."""

    shape: TableShape
    size: int  # bytes of its files
    tablespace: Path | None  # to be imported; None: its rows are loaded
    odd: str | None  # why, where that is for the table's own sake

    @property
    def way(self) -> LoadingWay:
        return LoadingWay.ROWS if self.tablespace is None else LoadingWay.TABLESPACE


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """What would be loaded, and how. Nothing was made in the running server."""

    server: LoadingServer
    place: LoadingPlace
    tables: tuple[PlannedTable, ...]
    against: str | None  # why no table goes by tablespace
    attentions: tuple[str, ...]
    datadir: Path | None = None  # of the running server, where it is here
    binlogs: Path | None = None  # the folder of its binary log, where that is here and gets the rows

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(table.size for table in self.tables)


@dataclass(frozen=True, slots=True)
class TableLoading:
    """From a server on the restored files into the running one."""

    connect: Connect
    by: LoadingWay | None
    server: LoadingServer
    place: LoadingPlace
    journal: RunHoldings
    scratch: RunningServer
    folder: Path
    manifest: Manifest
    telling: Callable[[str], None]

    def plan(self, tables: Sequence[Table], against: str | None) -> LoadingPlan:
        """What becomes of all tables, told; by rows where something speaks `against` tablespaces."""
        with self.connect() as session:
            planned = tuple(self._planned(session, table, against) for table in tables)
            found = tuple(attentions(self.server, self.place))
            binlogs = binlogs_here(session) if self.server.logs and self.place.logged else None
            plan = LoadingPlan(self.server, self.place, planned, against, found, datadir_here(session), binlogs)
        _require_room(plan)
        self._tell(plan)
        return plan

    def load(self, tables: Sequence[Table], against: str | None) -> LoadedTables:
        """All tables, seen together, as planned."""
        self.scratch.session.execute(f"SET GLOBAL max_allowed_packet = {_LARGEST_ROW}")
        plan, connect = self.plan(tables, against), self.connect
        releases = {HoldingKind.LOADING_SCHEMA: lambda holding: remove_loading(connect, holding)}
        with (
            held(self.journal, self.place.holding(tables, self.server), releases),
            connect(answer_seconds=LOAD_SECONDS) as session,
        ):
            prepare(session, self.server.flavour, logged=self.place.logged)
            make(session, self.place, [planned.shape for planned in plan.tables])
            loaded = [self._table(session, planned, plan) for planned in plan.tables]
            with shielded():
                publish(session, self.place, tables)
        unsure = [
            f"{each.shape.table}: {self.server.host} is of another series than the backup's server, and their checksums"
            f" differ or cannot be compared; the number of rows is the same"
            for each in loaded
            if each.checksum is None
        ]
        noted = (*plan.attentions, *unsure, *self.journal.attentions)
        return LoadedTables(tuple(loaded), noted, logged=self.place.logged)

    def _planned(self, to: Session, table: Table, against: str | None) -> PlannedTable:
        shape, files = shape_of(self.scratch.session, table), restored_files(self.folder, self.manifest, table)
        odd = None if against else obstacle_of_table(self.scratch.session, to, shape, files, self.folder)
        if odd and self.by is LoadingWay.TABLESPACE:
            raise Refused(f"{table} cannot be loaded by tablespace: {odd}", hint="load it with --by rows")
        size = sum(path.lstat().st_size for path in files)
        return PlannedTable(shape, size, None if against or odd else tablespace_of(files), odd)

    def _tell(self, plan: LoadingPlan) -> None:
        self.telling(beforehand(self.server, self.place, plan.size, [planned.way for planned in plan.tables]))
        if plan.against and self.by is None:
            self.telling(f"not by tablespace: {plan.against}")
        odd = [f"{planned.shape.table} is loaded by rows: {planned.odd}" for planned in plan.tables if planned.odd]
        for told in (*odd, *left_behind([planned.shape for planned in plan.tables]), *plan.attentions):
            self.telling(told)

    def _table(self, to: Session, planned: PlannedTable, plan: LoadingPlan) -> LoadedTable:
        shape = planned.shape
        self.telling(f"checking {shape.table}")
        require_whole(self.scratch.session, shape.table, f"{shape.table} in this backup")
        require_long_values(self.scratch, shape.table, f"{shape.table} in this backup")
        rows = None
        if planned.tablespace is not None and plan.datadir is not None:
            rows = self._by_tablespace(to, shape, planned.tablespace, plan.datadir)
        if rows is None:
            rows = self._by_rows(to, shape, plan)
        self.telling(f"comparing {shape.table} with the backup")
        expected = checksum(self.scratch.session, shape.table.schema, shape.table.name)
        found = checksum(to, self.place.loading, shape.table.name)
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
        return LoadedTable(shape, planned.size, rows, found if same else None)

    def _by_tablespace(self, to: Session, shape: TableShape, tablespace: Path, datadir: Path) -> int | None:
        """How many rows are there; None where the server refused, and the table is empty as before."""
        self.telling(f"importing {shape.table}")
        source = self.scratch.session
        pacer = _Pacer()
        try:
            import_tablespace(
                *(source, to, shape, datadir / self.place.loading),
                tablespace=tablespace,
                beneath=self.folder,
                took=pacer.took,
                telling=self.telling,
            )
            imported = Table(self.place.loading, shape.table.name)
            require_whole(to, imported, f"{shape.table}, once imported,", hint="load it with --by rows")
        except (StatementError, Undecided, VerificationError) as error:
            if self.by is LoadingWay.TABLESPACE or (isinstance(error, StatementError) and not error.number):
                raise
            refused = error.said if isinstance(error, StatementError) else error.message
            self.telling(f"{shape.table} is loaded by rows after all: {refused}")
            make_again(to, self.place, shape)
            return None
        return int(source.value(f"SELECT COUNT(*) FROM {shape.table.in_sql}") or 0)  # noqa: S608

    def _by_rows(self, to: Session, shape: TableShape, plan: LoadingPlan) -> int:
        self.telling(f"loading {shape.table}")
        pacer = _Pacer(lambda: _require_left(plan))
        with self.scratch.another_session(answer_seconds=CHECK_SECONDS, as_stored=True) as source:
            prepare_source(source)
            rows = load_rows(
                *(source, to, shape, self.place.loading),
                server=self.server,
                loaded=lambda so_far: self.telling(f"loading {shape.table}: {so_far:,} rows so far"),
                took=pacer.took,
            )
        if pacer.paused_seconds >= _WORTH_TELLING:
            self.telling(
                f"loading {shape.table} paused for {pacer.paused_seconds:.0f} s while {self.server.host} was busy"
            )
        return rows


class _Pacer:
    """Waits after each piece as long as the law says."""

    def __init__(self, require_left: Callable[[], None] = lambda: None) -> None:
        self._pace = LoadingPace()
        self._require_left = require_left
        self.paused_seconds = 0.0

    def took(self, seconds: float) -> None:
        """A piece took so long; returns when the next may begin."""
        self._require_left()
        self._pace = self._pace.after(seconds)
        self.paused_seconds += self._pace.pause_seconds
        time.sleep(self._pace.pause_seconds)


def _require_room(plan: LoadingPlan) -> None:
    """A server whose file system runs full stands still for all its clients. Rows are written to its log as well.

    Raises:
        Refused: these bytes would leave a file system less than the share that has to stay free.
    """
    binlogs = plan.binlogs
    logged = sum(table.size for table in plan.tables if table.way is LoadingWay.ROWS) if binlogs is not None else 0
    if plan.datadir is not None:
        beside = binlogs is not None and binlogs.stat().st_dev == plan.datadir.stat().st_dev
        _require_free(plan.datadir, "datadir", plan, logged=logged if beside else 0, tables=plan.size)
        if beside:
            return
    if binlogs is not None:
        _require_free(binlogs, "binary log", plan, logged=logged, tables=0)


def _require_left(plan: LoadingPlan) -> None:
    """Meanwhile too: rows of a compressed table take more than its file does, and others write there as well.

    Raises:
        Refused: a file system has less left than has to stay free.
    """
    for called, folder in (("datadir", plan.datadir), ("binary log", plan.binlogs)):
        if folder is None:
            continue
        free, total, _ = room(folder)
        if free < share_that_stays_free(total):
            raise Refused(
                f"the file system of the {called} of {plan.place.host} has only {words.size(free)} left",
                hint="nothing of the tables was kept there: free some, or restore them into a folder, with --to DIR",
            )


def _require_free(folder: Path, called: str, plan: LoadingPlan, *, logged: int, tables: int) -> None:
    free, total, _ = room(folder)
    least = share_that_stays_free(total)
    if free - tables - logged < least:
        taken = [f"these tables ({words.size(tables)})"] if tables else []
        taken += [f"their rows in its binary log (about {words.size(logged)})"] if logged else []
        raise Refused(
            f"the file system of the {called} of {plan.place.host} has {words.size(free)} free: with"
            f" {' and '.join(taken)} less than {words.size(least)} would stay free",
            hint="free some there, or restore the tables into a folder, with --to DIR",
        )
