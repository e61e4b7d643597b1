"""Tables of a restored copy, written out for import: what is said of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from backupd.cli.output import print_text, say, tell
from backupd.vocabulary.servers import Flavour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.mysql.tablefiles import Table
    from backupd.operations.restore.table_export import Exported
    from backupd.operations.restore.tables_into_folder import RestoredTables
    from backupd.vocabulary.storage import Manifest


def tell_restored(to: Path, restored: "RestoredTables", tables: "Sequence[Table]") -> "Sequence[str]":
    """Say where the tables are, and what is left to do: where a server here has recovered them, to import them.

    What a person should look at is returned.
    """
    from backupd.operations.restore.table_export import by_hand

    named, manifest = ", ".join(map(str, tables)), restored.manifest
    if (why := restored.not_recovered) is not None:
        attention = f"{named} could not be recovered here: {why.message}"
        tell(f"attention: {attention}")
        for note in getattr(why, "__notes__", ()):
            tell(f"note: {note}")
        if why.hint:
            tell(f"hint: {why.hint}")
        say(f"restored the files of {named} of run {manifest.run_id} to {to}, NOT recovered")
        print_text(by_hand(to, manifest, tables))
        return (attention,)
    say(f"restored {named} of run {manifest.run_id} to {to}, recovered")
    return _tell_each(restored.exported)


def tell_exported(to: Path, manifest: "Manifest", exported: "Sequence[Exported]") -> "Sequence[str]":
    """The same of tables of a copy at a moment, which has all of them."""
    from backupd.operations.restore.table_export import FOLDER

    there = [each for each in exported if each.files]
    if there:
        say(f"exported {', '.join(str(each.table) for each in there)} to {to / FOLDER}")
    if there and manifest.server.flavour is Flavour.MYSQL and to / manifest.datadir == to:
        tell(
            f"move {to / FOLDER} away before you start a server on {to}: MySQL refuses a tablespace that is there twice"
        )
    attentions = _tell_each(exported)
    if len(there) < len(exported):
        say(f"{to} has everything as of that moment: start {manifest.server.flavour} on it to look for the others")
    return attentions


def _tell_each(exported: "Sequence[Exported]") -> "Sequence[str]":
    for each in exported:
        if each.attention is None:
            say(f"to import {each.table}: follow {each.statements}")
        else:
            tell(f"attention: {each.attention}")
    return [each.attention for each in exported if each.attention is not None]
