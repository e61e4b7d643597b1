"""What a command that a schedule has started ended with is in its slot's row, for a daemon that did not see its end.

Knows: which command that is. A backup and a probe have a row among the runs, and are asked there.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from backupd.host.marked_processes import SLOT_VARIABLE
from backupd.operations import context
from backupd.service.launch import arguments, mark_of
from backupd.service.running_slots import RUNS
from backupd.vocabulary.errors import BackupdError, ExitStatus
from backupd.vocabulary.schedule import SlotState

log = logging.getLogger(__name__)


@contextmanager
def status_kept(configuration: Path | None) -> Iterator[None]:
    """However the block ends, the slot's row says so; the error that ends it goes on."""
    status = int(ExitStatus.INTERNAL)
    try:
        yield
        status = int(ExitStatus.OK)
    except BackupdError as error:
        status = int(error.exit_status)
        raise
    except typer.Exit as ended:
        status = ended.exit_code
        raise
    finally:
        try:
            _keep(configuration, status)
        except BackupdError as error:
            log.warning("exit status %d could not be recorded: %s", status, error.message)


def _keep(explicit: Path | None, status: int) -> None:
    """Nothing is written by what another command has started in the slot: only its own words are a schedule's."""
    with context.own_catalogue(context.configuration(explicit)) as catalogue:
        for slot in catalogue.slots(state=SlotState.STARTED, limit=None):
            words = arguments(slot)
            is_ours = mark_of(slot) == os.environ[SLOT_VARIABLE] and tuple(sys.argv[-len(words) :]) == words
            if is_ours and slot.activity not in RUNS:
                catalogue.slot_ends(slot, exit_status=status)
