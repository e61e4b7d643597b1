"""Whatever is done with a catalogue, in any order and with any death in between, these stay true.

No run that was acknowledged is lost; a status goes from `running` to an end and stays so, but for a dead run that
`recover` finishes; what is held is what was told and not struck; no slot is decided twice; the audit chain only grows,
and holds together; the file is whole.
"""

import os
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from backupd.catalogue.store import Catalogue, RunRecord
from backupd.host.filesystem import remove_tree
from backupd.policy.trust import Known
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import GOOD, Check, Drill, Holding, HoldingKind, RunError, RunStatus
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.storage import Backup
from tests.share import examples

BEGAN = datetime(2026, 11, 21, 4, tzinfo=UTC)
DIED = RunError("died", "the run's process died without reporting an error", "start it again", 1)
TARGETS = ("vault", "offsite")
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # what a sync is worth is tested elsewhere
MACHINE = Machine("db1", {"machine-id": "a1"}, boot_id="first boot")

targets = st.sampled_from(TARGETS)
names = st.sampled_from(["a", "b", "c"])


def backup(target: str, run_id: str) -> Backup:
    return Backup(target, f"/{target}/nightly/{run_id}", 1000, 400, 12, "ab" * 32, manifest_digest="cd" * 32)


class AnyHistory(RuleBasedStateMachine):
    """One catalogue; `expected` is what was acknowledged by now."""

    live: Bundle[str] = Bundle("live")
    ended: Bundle[str] = Bundle("ended")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(prefix="history-", dir=FOLDER))
        self.expected: dict[str, set[RunStatus]] = {}
        self.held: dict[str, set[str]] = {}
        self.backups: dict[str, set[str]] = {}
        self.pinned: set[str] = set()
        self.drills: dict[str, int] = {}
        self.slots: dict[tuple[str, datetime], SlotState] = {}
        self.rows = 0
        self.records: dict[str, tuple[ExitStack, RunRecord]] = {}  # of those that are alive
        self.died: set[str] = set()  # without a backup
        self.graves: list[ExitStack] = []  # kept, or else their blocks would end after all

    @initialize()
    def made(self) -> None:
        self.catalogue = Catalogue.open(self.folder / "catalogue.db", machine=lambda: MACHINE)

    def teardown(self) -> None:
        assert self.catalogue.faults() == []
        self.catalogue.close()
        remove_tree(self.folder)

    def die(self, run_id: str) -> None:
        self.graves.append(self.records.pop(run_id)[0].pop_all())

    def find_dead(self, run_id: str) -> None:
        """As `recover` does: what has published a backup is kept."""
        if self.backups[run_id]:
            self.catalogue.keep_dead_run(run_id, DIED.message, to_finish=False)
            self.expected[run_id] = {RunStatus.ATTENTION}
        else:
            self.catalogue.end_dead_run(run_id, DIED)
            self.expected[run_id] = {RunStatus.FAILED}
            self.died.add(run_id)

    # --- a run -------------------------------------------------------------------------------------------------------

    @rule(target=live)
    def begins(self) -> str:
        run_id = f"r{len(self.expected)}"
        stack = ExitStack()
        self.records[run_id] = (stack, stack.enter_context(self.catalogue.open_run("nightly", "db1", run_id=run_id)))
        self.expected[run_id] = {RunStatus.RUNNING}
        self.held[run_id], self.backups[run_id] = set(), set()
        return run_id

    @rule(run_id=live, name=names)
    def holds(self, run_id: str, name: str) -> None:
        if run_id in self.records and name not in self.held[run_id]:
            self.records[run_id][1].hold(Holding(HoldingKind.STAGING, f"/{run_id}/{name}"))
            self.held[run_id].add(name)

    @rule(run_id=live, name=names)
    def releases(self, run_id: str, name: str) -> None:
        if run_id in self.records:
            self.records[run_id][1].released(Holding(HoldingKind.STAGING, f"/{run_id}/{name}"))
            self.held[run_id].discard(name)

    @rule(run_id=live)
    def needs_attention(self, run_id: str) -> None:
        if run_id in self.records:
            self.records[run_id][1].attention("somebody should look at it")

    @rule(run_id=live, where=targets)
    def publishes(self, run_id: str, where: str) -> None:
        partial = Holding(HoldingKind.PARTIAL, f"{where}/{run_id}")
        if run_id in self.records and where not in self.backups[run_id]:
            record = self.records[run_id][1]
            record.hold(partial)
            record.published(backup(where, run_id), partial, ordinal=len(self.backups[run_id]))
            self.backups[run_id].add(where)

    @rule(target=ended, run_id=consumes(live))
    def ends_well(self, run_id: str) -> MultipleResults[str]:
        if run_id not in self.records:
            return multiple()
        stack, record = self.records.pop(run_id)
        where = sorted(self.backups[run_id]) or ["vault"]
        record.complete(tuple(backup(one, run_id) for one in where))
        stack.close()
        self.backups[run_id] = set(where)
        self.expected[run_id] = set(GOOD)
        return multiple(run_id)

    @rule(target=ended, run_id=consumes(live))
    def fails(self, run_id: str) -> MultipleResults[str]:
        if run_id not in self.records:
            return multiple()
        stack, _ = self.records.pop(run_id)
        error = ServerError("the server has gone away")
        stack.__exit__(ServerError, error, None)
        self.expected[run_id] = {RunStatus.ATTENTION} if self.backups[run_id] else {RunStatus.FAILED}
        return multiple(run_id)

    @rule(target=ended, run_id=consumes(live))
    def dies_and_is_found(self, run_id: str) -> MultipleResults[str]:
        """Its process is gone: nothing of the block's end is carried out."""
        if run_id not in self.records:
            return multiple()
        self.die(run_id)
        self.find_dead(run_id)
        return multiple(run_id)

    # --- what becomes of it ------------------------------------------------------------------------------------------

    @rule(run_id=ended, where=targets)
    def is_verified(self, run_id: str, where: str) -> None:
        self.catalogue.verified(run_id, where, BEGAN)

    @rule(run_id=ended, where=targets)
    def is_found_broken(self, run_id: str, where: str) -> None:
        self.catalogue.found_broken(run_id, where, "frame 7 differs")

    @rule(run_id=ended, where=targets)
    def is_removed(self, run_id: str, where: str) -> None:
        self.catalogue.removed(run_id, where, because="expired")

    @rule(run_id=ended)
    def is_pinned(self, run_id: str) -> None:
        self.catalogue.pin(run_id, "keep it")
        self.pinned.add(run_id)

    @rule(run_id=ended)
    def is_unpinned(self, run_id: str) -> None:
        self.catalogue.unpin(run_id)
        self.pinned.discard(run_id)

    @rule(run_id=ended, ok=st.booleans())
    def is_drilled(self, run_id: str, ok: bool) -> None:
        self.catalogue.record_drill(Drill(run_id, ok, (Check("tables", ok, "3", "3"),), 2.0, BEGAN))
        self.drills[run_id] = self.drills.get(run_id, 0) + 1

    @rule(run_id=ended)
    def is_found_on_its_target(self, run_id: str) -> None:
        """As `catalogue rebuild` enters it: what is known stays."""
        self.catalogue.import_run(self.catalogue.run(run_id))

    @rule(run_id=ended)
    def is_begun_once_more(self, run_id: str) -> None:
        try:
            with self.catalogue.open_run("nightly", "db1", run_id=run_id):
                raise AssertionError("there are two of one id")
        except UsageError:
            pass

    @rule(run_id=ended, where=targets)
    def is_finished_by_recover(self, run_id: str, where: str) -> None:
        """A copy of a dead run was whole after all: the one way from `failed` to anything else."""
        if run_id in self.died:
            partial = Holding(HoldingKind.PARTIAL, f"{where}/{run_id}")
            self.catalogue.finish_dead_run(run_id, backup(where, run_id), partial, "finished by recover")
            self.backups[run_id].add(where)
            self.expected[run_id] = {RunStatus.ATTENTION}

    @rule(run_id=ended)
    def is_said_to_be_dead(self, run_id: str) -> None:
        self.catalogue.end_dead_run(run_id, DIED)

    # --- schedules, and the file itself ------------------------------------------------------------------------------

    @rule(hours=st.integers(0, 3), state=st.sampled_from([SlotState.STARTED, SlotState.MISSED]))
    def a_slot_is_decided(self, hours: int, state: SlotState) -> None:
        due = BEGAN + timedelta(hours=hours)
        slot = Slot("nightly", Activity.BACKUP, due, state, due, "r0" if state is SlotState.STARTED else "")
        known = ("nightly", due) in self.slots
        taken = (
            self.catalogue.take_slot(slot) if state is SlotState.STARTED else bool(self.catalogue.pass_slots([slot]))
        )
        assert taken is not known, "a slot was decided twice"
        self.slots.setdefault(("nightly", due), state)

    @rule()
    def a_key_is_known(self) -> None:
        self.catalogue.know_key("ed25519:" + "ab" * 32, "db9-0123abcd", Known.TRUSTED)

    @rule(target=ended)
    def everybody_is_killed_and_it_is_opened_again(self) -> MultipleResults[str]:
        """Every process that has it open dies at once, and a dead run is ended by the next one."""
        dead = list(self.records)
        for run_id in dead:
            self.die(run_id)
        self.catalogue.close()
        self.catalogue = Catalogue.open(self.folder / "catalogue.db", machine=lambda: MACHINE)
        assert set(self.catalogue.unfinished()) == set(dead)
        for run_id in dead:
            self.find_dead(run_id)
        return multiple(*dead)

    # --- what stays true ---------------------------------------------------------------------------------------------

    @invariant()
    def every_run_is_there_and_is_what_was_acknowledged(self) -> None:
        found = {run.run_id: run for run in self.catalogue.runs(limit=None)}
        assert found.keys() == self.expected.keys()
        for run_id, statuses in self.expected.items():
            assert found[run_id].status in statuses, run_id
            self.expected[run_id] = {found[run_id].status}  # from now on it is this, and no other
            assert {one.target for one in found[run_id].backups} == self.backups[run_id]
            assert (found[run_id].pin is not None) == (run_id in self.pinned)
            assert len(found[run_id].drills) == self.drills.get(run_id, 0)

    @invariant()
    def what_is_held_is_what_was_told(self) -> None:
        staged = {name for run_id, names in self.held.items() for name in (f"/{run_id}/{one}" for one in names)}
        assert {holding.name for _, holding in self.catalogue.holdings()} == staged

    @invariant()
    def no_slot_is_lost_or_changes_its_state(self) -> None:
        assert {(slot.job, slot.due_at): slot.state for slot in self.catalogue.slots(limit=None)} == self.slots

    @invariant()
    def the_chain_grows_and_holds_together(self) -> None:
        trail = self.catalogue.audit_trail()
        assert trail.chain.first_fault is None
        assert trail.chain.rows >= self.rows
        self.rows = trail.chain.rows
        for run_id, status in trail.chain.statuses.items():
            assert trail.runs[run_id] in (status, RunStatus.ATTENTION), run_id


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=examples(40), stateful_step_count=30)
