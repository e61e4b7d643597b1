"""Which files of a datadir belong to a table, and which ones no server starts without.

Knows: which files MySQL and MariaDB keep of schemas, tables and partitions. Tables are asked for, and told, by their
names in SQL.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from backupd.mysql.file_names import file_name, sql_name
from backupd.mysql.relocation import Relocation
from backupd.mysql.sqltext import quoted
from backupd.vocabulary.errors import UsageError, VerificationError
from backupd.vocabulary.storage import Manifest

_MOST_BYTES = 96 << 20  # that the names of all tables take in memory: half a million of them
_A_NAME = 140  # bytes that a name takes in a set, beside its letters
_SYSTEM = frozenset({"mysql", "sys", "performance_schema"})
_NAME = r"(?:`(?:[^`]|``)+`|[^`.,\s][^`.,]*)"
_TABLE = re.compile(rf"\s*(?P<schema>{_NAME})\.(?P<table>{_NAME})\s*")
_OF_TABLES = frozenset(
    {
        ".ibd",
        ".cfg",
        ".cfp",
        ".frm",
        ".myd",
        ".myi",
        ".mad",
        ".mai",
        ".csv",
        ".csm",
        ".arz",
        ".arm",
        ".sdi",
        ".trg",
        ".par",
        ".mrg",
    }
)
_OF_THE_SCHEMA = re.compile(r"db\.opt|.*\.TRN|fts_[0-9a-f]{16}_.*", re.IGNORECASE)  # fulltext indexes: by table ids
_CAPITALS = re.compile("[A-Z]+")  # which every server makes small
_PART = re.compile(r"\.|#[pP]#")
_SDI = re.compile(r"(?P<table>.+)_[0-9]+\.sdi")


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """A table by the names that its schema and itself have in SQL."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def in_sql(self) -> str:
        """The table in a statement, whatever letters are in its names."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def tables_in(text: str) -> tuple[Table, ...]:
    """What `db.t,db.u` names: each once, in order. Backticks are allowed, and needed around a dot or comma.

    Raises:
        UsageError: something in it is no table.
    """
    found: set[Table] = set()
    at = 0
    while True:
        match = _TABLE.match(text, at)
        if match is None:
            raise UsageError(
                f"{text!r} is not a list of tables", hint="for example --tables shop.orders,shop.customers; no patterns"
            )
        found.add(Table(_bare(match["schema"]), _bare(match["table"])))
        at = match.end()
        if at == len(text):
            return tuple(sorted(found))
        if text[at] != ",":
            raise UsageError(f"{text!r} is not a list of tables", hint="separate them with commas")
        at += 1


def is_of_a_table(name: str) -> bool:
    """Whether a file that is called so may be a table's: no letter of a table's name is a dot in it."""
    return name.count(".") == 1 and has_suffix_of_tables(name)


def has_suffix_of_tables(name: str) -> bool:
    """Whether files of tables and of tablespaces end so."""
    return PurePosixPath(name).suffix.lower() in _OF_TABLES


def restored_files(folder: Path, manifest: Manifest, table: Table) -> list[Path]:
    """The table's own files in the datadir of a restored folder; none where they are elsewhere."""
    datadir = Relocation(folder, manifest.datadir, manifest.server.datadir).datadir
    names = sorted(str(path.relative_to(datadir)) for path in datadir.glob("*/*"))
    lower_case = manifest.server.settings.get("lower_case_table_names", "0") != "0"
    return [datadir / name for name in TableFiles(names, datadir="", lower_case=lower_case).of(table, names)]


