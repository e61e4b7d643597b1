"""A restore or a clone in the audit chain: one row when it begins, one when it ends, however it ends.

A row of a beginning that no end follows tells of a process that was killed. Two of one run at the same time are told
apart by `attempt`. A catalogue that cannot be written keeps nobody from a restore: on the worst day it is what is full.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from backupd.catalogue.audit import Event
from backupd.catalogue.endings import as_told, status_of
from backupd.catalogue.store import Catalogue
from backupd.host.signals import shielded
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.records import RunStatus


class Deed(Enum):
    """What is done with a backup, by the events of its beginning and of its end."""

    RESTORE = (Event.RESTORE_STARTED, Event.RESTORE_ENDED)
    CLONE = (Event.CLONE_STARTED, Event.CLONE_ENDED)


@contextmanager
def on_record(
    catalogue: Catalogue, run_id: str, deed: Deed, to: Path | str, *, telling: Callable[[str], None], **detail: Any
) -> Iterator[list[str]]:
    """The block is the deed. What it appends to the list is what a person should look at although it is done.

    `to` is a folder or a volume (VG/LV); `detail` is more of what was asked for. Where a row cannot be written, that
    is told, and the deed goes on.
    """
    began, ended = deed.value
    attempt = {"attempt": secrets.token_hex(4), "to": _text(to)}
    attentions: list[str] = []

    def write(event: Event, **said: Any) -> None:
        try:
            catalogue.note(event, run_id, **attempt, **said)
        except CatalogueError as error:
            telling(f"attention: the audit trail has no row of this ({event}): {error.message}")

    with shielded():
        write(began, **detail)
    try:
        yield attentions
    except BaseException as error:
        with shielded():
            told = as_told(error)
            write(ended, outcome=status_of(told).value, code=told.code, error=told.message)
            raise  # within the shield: a stop signal that comes now must not take the error's place
    with shielded():
        outcome = RunStatus.ATTENTION if attentions else RunStatus.SUCCESS
        write(ended, outcome=outcome.value, **({"attentions": attentions} if attentions else {}))


def _text(to: Path | str) -> str:
    """A name of a file may have bytes that are no text."""
    return str(to).encode(errors="surrogateescape").decode(errors="replace")
