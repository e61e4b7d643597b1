"""A restore or a clone in the audit chain: one row when it begins, one when it ends, however it ends; a drill's result.

A row of a beginning that no end follows tells of a process that was killed. A drill has one row, of its end. Two of one
run at the same time are told apart by `attempt`. A copy that was found damaged as it was read is broken from then on,
as one that a verification has found so. A catalogue that cannot be written keeps nobody from a restore: on the worst
day it is what is full.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from backupd.catalogue.audit import Event
from backupd.catalogue.endings import as_told, status_of
from backupd.catalogue.store import Catalogue
from backupd.host.signals import shielded
from backupd.targets import BackupSource, targets_read
from backupd.vocabulary.errors import Busy, CatalogueError
from backupd.vocabulary.records import Drill, DrilledMoment, RunStatus


class Deed(Enum):
    """What is done with a backup, by the events of its beginning and of its end."""

    RESTORE = (Event.RESTORE_STARTED, Event.RESTORE_ENDED)
    CLONE = (Event.CLONE_STARTED, Event.CLONE_ENDED)


@dataclass(slots=True)
class EndRecord:
    """What the row of the end is to tell, where the deed succeeds."""

    attentions: list[str] = field(default_factory=list)  # what a person should look at although it is done
    detail: dict[str, Any] = field(default_factory=dict)  # more of what was done; what JSON can hold


@contextmanager
def on_record(
    catalogue: Catalogue,
    run_id: str,
    deed: Deed,
    to: Path | str,
    sources: Sequence[BackupSource],
    *,
    telling: Callable[[str], None],
    **detail: Any,
) -> Iterator[EndRecord]:
    """The block is the deed, and fills in what the row of its end tells.

    `to` is a folder or a volume (VG/LV); `detail` is more of what was asked for. The row of the end names the targets
    of those `sources` that were read; that one of them is broken is among its attentions. Where a row cannot be
    written, that is told, and the deed goes on.
    """
    began, ended = deed.value
    attempt = {"attempt": secrets.token_hex(4), "to": _text(to)}
    done, since = EndRecord(), time.monotonic()

    def write(event: Event, **said: Any) -> None:
        with _told_if_unwritten(event, telling):
            catalogue.note(event, run_id, **attempt, **said)

    def took() -> float:
        return round(time.monotonic() - since, 3)  # the clock by which rows are dated may be set meanwhile

    with shielded():
        write(began, **detail)
    try:
        yield done
    except BaseException as error:
        with shielded():
            _record_broken(catalogue, sources, telling)
            told = as_told(error)
            read = targets_read(sources)
            outcome = status_of(told)
            write(ended, targets=read, outcome=outcome.value, seconds=took(), code=told.code, error=told.message)
            raise  # within the shield: a stop signal that comes now must not take the error's place
    with shielded():
        done.attentions.extend(_record_broken(catalogue, sources, telling))
        outcome = RunStatus.ATTENTION if done.attentions else RunStatus.SUCCESS
        attentions = {"attentions": done.attentions} if done.attentions else {}
        said = {**done.detail, **attentions}
        write(ended, targets=targets_read(sources), outcome=outcome.value, seconds=took(), **said)


def drilled_on_record(
    catalogue: Catalogue,
    run_id: str,
    sources: Sequence[BackupSource],
    drill: Callable[[], Drill],
    *,
    moment: DrilledMoment | None = None,
    telling: Callable[[str], None],
) -> Drill:
    """What the drill found is in the catalogue. Where it ended without a result, that is there: undecided, and why.

    A good one is on record as of those copies alone that gave all that was taken from them.
    `moment` is what it was to prove; None: the backup alone.
    A drill that another process kept from beginning is none.

    Raises:
        CatalogueError: the result could not be written.
        whatever ended the drill.
    """
    began = time.monotonic()
    try:
        result = drill()
    except Busy:
        raise
    except BaseException as error:
        with shielded():
            why = as_told(error).message.partition("\n")[0]  # what failed while cleaning up is in its notes
            undecided = f"it ended without a result: {why}"
            seconds = time.monotonic() - began
            none = Drill(run_id, False, (), seconds, datetime.now(UTC), undecided=undecided, moment=moment)
            _record_broken(catalogue, sources, telling)
            with _told_if_unwritten(Event.DRILLED, telling):
                catalogue.record_drill(none, targets=targets_read(sources))
            raise  # within the shield: a stop signal that comes now must not take the error's place
    proven = [source for source in sources if not source.failures] if result.ok else sources
    with shielded():
        _record_broken(catalogue, sources, telling)
        catalogue.record_drill(result, targets=targets_read(proven))
    return result


@contextmanager
def damage_on_record(
    catalogue: Catalogue, sources: Sequence[BackupSource], *, telling: Callable[[str], None]
) -> Iterator[None]:
    """What a block before the deed has found damaged is on record, whether the deed is begun or not."""
    try:
        yield
    except BaseException:
        with shielded():
            _record_broken(catalogue, sources, telling)
            raise  # within the shield: a stop signal that comes now must not take the error's place
    with shielded():
        _record_broken(catalogue, sources, telling)


def broken_copies(sources: Sequence[BackupSource]) -> list[str]:
    """What a person should know of those of the copies that were found damaged as they were read."""
    return [
        f"the copy of run {source.run_id} on target {source.target.name} is broken: {source.damage.message}"
        for source in sources
        if source.damage is not None
    ]


def _record_broken(
    catalogue: Catalogue, sources: Sequence[BackupSource], telling: Callable[[str], None]
) -> Sequence[str]:
    """Those copies are broken in the catalogue, where that knows them. What a person should know is told, once, and
    returned.
    """
    new = [source for source in sources if not source.damage_told.is_set()]
    for source in new:
        if source.damage is not None:
            source.damage_told.set()
            with _told_if_unwritten(Event.FOUND_BROKEN, telling):
                catalogue.found_broken(source.run_id, source.target.name, source.damage.message)
    for text in broken_copies(new):
        telling(f"attention: {text}")
    return broken_copies(sources)


@contextmanager
def _told_if_unwritten(event: Event, telling: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except CatalogueError as error:
        telling(f"attention: this could not be recorded in the audit trail ({event}): {error.message}")


def _text(to: Path | str) -> str:
    """A name of a file may have bytes that are no text."""
    return str(to).encode(errors="surrogateescape").decode(errors="replace")
