"""What a target of blobs makes of a container that fails: either the object is there, whole, or it says so.

On a container in memory, which can refuse each request before it is carried out or after. Real ones: `tests/clouds`.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from backupd.host.signals import cancellable
from backupd.targets.blob_store import BlobFailure, Trouble
from backupd.targets.blobs import BlobTarget
from backupd.vocabulary.errors import Cancelled, NoRoom, TargetAway, TargetError
from tests.contract.blob_targets import memory_blobs
from tests.contract.s3_server import IMPATIENT, PART
from tests.contract.test_targets import JOB, MANIFEST, NAME, RUN, get, plant, put, record
from tests.fakes.blob_store import Fault, MemoryBlobStore

SMALL = b"less than a part"
LARGE = bytes(range(256)) * (PART // 256) + b"the end"
EVER = IMPATIENT.tries + 1


def refused(refusal: Trouble) -> Fault:
    """Nothing was carried out."""

    def fault(_: Callable[[], None]) -> None:
        raise BlobFailure(refusal, "as told")

    return fault


def unanswered(do: Callable[[], None]) -> None:
    """It was carried out, and nobody hears of it."""
    do()
    raise BlobFailure(Trouble.SILENT, "as told")


def pretended(_: Callable[[], None]) -> None:
    """It says so and was not carried out."""


BUSY = refused(Trouble.BUSY)


@pytest.fixture(params=[True, False], ids=["at once", "in order"])
def store(request: pytest.FixtureRequest) -> MemoryBlobStore:
    return MemoryBlobStore(sends_parts_at_once=request.param)


@pytest.fixture
def target(store: MemoryBlobStore) -> BlobTarget:
    return memory_blobs(store)


def require_nothing_left(store: MemoryBlobStore) -> None:
    store.faults.clear()
    assert (store.blobs, store.parts) == ({}, {})


@pytest.mark.parametrize(
    ("request_name", "content", "faults"),
    [
        ("part", LARGE, [BUSY, unanswered]),
        ("commit", LARGE, [BUSY]),
        ("commit", LARGE, [unanswered]),
        ("commit", LARGE, [unanswered, refused(Trouble.MISSING)]),  # the upload is no longer known
        ("commit", LARGE, [unanswered] * EVER),
        ("put", SMALL, [BUSY, unanswered]),
        ("look", SMALL, [BUSY]),
        ("look", LARGE, [unanswered]),
    ],
)
def test_what_passes_is_outlasted(
    store: MemoryBlobStore, target: BlobTarget, request_name: str, content: bytes, faults: list[Fault]
) -> None:
    store.faults[request_name] = [*faults]
    put(target, content)
    assert get(target) == content
    assert not store.parts


@pytest.mark.parametrize(
    ("request_name", "content", "fault"),
    [
        ("part", LARGE, BUSY),
        ("part", LARGE, refused(Trouble.DENIED)),
        ("part", LARGE, pretended),
        ("commit", LARGE, BUSY),
        ("commit", LARGE, pretended),
        ("commit", LARGE, refused(Trouble.MISSING)),
        ("put", SMALL, BUSY),
        ("put", SMALL, pretended),
        ("put", SMALL, refused(Trouble.FULL)),
    ],
)
def test_what_does_not_pass_is_an_error_and_nothing_is_left(
    store: MemoryBlobStore, target: BlobTarget, request_name: str, content: bytes, fault: Fault
) -> None:
    store.faults[request_name] = [fault] * EVER
    with pytest.raises(TargetError) as raised:
        put(target, content)
    assert raised.value.hint
    require_nothing_left(store)


@pytest.mark.parametrize(("request_name", "content"), [("put", SMALL), ("commit", LARGE), ("part", LARGE)])
def test_an_object_that_has_the_name_already_stays_where_a_new_one_fails(
    store: MemoryBlobStore, target: BlobTarget, request_name: str, content: bytes
) -> None:
    plant(target, NAME)
    store.faults[request_name] = [BUSY] * EVER
    with pytest.raises(TargetError):
        put(target, content)
    assert get(target) == b"mine"


def test_an_object_whose_bytes_the_service_has_otherwise_is_none(store: MemoryBlobStore, target: BlobTarget) -> None:
    def damaged(do: Callable[[], None]) -> None:
        do()
        ((key, (body, stored, at)),) = store.blobs.items()
        store.blobs[key] = body, replace(stored, checksum="0"), at

    store.faults["put"] = [damaged]
    with pytest.raises(TargetError, match="does not have it as it was sent"):
        put(target, SMALL)
    require_nothing_left(store)


def test_parts_of_a_dead_process_are_an_unfinished_backup_and_go_with_it(
    store: MemoryBlobStore, target: BlobTarget
) -> None:
    store.upload(f"{target._key(JOB, RUN)}/{NAME}", "mark").part(0, 0, b"half")
    assert [(found.backup_id, found.finished) for found in target.backups()] == [(RUN, False)]
    target.remove(JOB, RUN)
    require_nothing_left(store)


def test_no_more_parts_are_in_memory_than_may_be_sent_and_filled(store: MemoryBlobStore, target: BlobTarget) -> None:
    held = threading.Event()
    busy = threading.Semaphore(0)

    def slow(do: Callable[[], None]) -> None:
        busy.release()
        held.wait(20)
        do()

    store.faults["part"] = [slow] * 20
    writer = threading.Thread(target=put, args=(target, LARGE[:PART] * 8))
    writer.start()
    try:
        for _ in range(4 if store.sends_parts_at_once else 1):
            assert busy.acquire(timeout=20)
        assert not busy.acquire(timeout=0.2)
    finally:
        held.set()
        writer.join(30)
    assert get(target) == LARGE[:PART] * 8


def test_the_wait_for_an_outage_ends_at_once_when_nobody_wants_the_object(store: MemoryBlobStore) -> None:
    target = memory_blobs(store, outage_seconds=60.0)
    unwanted = threading.Event()

    def nobody_wants_it(do: Callable[[], None]) -> None:
        unwanted.set()
        BUSY(do)

    store.faults["part"] = [BUSY, nobody_wants_it, *[BUSY] * 100]
    writing = target.writing(JOB, RUN, NAME, unwanted=unwanted)
    with pytest.raises(TargetError), writing as writer:
        writer.write(LARGE)
    assert len(store.faults["part"]) > 90
    require_nothing_left(store)


def test_no_thread_outlives_an_object(target: BlobTarget) -> None:
    put(target, LARGE)
    with pytest.raises(KeyboardInterrupt), target.writing(JOB, RUN, "other") as writer:
        writer.write(LARGE)
        raise KeyboardInterrupt
    with target.reading(JOB, RUN, NAME) as pieces:
        next(pieces)
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("backupd blob")]:
        thread.join(60)
        assert not thread.is_alive()


# --- small objects ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [[BUSY], [unanswered], [unanswered] * EVER])
def test_a_manifest_whose_answer_was_lost_is_published_once(
    store: MemoryBlobStore, target: BlobTarget, faults: list[Fault]
) -> None:
    store.faults["put"] = faults
    target.publish(MANIFEST)
    assert target.manifest(JOB, RUN) == MANIFEST


def test_a_manifest_that_came_first_stays(store: MemoryBlobStore, target: BlobTarget) -> None:
    def somebody_was_faster(do: Callable[[], None]) -> None:
        memory_blobs(store).publish(MANIFEST)
        do()

    store.faults["put"] = [somebody_was_faster]
    with pytest.raises(TargetError, match="already has a finished backup"):
        target.publish(replace(MANIFEST, host="db2"))
    assert target.manifest(JOB, RUN) == MANIFEST


@pytest.mark.parametrize("fault", [pretended, BUSY, refused(Trouble.DENIED)])
def test_a_manifest_that_is_not_there_was_not_published(
    store: MemoryBlobStore, target: BlobTarget, fault: Fault
) -> None:
    put(target, SMALL)
    store.faults["put"] = [fault] * EVER
    with pytest.raises(TargetError):
        target.publish(MANIFEST)
    with pytest.raises(TargetError, match="unfinished"):
        target.manifest(JOB, RUN)


@pytest.mark.parametrize("faults", [[BUSY], [unanswered], [unanswered] * EVER])
def test_an_owner_record_whose_answer_was_lost_has_succeeded(
    store: MemoryBlobStore, target: BlobTarget, faults: list[Fault]
) -> None:
    store.faults["put"] = faults
    assert target.succeed(record(1))
    assert not target.succeed(record(1, "b"))


def test_an_owner_record_that_may_not_be_written_is_told(store: MemoryBlobStore, target: BlobTarget) -> None:
    store.faults["put"] = [refused(Trouble.DENIED)] * EVER
    with pytest.raises(TargetError, match="does not let backupd write an owner record to it") as told:
        target.succeed(record(1))
    assert told.value.hint == store.permissions
    assert target.owner() is None


# --- before a run ----------------------------------------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_refused_before_a_run(store: MemoryBlobStore, target: BlobTarget) -> None:
    store.faults["put"] = [lambda do: do(), pretended]
    with pytest.raises(TargetError, match="overwrote an object although it was told to create it only if"):
        target.require_usable()
    require_nothing_left(store)


@pytest.mark.parametrize("request_name", ["put", "look", "read", "listed", "delete"])
def test_one_lost_answer_makes_no_target_unusable(
    store: MemoryBlobStore, target: BlobTarget, request_name: str
) -> None:
    store.faults[request_name] = [unanswered]
    target.require_usable()
    require_nothing_left(store)


def test_a_container_that_locks_whatever_is_written_can_be_used(store: MemoryBlobStore, target: BlobTarget) -> None:
    """Azure's policy of immutability, Google's of retention: 16 bytes stay until they are not locked any more."""
    store.faults["delete"] = [refused(Trouble.LOCKED)] * EVER
    target.require_usable()
    assert len(store.blobs) == 1
    store.faults["delete"] = [refused(Trouble.DENIED)] * EVER
    with pytest.raises(TargetError, match="does not let backupd remove from it"):
        target.require_usable()


@pytest.mark.parametrize(
    ("refusal", "kind", "sentence"),
    [
        (Trouble.NO_CONTAINER, TargetError, "does not exist"),
        (Trouble.NO_CREDENTIALS, TargetError, "no credentials for"),
        (Trouble.CREDENTIALS, TargetError, "does not accept the credentials"),
        (Trouble.DENIED, TargetError, "does not let backupd write to it"),
        (Trouble.LOCKED, TargetError, "could not write to"),
        (Trouble.ARCHIVED, TargetError, "in the archive tier"),
        (Trouble.FULL, NoRoom, "no space left on"),
        (Trouble.CERTIFICATE, TargetError, "is not trusted"),
        (Trouble.AWAY, TargetAway, "cannot be reached"),
        (Trouble.SILENT, TargetAway, "could not write to"),
        (Trouble.BUSY, TargetAway, "could not write to"),
        (Trouble.OTHER, TargetError, "could not write to"),
    ],
)
def test_each_refusal_has_its_sentence(
    store: MemoryBlobStore, target: BlobTarget, refusal: Trouble, kind: type[TargetError], sentence: str
) -> None:
    store.faults["put"] = [refused(refusal)] * EVER
    with pytest.raises(TargetError, match=sentence) as raised:
        target.require_usable()
    assert type(raised.value) is kind
    assert raised.value.hint


def test_credentials_that_are_refused_are_read_again_once(store: MemoryBlobStore, target: BlobTarget) -> None:
    store.faults["put"] = [refused(Trouble.CREDENTIALS)]
    target.require_usable()
    assert store.renewed == 1
    store.faults["put"] = [refused(Trouble.CREDENTIALS)] * 3
    with pytest.raises(TargetError, match="does not accept"):
        target.require_usable()
    assert store.renewed == 2


# --- reading and removing --------------------------------------------------------------------------------------------


def test_reading_goes_on_after_an_outage(store: MemoryBlobStore) -> None:
    target = memory_blobs(store, outage_seconds=60.0)
    put(target, LARGE)
    store.faults["read"] = [BUSY] * EVER
    assert get(target) == LARGE


def test_an_object_that_was_exchanged_in_the_middle_is_not_read_on(store: MemoryBlobStore, target: BlobTarget) -> None:
    put(target, LARGE)

    def exchanged(_: Callable[[], None]) -> None:
        put(memory_blobs(store), LARGE[::-1])

    store.faults["read"] = [exchanged]
    with pytest.raises(TargetError):
        get(target)


def test_what_comes_too_short_is_no_object(store: MemoryBlobStore, target: BlobTarget) -> None:
    """The service says how long it is, and then gives less."""
    put(target, LARGE)
    target.publish(MANIFEST)
    for key, (body, stored, at) in store.blobs.items():
        store.blobs[key] = body[:1], stored, at
    with pytest.raises(TargetError, match=r"it gave 1 of \d+ bytes"):
        get(target)
    with pytest.raises(TargetError, match="it ended at byte 1"):
        target.manifest(JOB, RUN)


def test_a_manifest_that_is_removed_while_it_is_read_is_none(store: MemoryBlobStore, target: BlobTarget) -> None:
    put(target, SMALL)
    target.publish(MANIFEST)

    def removed(_: Callable[[], None]) -> None:
        raise BlobFailure(Trouble.MISSING, "it is gone")

    store.faults["read"] = [removed]
    with pytest.raises(TargetError, match="unfinished"):
        target.manifest(JOB, RUN)


def test_a_store_that_says_it_removed_and_keeps_is_found_out(store: MemoryBlobStore, target: BlobTarget) -> None:
    put(target, SMALL)
    store.faults["delete"] = [pretended]
    with pytest.raises(TargetError, match="still has 1"):
        target.remove(JOB, RUN)


def test_a_removal_that_is_refused_half_way_leaves_no_backup_that_looks_whole(
    store: MemoryBlobStore, target: BlobTarget
) -> None:
    put(target, SMALL)
    target.publish(MANIFEST)
    store.faults["delete"] = [lambda do: do(), *[refused(Trouble.LOCKED)] * EVER]
    with pytest.raises(TargetError, match="could not remove from"):
        target.remove(JOB, RUN)
    assert [found.finished for found in target.backups()] == [False]


def test_a_listing_that_fails_is_an_error_and_not_an_empty_target(store: MemoryBlobStore, target: BlobTarget) -> None:
    store.faults["listed"] = [BUSY] * EVER
    with pytest.raises(TargetError):
        target.backups()


def test_a_signal_ends_reading_while_the_service_is_away(store: MemoryBlobStore) -> None:
    target = memory_blobs(store, outage_seconds=60.0)
    put(target, LARGE)
    store.faults["read"] = [refused(Trouble.AWAY)] * 100_000
    began = time.monotonic()
    with cancellable(), pytest.raises(Cancelled):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        get(target)
    assert time.monotonic() - began < 30
