"""Storage that answers nobody, as a dead NFS server does: a run ends all the same, and the server is as before."""

import math
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from backupd.config import CopyConfig
from backupd.host.signals import cancellable
from backupd.operations.backup.run import run_backup
from backupd.operations.hanging_targets import silent_seconds
from backupd.operations.ownership import ownership_of
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.recover import clean_up_dead_runs
from backupd.policy.retries import passes
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import (
    Busy,
    Cancelled,
    CleanupIncomplete,
    SnapshotError,
    TargetAway,
    TargetError,
    VerificationError,
)
from backupd.vocabulary.records import HoldingKind, RunStatus
from tests.fakes.server import SETTINGS
from tests.fakes.target import MemoryTarget
from tests.story.test_additional_copy import copy, leave_drill
from tests.story.test_recover import die_at, recover
from tests.story.world import World

pytestmark = pytest.mark.timeout(30)  # what is tested is that nothing waits for ever

PATIENCE_SECONDS = 10.0


class Storage:
    """A verb of the target's, from some moment on, answers nobody until it is let go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stood, self._answers = threading.Event(), threading.Event()
        self.asked: list[str] = []

    def hang(self, verb: str, asked: Callable[[], object] = lambda: None, *, of: DirectoryTarget | None = None) -> None:
        """Of the world's own target, where none is named."""
        target = of or self._world.vault_target
        verb_of_target = getattr(target, verb)

        def hangs(*given: Any, **named: Any) -> Any:
            self.asked.append(verb)
            asked()
            self.stand()
            return verb_of_target(*given, **named)

        setattr(target, verb, hangs)

    def stand(self, *_given: Any) -> None:
        self._stood.set()
        self._answers.wait()

    def until_somebody_stands(self) -> None:
        assert self._stood.wait(PATIENCE_SECONDS)

    def let_go(self) -> None:
        self._answers.set()


@pytest.fixture(autouse=True)
def _nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.ownership._UNDER_WAY_SECONDS", 0.2)
    monkeypatch.setattr("backupd.host.claims._AWAITED_SECONDS", 0.2)
    monkeypatch.setattr("backupd.host.holdings._STORAGE_SECONDS", 0.2)
    monkeypatch.setattr("backupd.operations.hanging_targets._ANSWER_SECONDS", 0.5)  # one that is busy answers


@pytest.fixture
def silence_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose folder hangs in the end: on a busy machine a sound one would seem to."""
    monkeypatch.setattr("backupd.operations.hanging_targets._SILENT_SECONDS", 0.2)
    monkeypatch.setattr("backupd.operations.copies.fan_out._END_SECONDS", 0.2)


@pytest.fixture
def storage(world: World) -> Iterator[Storage]:
    """That of the world's only target."""
    storage = Storage(world)
    yield storage
    answers_again(storage)  # the next test looks for such threads


def answers_again(storage: Storage) -> None:
    """What was left behind in a call has gone on to its end when this returns."""
    storage.let_go()
    for thread in threading.enumerate():
        if thread.name.startswith("backupd "):
            thread.join(PATIENCE_SECONDS)


def left(world: World) -> list[str]:
    """But for threads that stand in a call: they end with their process."""
    return [each for each in world.left() if not each.startswith("thread backupd ")]


def test_a_run_is_cancelled_although_an_owner_record_is_being_written_to_a_target_that_hangs(
    world: World, storage: Storage
) -> None:
    world.renewal_seconds = 0.001

    def cancel() -> None:
        storage.hang("owner")
        storage.until_somebody_stands()
        os.kill(os.getpid(), signal.SIGTERM)

    world.at["host.mount"] = cancel
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    assert world.row().status is RunStatus.CANCELLED
    assert left(world) == [REMAINS]
    assert world.tools.claims.holder_of_job("nightly") is None


def test_a_run_that_fails_ends_although_the_target_hangs_that_its_objects_are_to_be_removed_from(
    world: World, storage: Storage
) -> None:
    world.at["host.mount"] = lambda: storage.hang("owner")
    world.host.fail("mount")
    with pytest.raises(SnapshotError) as caught:
        world.back_up()
    assert "clean-up incomplete: target vault does not answer" in "".join(caught.value.__notes__)
    assert world.row().status is RunStatus.FAILED
    assert left(world) == [REMAINS]


REMAINS = "row of partial-objects vault/nightly/r1"
COPY_REMAINS = "row of partial-objects offsite/nightly/r1"


