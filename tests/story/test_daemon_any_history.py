"""Whatever the clock and people do: no try of a slot starts twice, and no slot is left out."""

import tempfile
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.vocabulary.schedule import SlotState
from tests.share import examples
from tests.story.daemon_world import HOURLY, MORNING, Machine, job, machine

_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # where syncs cost nothing
_MINUTES = st.integers(-600, 3000)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 90)),
        st.tuples(st.just("jump"), _MINUTES),
        st.tuples(st.just("down"), _MINUTES),
        st.tuples(st.sampled_from(("end", "fail", "pause", "resume")), st.just(0)),
    ),
    max_size=25,
)


def carry_out(host: Machine, step: str, minutes: int) -> None:
    """One thing happens; whatever it is, the daemon looks afterwards."""
    match step:
        case "pass" | "jump":
            host.after(minutes=minutes)
        case "down":
            host.now += timedelta(minutes=minutes)
            host.start()
        case "end":
            for process in host.launcher.processes.values():
                process.end()
        case "fail":
            for slot, process in host.launcher.processes.items():
                if not process.gone:
                    host.catalogue.plan_retry(slot, host.now + timedelta(minutes=5))
                    process.end(6)
        case "pause":
            host.catalogue.pause("nightly", "for a while")
        case "resume":
            host.catalogue.resume("nightly")
    host.dispatch.look()


@pytest.mark.exhaustive
@settings(max_examples=examples(50))
@given(_STEPS)
def test_every_slot_is_decided_once(steps: list[tuple[str, int]]) -> None:
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY) as folder,
        machine(Path(folder)) as host,
    ):
        host.start(job("nightly", backup=replace(HOURLY, retries=2)))
        latest = MORNING
        for step, minutes in steps:
            carry_out(host, step, minutes)
            latest = max(latest, host.now)
        host.at(latest + timedelta(hours=2))
        tries: dict[datetime, list[int]] = defaultdict(list)
        for slot in host.launcher.started:
            tries[slot.due_at].append(slot.number)
        assert all(numbers == list(range(1, len(numbers) + 1)) and len(numbers) <= 3 for numbers in tries.values())
        run_ids = [slot.run_id for slot in host.launcher.started]
        assert len(run_ids) == len(set(run_ids))
        assert host.catalogue.slots(state=SlotState.RETRYING) == []
        decided = dict(host.slots())
        assert {at for at, state in decided.items() if state is not SlotState.MISSED} == set(tries)
        hours = int((latest - MORNING) / timedelta(hours=1)) + 1  # the last one may wait still
        assert {MORNING + timedelta(hours=n) for n in range(1, hours + 1)} <= decided.keys()
