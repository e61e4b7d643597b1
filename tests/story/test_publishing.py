"""A copy is a backup as soon as its own target has shown all of it; what becomes of the others costs it nothing."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from backupd.host.signals import cancellable
from backupd.operations.copies.publishing import Published, publish_copies
from backupd.policy import manifest as manifests
from backupd.targets.listing import unknown_beside
from backupd.vocabulary.errors import Cancelled, ExitStatus, TargetError, VerificationError
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.storage import Manifest
from tests.fakes.target import MemoryTarget
from tests.story.stored import JOB, RUN, put
from tests.story.world import World

DATA = ("nightly", "r1", "data-1.tar.zst")
FINISHED = ("nightly", "r1", "manifest.json")
PATIENCE_SECONDS = 20.0


@dataclass
class ToldTarget(MemoryTarget):
    """Says what is about to be done to it."""

    told: dict[str, Callable[[], object]] = field(default_factory=dict)

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        self.told.get("reading", lambda: None)()
        with super().reading(job, backup_id, name, **which) as chunks:
            yield chunks

    def publish(self, manifest: Manifest) -> None:
        self.told.get("publish", lambda: None)()
        super().publish(manifest)
        self.told.get("published", lambda: None)()

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        self.told.get("objects", lambda: None)()
        return super().objects(job, backup_id)


@pytest.fixture
def vault(world: World) -> ToldTarget:
    """The job's first target."""
    world.memory = ToldTarget(name="vault")
    return world.memory


@pytest.fixture
def offsite(world: World, vault: ToldTarget) -> ToldTarget:
    """The job's second one."""
    target = ToldTarget(name="offsite")
    world.others = [target]
    return target


def recorded(world: World) -> tuple[str, ...]:
    return tuple(backup.target for backup in world.row().backups)


