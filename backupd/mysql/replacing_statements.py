"""What a person types with a table that was loaded from a backup: its rows put back, or the live table replaced by it.

Knows: what a RENAME takes along and what it leaves. A table that is moved aside keeps its triggers and foreign keys,
whose names are unique in their schema, and the foreign keys of other tables follow it. Those that InnoDB named after
the table are renamed with it. Carries nothing out.
"""

import re
from collections.abc import Iterator, Sequence

from backupd.mysql.row_differences import TableDifference, same_key
from backupd.mysql.sqltext import comment, quoted
from backupd.mysql.table_shape import TableShape, names_of
from backupd.mysql.tablefiles import Table

_LONGEST_NAME = 64
AS_ROWS = "SET SESSION binlog_format = ROW;"
_UNLOCKED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
ZERO_STAYS = "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',NO_AUTO_VALUE_ON_ZERO');"
_NUMBERS_ROWS = re.compile(r"^ +`.* AUTO_INCREMENT\b", re.MULTILINE)


def statements_for(shape: TableShape, schema: str, found: TableDifference, *, logged: bool = True) -> tuple[str, ...]:
    """Comments and statements in turn; both ways, of which a person chooses one. The table's triggers come after them.

    Of a schema that is not `logged` replicas know nothing: rows reach them as rows alone, and a RENAME stops them.
    """
    return (*_put_back(shape, schema, found, logged=logged), *_replace(shape, schema, found, logged=logged))


def triggers_for(shape: TableShape) -> Iterator[str]:
    """Comments that make them again, which are printed as they are: nothing in them acts on a terminal."""
    if shape.triggers:
        yield "-- and then its triggers as in the backup; read each, and type it without the dashes:"
        yield from (trigger.to_be_typed(shape.table) for trigger in shape.triggers)


def _put_back(shape: TableShape, schema: str, found: TableDifference, *, logged: bool) -> Iterator[str]:
    live, loaded = shape.table.in_sql, Table(schema, shape.table.name).in_sql
    columns = names_of([column for column in shape.carried if column.name in found.shared])
    if not found.live or not columns:
        return
    missing = ""
    if shape.key and set(shape.key) <= set(found.shared):
        same = same_key(shape, "b", "l")
        missing = f" AS b WHERE NOT EXISTS (SELECT 1 FROM {live} AS l WHERE {same})"  # noqa: S608 - quoted names
    if not logged:
        yield from _told(f"the binary log lacks schema {quoted(schema)}: replicas must be sent rows")
        yield AS_ROWS
    if missing:
        yield from _told(
            "without this, every live row that is also in the backup stays locked until the INSERT has finished"
            " (on error 1665, SET SESSION binlog_format = ROW first)"
        )
        yield _UNLOCKED
    what = "to put back the rows that the live table lacks" if missing else "to put the rows back beside the live ones"
    triggers, sure = found.attached.triggers or shape.triggers, bool(found.attached.triggers)
    running = ", ".join(quoted(trigger.name) for trigger in triggers if "INSERT" in trigger.event)
    if running:
        what += f"; its triggers run for each row{'' if sure else ', if it still has them'}: {running}"
    yield from _told(f"{what}:")
    if _NUMBERS_ROWS.search(shape.definition):
        yield ZERO_STAYS
    yield f"INSERT INTO {live} ({columns}) SELECT {columns} FROM {loaded}{missing};"  # noqa: S608 - quoted names


def _replace(shape: TableShape, schema: str, found: TableDifference, *, logged: bool) -> Iterator[str]:
    live, loaded = shape.table.in_sql, Table(schema, shape.table.name).in_sql
    if found.live:
        aside = Table(shape.table.schema, f"{shape.table.name[: _LONGEST_NAME - 9]}_replaced").in_sql
        yield (
            "-- or, to replace the live table (kept under another name); run each statement only if the one before"
            " succeeded:"
        )
        if found.attached.referring:
            them = ", ".join(f"{quoted(name)} of {table.in_sql}" for table, name in found.attached.referring)
            yield from _told(
                f"(foreign keys of other tables refer to {aside} then, until dropped and added again: {them})"
            )
        steps = [f"RENAME TABLE {live} TO {aside}, {loaded} TO {live};", *_names_freed(shape, found, aside)]
    else:
        yield "-- to put it into place, if there is no such table:"
        steps = [f"RENAME TABLE {loaded} TO {live};"]
    if shape.foreign_keys:
        steps += _told(
            f"(each rebuilds {live} and blocks writes until it is done; with SET SESSION foreign_key_checks = 0 it does"
            " not, but rows without a parent stay)"
        )
    steps += [f"ALTER TABLE {live} ADD {foreign_key};" for foreign_key in shape.foreign_keys]
    if logged:
        yield from steps
    else:
        yield "-- (only without replicas, after SET SESSION sql_log_bin = 0)"
        for step in steps:
            yield from _told(step.removeprefix("-- "))


def _names_freed(shape: TableShape, found: TableDifference, aside: str) -> Iterator[str]:
    """Names that the recovered table's triggers and foreign keys need, taken from the table moved aside."""
    renamed_too = re.compile(rf"{re.escape(shape.table.name)}_ibfk_[0-9]+", re.IGNORECASE)
    for name in found.attached.foreign_keys:
        needed = any(key.startswith(f"CONSTRAINT {quoted(name)} FOREIGN KEY") for key in shape.foreign_keys)
        if needed and renamed_too.fullmatch(name) is None:
            yield f"ALTER TABLE {aside} DROP FOREIGN KEY {quoted(name)};"
    seen = {trigger.name for trigger in found.attached.triggers}
    for trigger in shape.triggers:
        drop = f"DROP TRIGGER {quoted(shape.table.schema)}.{quoted(trigger.name)};"
        if trigger.name in seen:
            yield drop
        else:
            yield from _told(f"if {aside} has that trigger, which this account does not see: {drop}")


def _told(text: str) -> Sequence[str]:
    """Comment lines, which no name ends."""
    return comment(text).splitlines()