class TableFiles:
    """The files of a datadir, told by their names relative to the restored folder."""

    def __init__(self, names: Iterable[str], *, datadir: str, lower_case: bool) -> None:
        self._datadir = PurePosixPath(datadir)
        self._lower_case = lower_case
        self._tables: dict[str, set[str]] = {}  # of each schema, by file names
        room = _MOST_BYTES
        for path in map(PurePosixPath, names):
            place = self._place(path)
            if place is not None and path.suffix.lower() in _OF_TABLES:
                schema, file = place
                tables = self._tables.setdefault(schema, set())
                if not _OF_THE_SCHEMA.fullmatch(file):
                    before = len(tables)
                    tables.add(name := _table(file))
                    room -= (len(tables) - before) * (_A_NAME + len(name))
                    if room < 0:
                        raise VerificationError(
                            "the index of the members names more tables than can be held in memory",
                            hint="restore everything: omit --tables",
                        )

    @property
    def schemas(self) -> Collection[str]:
        """Those that have tables, as their folders are called."""
        return self._tables.keys()

    def require(self, tables: Collection[Table]) -> None:
        """All of these tables are there.

        Raises:
            UsageError: one is not; names what is called alike. Or there is another with small letters for capitals
                that a server may make small, or not.
        """
        for table in tables:
            sure = _CAPITALS.sub(lambda found: found[0].lower(), str(table))
            if len(list(self._all_called(table))) > 1 and sure != _lower(str(table)):
                raise UsageError(
                    f"{table} is in this backup with capitals and without", hint="restore everything: omit --tables"
                )
            if self._found(table) is None:
                known = sorted(
                    f"{_readable(schema)}.{_readable(name)}" for schema in self._tables for name in self._tables[schema]
                )
                near = difflib.get_close_matches(str(table), known, n=3) or known[:3]
                raise UsageError(
                    f"no table {table} in this backup",
                    hint=f"it has {', '.join(near)}" if near else "the backup has no tables",
                )

    def of(self, table: Table, names: Iterable[str]) -> tuple[str, ...]:
        """Which of these files are of this table alone; none where there is no such table."""
        found = self._found(table)
        return tuple(name for name in names if found is not None and self._table_of(PurePosixPath(name)) == found)

    def own(self, names: Iterable[str], tables: Collection[Table]) -> Iterator[bool]:
        """Of each file, in turn: whether it is of one of these tables alone."""
        chosen = self._all_found(tables)
        return (self._table_of(PurePosixPath(name)) in chosen for name in names)

    def selected(self, names: Iterable[str], tables: Collection[Table]) -> Iterator[bool]:
        """Of each file or folder, in turn: whether a server with these tables needs it: all but other tables."""
        chosen = self._all_found(tables)
        schemas = {schema for schema, _ in chosen}
        return (self._wanted(PurePosixPath(name), chosen, schemas) for name in names)

    def _wanted(self, path: PurePosixPath, chosen: set[tuple[str, str]], schemas: set[str]) -> bool:
        schema, file = self._place(path) or (self._folder(path), None)
        if schema is None or schema not in self._tables:
            return True
        if schema not in schemas:
            return False
        return file is None or _OF_THE_SCHEMA.fullmatch(file) is not None or (schema, _table(file)) in chosen

    def _found(self, table: Table) -> tuple[str, str] | None:
        return next(self._all_called(table), None)

    def _all_called(self, table: Table) -> Iterator[tuple[str, str]]:
        """A server that makes names small has no table where they have capitals, whatever was left there before; but it
        leaves those as they are that Unicode had not when its table was made.
        """
        names = [(table.schema, table.name)]
        if self._lower_case:
            names = list(dict.fromkeys([(_lower(table.schema), _lower(table.name)), *names]))
        places = ((file_name(schema), file_name(name)) for schema, name in names)
        return (place for place in places if place[1] in self._tables.get(place[0], ()))

    def _all_found(self, tables: Collection[Table]) -> set[tuple[str, str]]:
        return {found for table in tables if (found := self._found(table)) is not None}

    def _table_of(self, path: PurePosixPath) -> tuple[str, str] | None:
        """Schema and table whose file this is, both as files are named."""
        place = self._place(path)
        if place is None or path.suffix.lower() not in _OF_TABLES or _OF_THE_SCHEMA.fullmatch(place[1]):
            return None
        return place[0], _table(place[1])

    def _place(self, path: PurePosixPath) -> tuple[str, str] | None:
        """The user's schema and the file in it, both as files are named; None for anything else."""
        if not path.is_relative_to(self._datadir):
            return None
        parts = path.relative_to(self._datadir).parts
        if len(parts) != 2 or parts[0] in _SYSTEM or parts[0].startswith(("#", ".")):
            return None
        return parts[0], parts[1]

    def _folder(self, path: PurePosixPath) -> str | None:
        """The schema whose folder this is, or that has something below its folder."""
        if not path.is_relative_to(self._datadir):
            return None
        parts = path.relative_to(self._datadir).parts
        return parts[0] if parts and parts[0] not in _SYSTEM else None


def _table(file: str) -> str:
    sdi = _SDI.fullmatch(file)
    return sdi["table"] if sdi is not None else _PART.split(file, maxsplit=1)[0]


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name.strip()


def _lower(name: str) -> str:
    """As servers do it: each letter by itself, and to one letter."""
    return "".join(letter.lower()[0] for letter in name)


def _readable(file: str) -> str:
    """Its name in SQL, as far as that prints: a file may be called anything."""
    return name if (name := sql_name(file)).isprintable() else file