def once_recorded(world: World, then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Waits until the other target's backup is in the catalogue, as a slow target takes its time."""

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not recorded(world):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        then()

    return wait


def test_a_target_is_published_and_recorded_while_another_is_still_being_read(
    world: World, vault: ToldTarget, offsite: ToldTarget
) -> None:
    offsite.told["reading"] = once_recorded(world)
    row = world.back_up()
    assert (row.status, [backup.target for backup in row.backups]) == (RunStatus.SUCCESS, ["vault", "offsite"])
    vault_at, offsite_at = (backup.verified_at for backup in row.backups)
    assert vault_at is not None
    assert offsite_at is not None
    assert vault_at < offsite_at
    assert vault.stored[FINISHED] == offsite.stored[FINISHED]


def test_what_fails_later_on_another_target_takes_nothing_from_it(
    world: World, vault: ToldTarget, offsite: ToldTarget
) -> None:
    def fail() -> None:
        raise TargetError("the connection was lost")

    offsite.told["reading"] = once_recorded(world, fail)
    row = world.back_up()
    assert (row.status, recorded(world)) == (RunStatus.ATTENTION, ("vault",))
    assert row.attention == ("target offsite has no copy of this run: the connection was lost; the backup is on vault",)
    assert (offsite.stored, world.left()) == ({}, [])
    assert vault.manifest("nightly", "r1").run_id == "r1"


def test_a_cancelled_run_keeps_the_backup_that_it_has_and_says_so(
    world: World, vault: ToldTarget, offsite: ToldTarget
) -> None:
    def stop() -> None:
        offsite.told.clear()
        os.kill(os.getpid(), signal.SIGTERM)

    offsite.told["reading"] = once_recorded(world, stop)
    with pytest.raises(Cancelled), cancellable():
        world.back_up()
    row = world.row()
    assert (row.status, row.error, recorded(world)) == (RunStatus.ATTENTION, None, ("vault",))
    assert row.attention == ("the run was interrupted after it had published a backup: terminated by SIGTERM",)
    assert (offsite.stored, world.left()) == ({}, [])
    assert vault.manifest("nightly", "r1").run_id == "r1"


def lose(target: MemoryTarget) -> None:
    """As whoever empties a folder does."""
    for key in [key for key in target.stored if key != FINISHED]:
        del target.stored[key]


def shorten(target: MemoryTarget) -> None:
    target.stored[DATA] = target.stored[DATA][:-1]


def lengthen(target: MemoryTarget) -> None:
    target.stored[DATA] += b"x"


@pytest.mark.parametrize("moment", ["objects", "publish", "published"])
@pytest.mark.parametrize("harm", [lose, shorten, lengthen])
def test_bytes_that_vanish_after_they_were_read_back_make_no_success(
    world: World, vault: ToldTarget, moment: str, harm: Callable[[MemoryTarget], None]
) -> None:
    """Before its manifest is written or just after: the manifest does not outlive its objects."""

    def harmed() -> None:
        vault.told.clear()
        harm(vault)

    vault.told[moment] = harmed
    error = world.try_to_back_up()
    assert isinstance(error, VerificationError)
    assert "target vault does not list what was stored: data-1.tar.zst " in error.message
    assert (error.exit_status, error.hint != "") == (ExitStatus.VERIFICATION, True)
    assert (world.row().status, world.row().backups) == (RunStatus.FAILED, ())
    assert (vault.stored, world.left()) == ({}, [])


def test_a_manifest_without_its_bytes_that_cannot_be_taken_back_is_told_with_the_first_error(
    world: World, vault: ToldTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job: str, backup_id: str) -> None:
        raise TargetError(f"{job}/{backup_id} is locked", hint="wait")

    def harmed() -> None:
        vault.told.clear()
        lose(vault)
        monkeypatch.setattr(vault, "remove", refuse)

    vault.told["published"] = harmed
    error = world.try_to_back_up()
    assert isinstance(error, VerificationError)
    assert "target vault does not list what was stored" in error.message
    assert "and its manifest could not be removed: nightly/r1 is locked" in error.__notes__
    assert (world.row().status, world.row().backups) == (RunStatus.FAILED, ())
    assert world.left() == ["row of partial-objects vault/nightly/r1"], "for the next recovery"


def test_a_target_whose_bytes_vanish_drops_out_and_the_other_has_the_backup(
    world: World, vault: ToldTarget, offsite: ToldTarget
) -> None:
    offsite.told["published"] = lambda: lose(offsite)
    row = world.back_up()
    assert (row.status, recorded(world)) == (RunStatus.ATTENTION, ("vault",))
    assert "target offsite has no copy of this run: target offsite does not list what was stored" in row.attention[0]
    assert (offsite.stored, world.left()) == ({}, [])


def test_what_somebody_else_put_beside_the_objects_wants_attention_and_is_no_fault(
    world: World, vault: ToldTarget
) -> None:
    def put_a_note() -> None:
        vault.stored["nightly", "r1", "Thumbs.db"] = b"a thumb"

    vault.told["publish"] = put_a_note
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    assert row.attention == (unknown_beside(["Thumbs.db"], "vault"),)
    assert recorded(world) == ("vault",)


def test_it_is_read_back_in_the_idle_class(world: World, vault: ToldTarget) -> None:
    seen: set[int] = set()
    vault.told["reading"] = lambda: seen.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    world.back_up()
    assert seen == {19}


@dataclass
class MeetingTarget(MemoryTarget):
    """Gives no piece before the others are asked for theirs."""

    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        with super().reading(job, backup_id, name, **which) as chunks:
            yield (self._together(chunk) for chunk in chunks)

    def _together(self, chunk: bytes) -> bytes:
        self.meeting.wait(PATIENCE_SECONDS)
        return chunk


def copied(*targets: MemoryTarget) -> Manifest:
    """Each has 2 MiB that no manifest tells of; returns the manifest."""
    for target in targets:
        put(target, {"data-1.tar.zst": [("ibdata1", random.Random(1).randbytes(2 << 20))]})
    finished = targets[0].manifest(JOB, RUN)
    for target in targets:
        del target.stored[JOB, RUN, "manifest.json"]
    return finished


def published(manifest: Manifest, targets: Sequence[MemoryTarget], *, max_rate: int | None = None) -> list[Published]:
    done: list[Published] = []
    publish_copies(manifest, targets, max_rate=max_rate, failing=lambda _: nullcontext(), published=done.append)
    assert {one.target.name for one in done} == {target.name for target in targets}
    return done


def test_a_manifest_that_a_target_gives_back_otherwise_is_no_backup_and_does_not_stay() -> None:
    target = ToldTarget(name="vault")
    manifest = copied(target)

    def exchange() -> None:
        another = replace(manifest, host="db2")
        target.stored[JOB, RUN, "manifest.json"] = manifests.to_text(another).encode()

    target.told["published"] = exchange
    with pytest.raises(VerificationError, match="the manifest on target vault is not what was written"):
        published(manifest, [target])
    assert target.backups() == []


def test_all_targets_are_read_at_the_same_time_however_many_they_are() -> None:
    meeting = threading.Barrier(6)
    targets = [MeetingTarget(name=f"store{number}", meeting=meeting) for number in range(6)]
    manifest = copied(*targets)
    for one in published(manifest, targets):
        assert one.read_back.stage == f"read-back:{one.target.name}"
        assert one.read_back.bytes == sum(stored.stored_bytes for stored in manifest.objects)


def test_how_much_has_been_read_back_is_told_here_up_to_the_last_byte() -> None:
    targets = [MemoryTarget(name="a"), MemoryTarget(name="b")]
    manifest = copied(*targets)
    told: list[tuple[int, threading.Thread]] = []
    publish_copies(
        manifest,
        targets,
        max_rate=20 << 20,
        failing=lambda _: nullcontext(),
        published=lambda _: None,
        read=lambda done: told.append((done, threading.current_thread())),
    )
    bytes_read = [done for done, _ in told]
    assert bytes_read == sorted(bytes_read)
    assert bytes_read[-1] == 2 * sum(stored.stored_bytes for stored in manifest.objects)
    assert {thread for _, thread in told} == {threading.current_thread()}


def test_the_limit_on_the_rate_holds_for_all_targets_together() -> None:
    targets = [MemoryTarget(name="a"), MemoryTarget(name="b")]
    manifest = copied(*targets)
    read = sum(len(content) for target in targets for content in target.stored.values())
    rate = 20 << 20
    began = time.monotonic()
    published(manifest, targets, max_rate=rate)
    assert time.monotonic() - began >= read / rate