def test_a_backup_never_asks_a_target_of_other_jobs_for_what_a_dead_run_left_there(
    world: World, storage: Storage
) -> None:
    die_at(world, "target.writing")
    storage.hang("owner")
    offsite = MemoryTarget("offsite", machine=world.name)
    other, tools = world.job(name="other", targets=("offsite",)), replace(world.tools, targets=(offsite,))
    with world.catalogue() as catalogue:
        run_backup(other, tools, catalogue, run_id="r2")
    assert world.row("r2").status is RunStatus.SUCCESS
    assert (storage.asked, world.left()) == ([], [REMAINS])
    error = world.row().error
    assert error is not None
    assert "something that it held is left: `backupd recover` cleans it up" in error.hint


@pytest.mark.parametrize("verb", ["require_usable", "owner", "succeed"])
def test_a_run_goes_on_with_the_target_that_is_left_although_the_other_one_hangs(
    world: World, storage: Storage, verb: str
) -> None:
    world.others = [MemoryTarget("offsite", machine=world.name)]
    storage.hang(verb)
    row = world.back_up(job=world.job(targets=("vault", "offsite")))
    assert row.status is RunStatus.ATTENTION
    assert "target vault has no copy of this run: target vault does not answer" in " ".join(row.attention)
    assert [backup.target for backup in row.backups] == ["offsite"]
    assert left(world) == []


@pytest.mark.usefixtures("silence_is_short")
@pytest.mark.parametrize("moment", ["target.begun", "target.reading", "target.publish"])
def test_a_target_that_hangs_while_it_is_written_or_read_back_drops_out(
    world: World, storage: Storage, moment: str
) -> None:
    world.others = [MemoryTarget("offsite", machine=world.name)]
    world.at[moment] = storage.stand
    row = world.back_up(job=world.job(targets=("vault", "offsite")))
    no_copy = (
        "target vault has no copy of this run: target vault does not answer within 200ms; the backup is on offsite"
    )
    assert row.status is RunStatus.ATTENTION
    assert no_copy in row.attention
    assert [backup.target for backup in row.backups] == ["offsite"]
    assert left(world) == [REMAINS]


@pytest.mark.parametrize("moment", ["manifest", "objects", "target.reading"])
def test_a_copy_of_a_target_that_hangs_ends_with_nothing_written_and_holds_the_run_no_longer(
    request: pytest.FixtureRequest, world: World, storage: Storage, moment: str
) -> None:
    world.back_up()
    request.getfixturevalue("offsite")  # which is none of the run's
    request.getfixturevalue("silence_is_short")
    if moment == "target.reading":
        world.at[moment] = storage.stand
    else:
        storage.hang(moment)
    with pytest.raises(TargetAway, match="target vault does not answer within 200ms"):
        copy(world)
    assert left(world) == []
    with world.tools.claims.removing("r1"):
        """Whoever prunes may."""


def test_a_copy_that_is_whole_is_one_although_the_target_that_it_was_read_from_hangs_by_then(
    request: pytest.FixtureRequest, world: World, storage: Storage
) -> None:
    world.back_up()
    request.getfixturevalue("offsite")

    def hang() -> None:
        request.getfixturevalue("silence_is_short")
        storage.hang("objects")

    world.at["offsite.published"] = hang
    done = copy(world)
    assert done is not None
    assert "target vault does not answer within 200ms" in done.attentions[0]
    assert left(world) == []


@pytest.mark.parametrize("verb", ["backups", "require_usable", "owner", "succeed"])
def test_a_copy_to_a_target_that_hangs_ends_before_anything_is_written(
    request: pytest.FixtureRequest, world: World, storage: Storage, verb: str
) -> None:
    world.back_up()
    offsite = request.getfixturevalue("offsite")
    request.getfixturevalue("silence_is_short")
    storage.hang(verb, of=offsite)
    with pytest.raises(TargetAway, match=r"target offsite does not answer within [25]00ms"):
        copy(world)
    assert left(world) == []
    with world.tools.claims.removing("r1"):
        """Whoever prunes may."""


