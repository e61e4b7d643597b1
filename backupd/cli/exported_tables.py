"""Tables of a restored copy, written out for import: what is said of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from backupd.cli.output import print_text, say, tell
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backupd.mysql.tablefiles import Table
    from backupd.vocabulary.storage import Manifest


def export_tables(
    to: Path, manifest: "Manifest", tables: "Sequence[Table]", *, confined: bool, whole: bool = False
) -> "Sequence[str]":
    """Say where the tables are, and what is left to do: with a server here, to import them.

    What a person should look at is returned. Of a `whole` copy, which was shut down, nothing is to be recovered.
    """
    from backupd.operations.restore.table_export import FOLDER, by_hand, export

    named = ", ".join(map(str, tables))
    try:
        exported = export(to, manifest, tables, confined=confined, whole=whole, telling=tell)
    except ServerError as error:
        if whole:
            attention = f"{named} could not be exported: {error.message}"
            tell(f"attention: {attention}")
            say(f"{to} has everything as of that moment: start {manifest.server.flavour} on it to look for them")
            return (attention,)
        attention = f"{named} could not be recovered here: {error.message}"
        tell(f"attention: {attention}")
        say(f"restored the files of {named} of run {manifest.run_id} to {to}, NOT recovered")
        print_text(by_hand(to, manifest, tables))
        return (attention,)
    there = [each for each in exported if each.files]
    if not whole:
        say(f"restored {named} of run {manifest.run_id} to {to}, recovered")
    elif there:
        say(f"exported {', '.join(str(each.table) for each in there)} to {to / FOLDER}")
    if whole and there and manifest.server.flavour is Flavour.MYSQL and to / manifest.datadir == to:
        tell(
            f"move {to / FOLDER} away before you start a server on {to}: MySQL refuses a tablespace that is there twice"
        )
    for each in exported:
        if each.attention is None:
            say(f"to import {each.table}: follow {each.statements}")
        else:
            tell(f"attention: {each.attention}")
    return [each.attention for each in exported if each.attention is not None]
