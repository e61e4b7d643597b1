"""What a person reads of tables that were loaded into a running server, and types next."""

from collections.abc import Iterator

from backupd.mysql.loading_schema import LoadingPlace
from backupd.mysql.replacing_statements import statements_for, triggers_for
from backupd.mysql.row_differences import TableDifference
from backupd.operations.restore.table_loading import LoadedTable, LoadedTables
from backupd.report.words import size
from backupd.vocabulary.escaping import indented


def loaded_lines(run_id: str, place: LoadingPlace, loaded: LoadedTables) -> Iterator[str]:
    """Of each table: what is there, how it differs from the live one, and the statements that use it.

    They are to be printed as they are: what strangers named is escaped, but for the triggers, of which a person types
    every character.
    """
    for each in loaded.tables:
        yield from map(indented, _table_lines(run_id, place, each, logged=loaded.logged))
        if each.difference is not None:
            yield from triggers_for(each.shape)
    yield from map(indented, _schema_lines(place, logged=loaded.logged))


def _schema_lines(place: LoadingPlace, *, logged: bool) -> Iterator[str]:
    if logged:
        yield "-- replicas that filter schemas may lack the new one: a RENAME TABLE out of it stops them"
        yield f"-- when it is no longer needed: DROP DATABASE `{place.schema}`;"
    else:
        yield "-- replicas lack the new schema: a RENAME TABLE out of it, or a DROP DATABASE, stops them"
        yield f"-- when it is no longer needed: SET SESSION sql_log_bin = 0; DROP DATABASE `{place.schema}`;"


def _table_lines(run_id: str, place: LoadingPlace, each: LoadedTable, *, logged: bool) -> Iterator[str]:
    table = each.shape.table
    yield (
        f"loaded {table} of run {run_id} into {place.host} as {place.schema}.{table.name}: {each.rows:,} rows"
        f" ({size(each.size)} of files), {_same(each)}"
    )
    if each.difference is not None:
        yield from (f"  {line}" for line in _different(each, each.difference))
        yield from statements_for(each.shape, place.schema, each.difference, logged=logged)


def _same(each: LoadedTable) -> str:
    return "checksums not compared" if each.checksum is None else f"checksum {each.checksum} as in the backup"


def _different(each: LoadedTable, found: TableDifference) -> Iterator[str]:
    if not found.live:
        yield found.untold
        return
    counts = (
        (found.only_in_backup, "rows only in the backup"),
        (found.only_live, "only in the live table"),
        (found.changed, "in both and changed"),
    )
    known = ", ".join(f"{count:,} {what}" for count, what in counts if count is not None)
    if known:
        yield f"compared with the live table by its key ({', '.join(each.shape.key)}): {known}"
    if found.untold:
        yield f"not {'all counted' if known else 'compared with the live table'}: {found.untold}"
    if found.columns_apart:
        yield f"columns that are not alike in both, and were not compared: {', '.join(found.columns_apart)}"