@pytest.mark.parametrize("moment", ["offsite.begun", "offsite.reading", "objects", "owner"])
def test_a_copy_to_a_target_that_hung_is_published_by_nobody_once_it_answers_again(
    request: pytest.FixtureRequest,
    world: World,
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """That copy has failed by then, and the thread that stood in the call is nobody's."""
    world.back_up()
    offsite = request.getfixturevalue("offsite")
    request.getfixturevalue("silence_is_short")
    if moment == "objects":
        storage.hang(moment, of=offsite)
    elif moment == "owner":
        world.at["offsite.reading"] = lambda: None if storage.asked else storage.hang("owner", of=offsite)
    else:
        world.at[moment] = storage.stand
    with pytest.raises(TargetAway, match="target offsite does not answer within 200ms") as caught:
        copy(world)
    assert "clean-up incomplete: target offsite does not answer" in "".join(caught.value.__notes__)
    assert left(world) == [COPY_REMAINS]
    with world.tools.claims.removing("r1"):
        """Whoever prunes may."""
    answers_again(storage)
    assert [one.finished for one in offsite.backups()] in ([False], [])
    world.at.clear()
    monkeypatch.setattr("backupd.operations.hanging_targets._SILENT_SECONDS", PATIENCE_SECONDS)
    assert copy(world) is not None
    assert [(one.target, one.is_there) for one in world.row().backups] == [("vault", True), ("offsite", True)]
    assert left(world) == []


@pytest.mark.parametrize("verb", ["owner", "remove"])
def test_a_copy_that_fails_ends_although_the_target_hangs_that_its_objects_are_to_be_removed_from(
    request: pytest.FixtureRequest, world: World, storage: Storage, verb: str
) -> None:
    """Whoever stands there may remove, whenever the storage answers: nothing of this run is written there till then."""
    world.back_up()
    offsite = request.getfixturevalue("offsite")

    def fail() -> None:
        storage.hang(verb, of=offsite)
        raise TargetError("no space left")

    world.at["offsite.reading"] = fail
    with pytest.raises(TargetError, match="no space left") as caught:
        copy(world)
    assert "clean-up incomplete: target offsite does not answer: offsite/nightly/r1" in "".join(caught.value.__notes__)
    world.at.clear()
    with pytest.raises(Busy, match="clean-up-of-copy-to-offsite"):
        copy(world)
    recover(world)
    assert COPY_REMAINS in left(world)
    answers_again(storage)
    assert offsite.backups() == []
    recover(world)
    assert copy(world) is not None
    assert left(world) == []


@pytest.mark.parametrize("moment", ["offsite.publish", "manifest"])
def test_a_copy_to_a_target_that_hangs_as_it_is_published_is_known_once_it_is_recovered(
    request: pytest.FixtureRequest, world: World, storage: Storage, moment: str
) -> None:
    """Nobody can take back the call that writes the manifest: what it wrote is whole, and has been read back."""
    world.back_up()
    offsite = request.getfixturevalue("offsite")
    request.getfixturevalue("silence_is_short")
    if moment == "manifest":
        storage.hang(moment, of=offsite)
    else:
        world.at[moment] = storage.stand
    with pytest.raises(TargetAway, match="target offsite does not answer within 200ms"):
        copy(world)
    assert (left(world), [one.target for one in world.row().backups]) == ([COPY_REMAINS], ["vault"])
    answers_again(storage)
    assert [holding.name for holding in recover(world).finished] == ["offsite/nightly/r1"]
    assert [one.target for one in world.row().backups] == ["vault", "offsite"]
    assert left(world) == []


def test_a_destination_that_lost_bytes_is_told_although_the_target_that_they_were_read_from_hangs_by_then(
    request: pytest.FixtureRequest, world: World, storage: Storage
) -> None:
    """That is read once more then, for whose fault it is."""
    world.back_up()
    offsite = MemoryTarget("offsite", machine=world.name, drop_bytes=1)
    world.others = [offsite]
    looked = offsite.reading

    def hang(*which: Any, **part: Any) -> Any:
        request.getfixturevalue("silence_is_short")
        world.at["target.reading"] = storage.stand
        return looked(*which, **part)

    offsite.reading = hang  # type: ignore[method-assign]
    with pytest.raises(VerificationError, match="copy on target offsite is not what was sent"):
        copy(world)
    assert left(world) == []


def test_a_copy_that_is_whole_is_one_although_its_target_hangs_as_the_results_of_drills_are_written_there(
    request: pytest.FixtureRequest, world: World, storage: Storage
) -> None:
    """The target that they are read from does not answer for it."""
    world.back_up()
    leave_drill(world)
    offsite = request.getfixturevalue("offsite")  # which is none of the run's
    storage.hang("attach", of=offsite)
    world.at["offsite.published"] = lambda: request.getfixturevalue("silence_is_short")
    done = copy(world)
    assert done is not None
    (told,) = done.attentions
    assert "could not be copied to target offsite" in told
    assert told.endswith("target offsite does not answer within 200ms")
    assert [one.target for one in world.row().backups] == ["vault", "offsite"]
    assert left(world) == []


def test_what_a_file_system_sends_only_as_a_file_is_closed_has_time_for_its_bytes(world: World) -> None:
    folder, store = world.vault_target, MemoryTarget("offsite")
    assert silent_seconds(folder, 128 << 30) - silent_seconds(folder) == pytest.approx(128 * 1024 / 10)  # 10 MiB/s
    assert silent_seconds(store) == math.inf  # it has a time-out of its own


@pytest.mark.usefixtures("silence_is_short")
def test_a_run_whose_only_target_hangs_ends_and_may_be_tried_again(world: World, storage: Storage) -> None:
    world.at["target.begun"] = storage.stand
    with pytest.raises(TargetAway) as caught:
        world.back_up()
    assert passes(caught.value)
    assert (world.row().status, left(world)) == (RunStatus.FAILED, [REMAINS])


@pytest.mark.parametrize("verb", ["owner", "remove"])
def test_host_and_server_are_released_before_a_target_is_asked_for_what_dead_runs_left_there(
    world: World, storage: Storage, verb: str
) -> None:
    die_at(world, "host.unmount", job=world.job(copy=CopyConfig(spool=world.spool)))
    seen: list[list[str]] = []
    storage.hang(verb, lambda: seen.append([each for each in left(world) if not each.startswith("lock file ")]))
    with world.catalogue() as catalogue:
        recovery = clean_up_dead_runs(
            catalogue, world.tools, finishing=world.finishing, released=lambda: seen.append(["released"])
        )
        with pytest.raises(CleanupIncomplete, match="vault/nightly/r1 is left: target vault does not answer"):
            recovery.require_complete()
    assert seen == [[REMAINS], ["released"]]
    assert left(world) == [REMAINS]


def test_a_target_that_hangs_is_asked_once_however_much_dead_runs_left_on_it(world: World, storage: Storage) -> None:
    die_at(world, "target.writing")
    storage.hang("owner")
    with world.catalogue() as catalogue:
        one = next(holding for _, holding in catalogue.holdings("r1") if holding.kind is HoldingKind.PARTIAL)
        catalogue.hold("r1", replace(one, name="vault/nightly/r0", detail={**one.detail, "backup": "r0"}))
        assert len(clean_up_dead_runs(catalogue, world.tools).left) == 2
    assert storage.asked == ["owner"]


def test_a_pruning_goes_on_with_the_target_that_is_left_although_the_other_one_hangs(
    world: World, storage: Storage
) -> None:
    storage.hang("owner")
    offsite = MemoryTarget("offsite", machine=world.name)
    with world.catalogue() as catalogue:
        ownership = ownership_of(catalogue, world.tools)
        pruning = prune(world.job(), (world.vault_target, offsite), catalogue, ownership=ownership)
    assert [(name, error.message) for name, error in pruning.failures] == [
        ("vault", "target vault does not answer within 500ms")
    ]


def test_the_lock_is_asked_for_beside_a_target_that_hangs(
    world: World, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.renewal_seconds, world.with_preflush = 0.001, True

    def hang() -> None:
        storage.hang("owner")
        storage.until_somebody_stands()

    def let_go() -> None:
        monkeypatch.setattr("backupd.operations.ownership._UNDER_WAY_SECONDS", 10.0)  # nothing hangs any more
        storage.let_go()

    world.at["flusher.flushed"] = hang
    world.at["host.mount"] = let_go
    assert world.back_up().status is RunStatus.SUCCESS
    assert (world.database.settings, world.left()) == (SETTINGS, [])


def test_a_run_ends_although_the_disk_of_its_spool_hangs(world: World, storage: Storage) -> None:
    world.also_released = {HoldingKind.SPOOL: storage.stand}
    row = world.back_up(job=world.job(copy=CopyConfig(spool=world.spool)))
    assert row.status is RunStatus.ATTENTION
    assert f"the spool {world.spool} does not answer" in row.attention[0]
    assert row.backup is not None
    assert [each.partition(" /")[0] for each in left(world)] == ["row of spool", "spooled"]


def test_the_server_is_as_before_although_the_catalogue_s_disk_hangs_when_the_lock_ends(world: World) -> None:
    world.with_applier = world.with_preflush = True
    world.database.become_replica({"": True})
    seen: list[bool] = []

    def is_as_before() -> bool:
        return (world.database.appliers(), world.database.settings) == ({"": True}, SETTINGS)

    def hang() -> None:
        holder = sqlite3.connect(world.places.catalogue, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN IMMEDIATE")

        def let_go() -> None:
            deadline = time.monotonic() + 10
            while not is_as_before() and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(is_as_before())
            holder.close()

        threading.Thread(target=let_go).start()

    world.at["lock.ended"] = hang
    assert world.back_up().status is RunStatus.SUCCESS
    assert seen == [True]
    assert world.left() == []
