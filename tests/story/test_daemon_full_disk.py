"""The catalogue's disk is full at any write of the daemon: what is due starts once, and its end is recorded later."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from backupd.config import BackupScheduleConfig
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.schedule import SlotState
from tests.full_disk import no_room_from_write
from tests.story.daemon_world import MORNING, NIGHTLY, Machine, job, machine

NIGHT = MORNING + timedelta(hours=19)  # 03:00, when all of it is due
JOBS = ("nightly", "shop", "archive")
IN_FLEET = replace(NIGHTLY, fallback_after_seconds=3600.0)  # whom it told that it goes on alone is written, too


def a_night(host: Machine, schedule: BackupScheduleConfig, full_from: int) -> int:
    """Two looks with a disk that is full from this write on: when things are due, and once they have ended."""
    host.start(*(job(name, host=f"db{number}", backup=schedule) for number, name in enumerate(JOBS, start=1)))
    with no_room_from_write(full_from) as writes:
        with suppress(CatalogueError):
            host.at(NIGHT)
        for process in host.launcher.processes.values():
            process.end(0)
        with suppress(CatalogueError):
            host.after(seconds=30)
    return writes.ended


@pytest.mark.parametrize("schedule", [NIGHTLY, IN_FLEET], ids=["alone", "in a fleet"])
def test_each_slot_starts_once_and_ends_once_whenever_the_disk_was_full(
    tmp_path: Path, schedule: BackupScheduleConfig
) -> None:
    for number in count(1):
        with machine(tmp_path / str(number)) as host:
            writes = a_night(host, schedule, full_from=number)
            host.after(seconds=60)  # there is room again
            for process in host.launcher.processes.values():
                process.end(0)
            host.after(seconds=60)
            assert sorted(slot.job for slot in host.launcher.started) == sorted(JOBS), number
            assert [state for _, state in host.slots()] == [SlotState.ENDED] * len(JOBS)
        if writes < number:
            break
    assert number > len(JOBS)
