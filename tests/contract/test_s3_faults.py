"""What the S3 target makes of a store and a network that fail: either the object is there, whole, or it says so.

A real server stands behind a proxy that brings the faults. After each test the server itself is asked what it has.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from backupd.config import LockMode, PartChecksum, S3Config
from backupd.targets import s3
from backupd.targets.names import BINLOG
from backupd.targets.s3 import S3Target
from backupd.vocabulary.binlogs import segment_name
from backupd.vocabulary.errors import TargetError, VerificationError
from backupd.vocabulary.records import Holding, HoldingKind
from tests.contract.s3_faults import (
    Exchange,
    Fault,
    Proxy,
    answer_an_empty_page,
    cut_in_the_middle,
    flip_a_byte_on_the_way,
    flip_a_byte_on_the_way_back,
    hand_on,
    in_between,
    keep_silent_until,
    list_twice,
    lose_half_of_the_answer,
    lose_the_answer,
    pretend,
    refuse,
    refuse_without_md5,
)
from tests.contract.s3_server import IMPATIENT, PART, s3_config, s3_service, s3_target
from tests.contract.test_targets import JOB, MANIFEST, NAME, RUN, get, plant, put, record
from tests.fakes.target import MACHINE
from tests.servers.s3server import S3Service

pytestmark = pytest.mark.exhaustive

__all__ = ["s3_service"]

CHAIN = "20261120T030000Z-0123abcd"
SMALL = b"less than a part"
LARGE = bytes(range(256)) * (PART // 256) + b"the end"
LATER = threading.Event()  # never set: the other side is silent for good

COMPLETED = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>as told</Message></Error>"
NOT_KEPT = pretend(ETag='"d41d8cd98f00b204e9800998ecf8427e"')


@dataclass
class Ledger:
    """What is written down and not struck out."""

    held: list[Holding] = field(default_factory=list)
    all: list[Holding] = field(default_factory=list)

    def hold(self, holding: Holding) -> None:
        self.held.append(holding)
        self.all.append(holding)

    def released(self, holding: Holding) -> None:
        self.held.remove(holding)


@dataclass
class World:
    """The target as it is reached through the proxy, and as it is."""

    proxy: Proxy
    config: S3Config
    target: S3Target
    server: S3Target
    ledger: Ledger = field(default_factory=Ledger)

    def put(self, content: bytes) -> None:
        with self.target.writing(JOB, RUN, NAME, ledger=self.ledger) as writer:
            writer.write(content)

    def everything(self) -> list[str]:
        """The keys that the server has."""
        return [stored.key for stored in self.server._listing.objects(self.config.prefix)]

    def require_nothing_left(self) -> None:
        assert self.server.backups() == []  # no object and no upload
        assert self.ledger.held == []

    def require_stored(self, content: bytes) -> None:
        assert get(self.server) == content
        assert self.server._listing.uploads(self.config.prefix) == []
        assert self.ledger.held == []


@pytest.fixture(scope="module")
def between(s3_service: S3Service) -> Iterator[Proxy]:
    with in_between(s3_service.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def reached(s3_service: S3Service, between: Proxy) -> tuple[S3Config, S3Target, S3Target]:
    """Through the proxy, and without it; for all tests, because a client takes longer to make than most of them."""
    config = s3_config(s3_service, endpoint=between.endpoint)
    return config, s3_target(config), s3_target(replace(config, endpoint=s3_service.endpoint))


@pytest.fixture
def world(between: Proxy, reached: tuple[S3Config, S3Target, S3Target]) -> Iterator[World]:
    config, target, server = reached
    between.seen.clear()
    between.most_at_once.clear()
    yield World(between, config, target, server)
    between.heal()
    server.remove(JOB, RUN)
    server.remove_segments(JOB, list(server.segments(JOB)))


UNAVAILABLE = refuse(503, "SlowDown")
INTERNAL = refuse(500, "InternalError")
EXPIRED = refuse(403, "ExpiredToken")


@pytest.mark.parametrize(
    ("operation", "content", "faults"),
    [
        ("UploadPart", LARGE, [cut_in_the_middle]),
        ("UploadPart", LARGE, [lose_the_answer]),
        ("UploadPart", LARGE, [UNAVAILABLE, INTERNAL]),
        ("UploadPart", LARGE, [flip_a_byte_on_the_way]),
        ("UploadPart", LARGE, [pretend(ERROR)]),
        ("CreateMultipartUpload", LARGE, [UNAVAILABLE]),
        ("ListParts", LARGE, [INTERNAL]),
        ("ListParts", LARGE, [refuse(403, "AccessDenied")]),
        ("CompleteMultipartUpload", LARGE, [cut_in_the_middle]),
        ("CompleteMultipartUpload", LARGE, [UNAVAILABLE]),
        ("CompleteMultipartUpload", LARGE, [lose_the_answer]),
        ("CompleteMultipartUpload", LARGE, [lose_the_answer, refuse(404, "NoSuchUpload")]),
        ("CompleteMultipartUpload", LARGE, [lose_the_answer] * IMPATIENT.tries),
        ("CompleteMultipartUpload", LARGE, [pretend(ERROR)]),
        ("HeadObject", LARGE, [lose_the_answer]),
        ("PutObject", SMALL, [cut_in_the_middle]),
        ("PutObject", SMALL, [lose_the_answer]),
        ("PutObject", SMALL, [INTERNAL, UNAVAILABLE]),
        ("PutObject", SMALL, [cut_in_the_middle, refuse(409, "ExistingObjectIsDirectory")]),  # that one's remains
        ("PutObject", SMALL, [flip_a_byte_on_the_way]),
        ("GetObject", SMALL, [lose_the_answer]),
    ],
)
def test_what_passes_is_outlasted(world: World, operation: str, content: bytes, faults: list[Fault]) -> None:
    world.proxy.next(operation, *faults)
    world.put(content)
    world.require_stored(content)
    assert world.proxy.seen[operation] >= len(faults)


@pytest.mark.parametrize(
    ("operation", "content", "fault"),
    [
        ("UploadPart", LARGE, cut_in_the_middle),
        ("UploadPart", LARGE, UNAVAILABLE),
        ("UploadPart", LARGE, EXPIRED),
        ("UploadPart", LARGE, flip_a_byte_on_the_way),
        ("UploadPart", LARGE, NOT_KEPT),
        ("UploadPart", LARGE, pretend()),
        ("UploadPart", LARGE, pretend(ETag='"x"', x_amz_checksum_sha256="AAAA")),
        ("CreateMultipartUpload", LARGE, refuse(403, "AccessDenied")),
        ("CompleteMultipartUpload", LARGE, cut_in_the_middle),
        ("CompleteMultipartUpload", LARGE, UNAVAILABLE),
        ("CompleteMultipartUpload", LARGE, EXPIRED),
        ("CompleteMultipartUpload", LARGE, pretend(ERROR)),
        ("CompleteMultipartUpload", LARGE, pretend(COMPLETED)),
        ("CompleteMultipartUpload", LARGE, refuse(404, "NoSuchUpload")),
        ("HeadObject", LARGE, refuse(403, "Forbidden")),
        ("HeadObject", SMALL, UNAVAILABLE),
        ("PutObject", SMALL, cut_in_the_middle),
        ("PutObject", SMALL, lose_the_answer),
        ("PutObject", SMALL, UNAVAILABLE),
        ("PutObject", SMALL, EXPIRED),
        ("PutObject", SMALL, refuse(507, "InsufficientStorage")),
        ("PutObject", SMALL, flip_a_byte_on_the_way),
        ("PutObject", SMALL, pretend(ERROR)),
        ("PutObject", SMALL, NOT_KEPT),
    ],
)
def test_what_does_not_pass_is_an_error_and_nothing_is_left(
    world: World, operation: str, content: bytes, fault: Fault
) -> None:
    world.proxy.always(operation, fault)
    with pytest.raises(TargetError) as raised:
        world.put(content)
    assert raised.value.hint
    world.require_nothing_left()


def test_credentials_that_expire_in_the_middle_are_read_again(
    world: World, s3_service: S3Service, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    s3_service.write_credentials(file)
    world.target = s3_target(replace(world.config, credentials_file=file))

    def are_renewed_meanwhile(exchange: Exchange) -> None:
        s3_service.write_credentials(file)
        EXPIRED(exchange)

    def have_expired(exchange: Exchange) -> None:
        file.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = old\n")
        world.proxy.next("UploadPart", are_renewed_meanwhile)
        hand_on(exchange)

    world.proxy.next("UploadPart", have_expired)
    world.put(LARGE)
    world.require_stored(LARGE)


def test_expired_credentials_that_nobody_renews_are_said_so(world: World) -> None:
    world.proxy.always("UploadPart", EXPIRED)
    with pytest.raises(TargetError, match="credentials have expired"):
        world.put(LARGE[:PART])
    assert world.proxy.seen["UploadPart"] == 2
    world.require_nothing_left()


# --- outages ---------------------------------------------------------------------------------------------------------

OUTAGE = [UNAVAILABLE, cut_in_the_middle, INTERNAL] * IMPATIENT.tries  # longer than any request is made without waiting


def waiting_for_outages(world: World) -> S3Target:
    return s3_target(replace(world.config, outage_seconds=60.0))


@pytest.mark.parametrize(
    ("operation", "content"),
    [
        ("GetObject", SMALL),
        ("PutObject", SMALL),
        ("HeadObject", SMALL),
        ("CreateMultipartUpload", LARGE),
        ("UploadPart", LARGE[:PART]),  # one after the other
        ("ListParts", LARGE),
        ("CompleteMultipartUpload", LARGE),
    ],
)
def test_an_outage_is_waited_for_and_told_once(
    world: World, operation: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.target = waiting_for_outages(world)
    world.proxy.next(operation, *OUTAGE)
    with caplog.at_level("INFO", "backupd.targets"):
        world.put(content)
    world.require_stored(content)
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "retrying for up to 1m" in line]) == 1, told
    assert len([line for line in told if "answers again after" in line]) == 1, told


def test_reading_goes_on_after_an_outage(world: World) -> None:
    put(world.server, LARGE)
    world.proxy.next("GetObject", *([lose_half_of_the_answer] * 2 + OUTAGE))
    assert get(waiting_for_outages(world)) == LARGE


def test_a_manifest_is_published_after_an_outage(world: World) -> None:
    world.target = waiting_for_outages(world)
    world.proxy.next("PutObject", *OUTAGE)
    world.target.publish(MANIFEST)
    assert world.server.manifest(JOB, RUN) == MANIFEST


@pytest.mark.parametrize("operation", ["GetObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
def test_the_wait_for_an_outage_ends_at_once_when_nobody_wants_the_object(world: World, operation: str) -> None:
    unwanted = threading.Event()

    def nobody_wants_it(exchange: Exchange) -> None:
        unwanted.set()
        UNAVAILABLE(exchange)

    world.proxy.next(operation, UNAVAILABLE, nobody_wants_it)
    world.proxy.always(operation, UNAVAILABLE)
    writing = waiting_for_outages(world).writing(JOB, RUN, NAME, ledger=world.ledger, unwanted=unwanted)
    with pytest.raises(TargetError), writing as writer:
        writer.write(LARGE)
    assert world.proxy.seen[operation] <= 4  # two parts, twice each
    world.proxy.heal()
    world.require_nothing_left()


def test_a_look_at_a_target_waits_for_no_outage(world: World) -> None:
    world.target = waiting_for_outages(world)
    world.proxy.always("*", UNAVAILABLE)
    for asked in (
        world.target.require_usable,
        world.target.backups,
        lambda: world.target.manifest(JOB, RUN),
        world.target.owner,  # a live run's are asked for every minute; before its lock it waits for the answer
        lambda: world.target.succeed(record(1)),
    ):
        with pytest.raises(TargetError):
            asked()


def test_parts_that_cannot_be_compared_make_no_object(world: World) -> None:
    world.proxy.next("ListParts", EXPIRED, EXPIRED)
    with pytest.raises(TargetError, match="credentials have expired"):
        world.put(LARGE)
    assert not world.proxy.seen["CompleteMultipartUpload"]
    world.require_nothing_left()


def test_parts_that_the_store_has_lost_make_no_object(world: World) -> None:
    world.proxy.next("ListParts", pretend(b"<ListPartsResult><IsTruncated>false</IsTruncated></ListPartsResult>"))
    with pytest.raises(TargetError, match="does not have the parts"):
        world.put(LARGE)
    assert not world.proxy.seen["CompleteMultipartUpload"]
    world.require_nothing_left()


def test_a_store_that_keeps_silent_is_given_up_in_time(world: World) -> None:
    world.target = s3_target(replace(world.config, timeout_seconds=0.05))
    world.proxy.always("PutObject", keep_silent_until(LATER))
    with pytest.raises(TargetError, match="timed out"):
        world.put(SMALL)
    world.proxy.heal()
    world.server.remove(JOB, RUN)
    world.require_nothing_left()


@pytest.mark.parametrize("checksum", [PartChecksum.CRC32, PartChecksum.NONE])
def test_a_damaged_part_is_found_whatever_checksum_is_chosen(world: World, checksum: PartChecksum) -> None:
    world.target = s3_target(replace(world.config, checksum=checksum))
    world.proxy.next("UploadPart", flip_a_byte_on_the_way)
    world.put(LARGE)
    world.require_stored(LARGE)


def test_an_upload_is_written_down_before_its_first_part_and_can_be_given_back_later(world: World) -> None:
    held_at_first_part: list[list[Holding]] = []

    def everything_breaks(exchange: Exchange) -> None:
        held_at_first_part.append([*world.ledger.held])
        world.proxy.always("*", cut_in_the_middle)
        cut_in_the_middle(exchange)

    world.proxy.next("UploadPart", everything_breaks)
    with pytest.raises(TargetError):
        world.put(LARGE)
    [upload] = world.ledger.held  # it could not be given up: the row stays
    assert held_at_first_part[0] == [upload]
    assert upload.kind is HoldingKind.UPLOAD
    assert dict(upload.detail) == {"target": "store", "machine": MACHINE, "job": JOB, "backup": RUN, "name": NAME}
    assert [(found.job, found.backup_id, found.finished) for found in world.server.backups()] == [(JOB, RUN, False)]
    world.server.abandon(upload)
    world.server.abandon(upload)
    world.ledger.released(upload)
    world.require_nothing_left()


@pytest.mark.parametrize(("operation", "content"), [("PutObject", SMALL), ("CompleteMultipartUpload", LARGE)])
def test_an_object_that_has_the_name_already_stays_where_a_new_one_fails(
    world: World, operation: str, content: bytes
) -> None:
    plant(world.server, NAME)
    world.proxy.always(operation, UNAVAILABLE)
    with pytest.raises(TargetError):
        world.put(content)
    assert get(world.server) == b"mine"


def test_a_store_that_does_not_give_up_an_upload_is_told_of(world: World) -> None:
    world.proxy.always("AbortMultipartUpload", pretend())
    world.proxy.always("CompleteMultipartUpload", EXPIRED)
    with pytest.raises(TargetError, match="expired"):
        world.put(LARGE)
    [upload] = world.ledger.held
    with pytest.raises(TargetError, match="does not abort"):
        world.target.abandon(upload)
    world.proxy.heal()
    world.target.remove(JOB, RUN)
    world.ledger.released(upload)
    world.require_nothing_left()


def test_where_nobody_may_look_for_parts_the_store_s_word_is_taken_that_they_are_gone(world: World) -> None:
    world.proxy.always("ListParts", refuse(403, "AccessDenied"))
    world.proxy.always("CompleteMultipartUpload", EXPIRED)
    with pytest.raises(TargetError, match="expired"):
        world.put(LARGE)
    world.require_nothing_left()


def test_an_object_of_more_parts_than_a_store_takes_is_told_with_the_setting_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.targets.s3_upload.MOST_PARTS", 1)
    with pytest.raises(TargetError, match=f"has more than 1 parts of {PART} bytes") as told:
        world.put(LARGE)
    assert told.value.hint == "raise this target's part_size"
    world.require_nothing_left()


def test_as_many_parts_are_sent_at_once_as_were_asked_for_and_no_more(world: World) -> None:
    world.target = s3_target(replace(world.config, parts_in_flight=2))
    together = threading.Barrier(2)

    def wait_for_the_other(exchange: Exchange) -> None:
        together.wait(10)
        hand_on(exchange)

    world.proxy.next("UploadPart", wait_for_the_other, wait_for_the_other)
    world.put(LARGE[:PART] * 4)
    world.require_stored(LARGE[:PART] * 4)
    assert world.proxy.most_at_once["UploadPart"] == 2


# --- objects whose parts are objects first ---------------------------------------------------------------------------

LONG = b"".join(bytes([number]) * PART for number in range(1, 5)) + b"the end"


def put_long(world: World, content: bytes = LONG) -> None:
    with world.target.writing(JOB, RUN, NAME, at_most=5 << 40, ledger=world.ledger) as writer:
        for start in range(0, len(content), 3 << 20):
            writer.write(content[start : start + (3 << 20)])


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts each; by the limits of S3 they would be half a gibibyte."""
    monkeypatch.setattr(s3, "part_bytes", lambda least, _at_most: 2 * least)
    monkeypatch.setattr(s3, "MOST_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(s3, "_SEGMENT_BYTES", 0)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("content", [LONG, LONG[: 4 * PART], SMALL, b""])
def test_an_object_whose_parts_are_objects_first_is_whole_and_alone(world: World, content: bytes) -> None:
    put_long(world, content)
    world.require_stored(content)
    assert [key.rpartition("/")[2] for key in world.everything()] == [NAME]
    assert world.proxy.seen["UploadPartCopy"] == -(-len(content) // (2 * PART))


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("UploadPartCopy", UNAVAILABLE),
        ("UploadPartCopy", lose_the_answer),
        ("CompleteMultipartUpload", lose_the_answer),
        ("DeleteObject", lose_the_answer),
        ("PutObject", cut_in_the_middle),
    ],
)
def test_what_passes_is_outlasted_by_such_an_object_too(world: World, operation: str, fault: Fault) -> None:
    world.proxy.next(operation, fault, fault)
    put_long(world)
    world.require_stored(LONG)
    assert [key.rpartition("/")[2] for key in world.everything()] == [NAME]


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(
    ("operation", "good"),
    [("UploadPart", 2), ("UploadPartCopy", 0), ("UploadPartCopy", 2), ("CompleteMultipartUpload", 2), ("PutObject", 0)],
)
def test_nothing_is_left_of_such_an_object_that_failed(world: World, operation: str, good: int) -> None:
    def for_good(exchange: Exchange) -> None:
        world.proxy.always(operation, refuse(403, "AccessDenied"))
        refuse(403, "AccessDenied")(exchange)

    world.proxy.next(operation, *[hand_on] * good, for_good)
    with pytest.raises(TargetError):
        put_long(world)
    world.proxy.heal()
    assert world.everything() == []
    world.require_nothing_left()


@pytest.mark.usefixtures("short_segments")
def test_what_cannot_be_removed_of_such_an_object_goes_with_its_backup(world: World) -> None:
    world.proxy.always("DeleteObject", refuse(403, "AccessDenied"))
    put_long(world)
    world.require_stored(LONG)
    assert world.target.objects(JOB, RUN) == {NAME: len(LONG)}
    assert len(world.everything()) == 1 + 3
    world.proxy.heal()
    world.target.remove(JOB, RUN)
    assert world.everything() == []


# --- the manifest ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [[cut_in_the_middle], [lose_the_answer], [INTERNAL], [lose_the_answer] * 4])
def test_a_manifest_whose_answer_was_lost_is_published_once(world: World, faults: list[Fault]) -> None:
    world.put(SMALL)
    world.proxy.next("PutObject", *faults)
    world.target.publish(MANIFEST)
    assert world.server.manifest(JOB, RUN) == MANIFEST


def as_a_new_machine(world: World) -> tuple[str, S3Target, S3Target]:
    machine = f"db1-{secrets.token_hex(4)}"
    return machine, world.target.of_machine(machine), world.server.of_machine(machine)


@pytest.mark.parametrize("faults", [[cut_in_the_middle], [lose_the_answer], [INTERNAL], [lose_the_answer] * 4])
def test_an_owner_record_whose_answer_was_lost_has_succeeded(world: World, faults: list[Fault]) -> None:
    machine, target, server = as_a_new_machine(world)
    world.proxy.next("PutObject", *faults)
    assert target.succeed(record(1, machine=machine))
    assert not target.succeed(record(1, "b", machine=machine))
    assert server.owner() == record(1, machine=machine)


@pytest.mark.parametrize("fault", [cut_in_the_middle, EXPIRED, refuse(501, "NotImplemented")])
def test_an_owner_record_that_is_not_there_was_not_written(world: World, fault: Fault) -> None:
    machine, target, server = as_a_new_machine(world)
    world.proxy.always("PutObject", fault)
    with pytest.raises(TargetError):
        target.succeed(record(1, machine=machine))
    assert server.owner() is None


@pytest.mark.parametrize("fault", [NOT_KEPT, cut_in_the_middle, EXPIRED, refuse(501, "NotImplemented"), pretend(ERROR)])
def test_a_manifest_that_is_not_there_was_not_published(world: World, fault: Fault) -> None:
    world.put(SMALL)
    world.proxy.always("PutObject", fault)
    with pytest.raises(TargetError):
        world.target.publish(MANIFEST)
    with pytest.raises(TargetError, match="unfinished"):
        world.server.manifest(JOB, RUN)


def test_a_manifest_is_not_published_over_objects_that_cannot_be_locked_as_long(world: World) -> None:
    world.put(SMALL)
    world.proxy.always("PutObjectRetention", refuse(403, "AccessDenied"))
    with pytest.raises(TargetError, match=f"does not let backupd keep {NAME} locked"):
        s3_target(replace(world.config, lock_mode=LockMode.GOVERNANCE)).publish(MANIFEST)
    with pytest.raises(TargetError, match="unfinished"):
        world.server.manifest(JOB, RUN)


def test_a_manifest_that_came_first_stays(world: World) -> None:
    """Two write to one backup at the same time: whoever looked before the other wrote is refused by the store."""

    def somebody_was_faster(exchange: Exchange) -> None:
        world.server.publish(MANIFEST)
        hand_on(exchange)

    world.proxy.next("PutObject", somebody_was_faster)
    with pytest.raises(TargetError, match="already has a finished backup"):
        world.target.publish(replace(MANIFEST, host="db2"))
    assert world.server.manifest(JOB, RUN) == MANIFEST


def test_a_manifest_that_was_changed_on_the_way_back_is_not_believed(world: World) -> None:
    world.target.publish(MANIFEST)
    world.proxy.next("GetObject", flip_a_byte_on_the_way_back)
    with pytest.raises(VerificationError):
        world.target.manifest(JOB, RUN)


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_half_of_the_answer, cut_in_the_middle, UNAVAILABLE])
def test_reading_goes_on_where_the_connection_broke(world: World, fault: Fault) -> None:
    put(world.server, LARGE)
    world.proxy.next("GetObject", fault, fault)
    assert get(world.target) == LARGE
    assert world.proxy.seen["GetObject"] == 3


@pytest.mark.parametrize(
    "fault", [pretend(b"short", ETag='"x"'), refuse(416, "InvalidRange"), EXPIRED, refuse(404, "NoSuchKey")]
)
def test_an_object_that_ends_too_early_is_an_error(world: World, fault: Fault) -> None:
    put(world.server, LARGE)
    world.proxy.always("GetObject", fault)
    with pytest.raises(TargetError), world.target.reading(JOB, RUN, NAME, offset=10, size=1000) as pieces:
        b"".join(pieces)


def test_an_answer_that_never_brings_a_byte_is_given_up(world: World) -> None:
    def bring_none(exchange: Exchange) -> None:
        status, headers, body = exchange.ask_server(exchange.body())
        exchange.answer(status, headers, b"", length=len(body))
        exchange.cut()

    put(world.server, LARGE)
    world.proxy.always("GetObject", bring_none)
    with pytest.raises(TargetError, match=f"could not read {NAME} from") as told:
        get(world.target)
    assert told.value.hint
    assert world.proxy.seen["GetObject"] > 1


def test_an_object_that_was_exchanged_in_the_middle_is_not_read_on(world: World) -> None:
    put(world.server, LARGE)

    def exchange_it(exchange: Exchange) -> None:
        status, headers, body = exchange.ask_server(b"")
        put(world.server, LARGE[::-1])
        exchange.answer(status, headers, body[: PART // 2], length=len(body))
        exchange.cut()

    world.proxy.next("GetObject", exchange_it)
    with pytest.raises(TargetError):
        get(world.target)


def test_bytes_that_were_changed_on_the_way_differ_from_what_was_stored(world: World) -> None:
    """Nobody but the digests of the manifest can tell: the target must hand on what came."""
    put(world.server, LARGE)
    world.proxy.next("GetObject", flip_a_byte_on_the_way_back)
    changed = get(world.target)
    assert len(changed) == len(LARGE)
    assert changed != LARGE


# --- removing and listing --------------------------------------------------------------------------------------------


def test_a_store_that_says_it_removed_and_keeps_is_found_out(world: World) -> None:
    put(world.server, SMALL)
    world.proxy.always("DeleteObject", pretend())
    with pytest.raises(TargetError, match="still has 1"):
        world.target.remove(JOB, RUN)


def test_a_removal_that_is_refused_half_way_leaves_no_backup_that_looks_whole(world: World) -> None:
    put(world.server, SMALL)
    world.server.publish(MANIFEST)
    world.proxy.next("DeleteObject", hand_on, refuse(403, "AccessDenied"))
    with pytest.raises(TargetError, match="does not let backupd"):
        world.target.remove(JOB, RUN)
    assert [found.finished for found in world.server.backups()] == [False]


@pytest.mark.parametrize("operation", ["ListMultipartUploads", "ListObjectVersions"])
def test_what_a_store_does_not_tell_is_done_without(world: World, operation: str) -> None:
    put(world.server, SMALL)
    world.proxy.always(operation, refuse(403, "AccessDenied"))
    assert [found.backup_id for found in world.target.backups()] == [RUN]
    world.target.remove(JOB, RUN)
    world.require_nothing_left()


@pytest.mark.parametrize("operation", ["ListObjectsV2", "ListMultipartUploads"])
def test_a_listing_that_fails_is_an_error_and_not_an_empty_target(world: World, operation: str) -> None:
    world.proxy.always(operation, INTERNAL)
    with pytest.raises(TargetError):
        world.target.backups()


@pytest.mark.parametrize("operation", ["PutObject", "GetObject", "DeleteObject"])
def test_one_lost_answer_makes_no_target_unusable(world: World, operation: str) -> None:
    world.proxy.next(operation, lose_the_answer)
    world.target.require_usable()
    assert world.proxy.seen[operation] == (3 if operation == "PutObject" else 2)  # which is asked twice anyway


def test_a_store_without_conditions_is_refused_before_a_run_and_not_at_its_end(world: World) -> None:
    world.proxy.always("PutObject", refuse(501, "NotImplemented"))
    with pytest.raises(TargetError, match="NotImplemented"):
        world.target.require_usable()


def test_a_store_that_ignores_conditions_is_refused_before_a_run(world: World) -> None:
    world.proxy.next("PutObject", hand_on, pretend())
    with pytest.raises(TargetError, match="overwrote an object although it was told to create it only if"):
        world.target.require_usable()


def test_a_store_that_gives_back_other_bytes_is_refused(world: World) -> None:
    world.proxy.next("GetObject", flip_a_byte_on_the_way_back)
    with pytest.raises(TargetError, match="different bytes"):
        world.target.require_usable()


def look_for_usable(target: S3Target) -> None:
    target.require_usable()


def look_at_backups(target: S3Target) -> None:
    target.backups()


@pytest.mark.parametrize("asked", [look_for_usable, look_at_backups])
@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, "RequestTimeTooSkewed", "clock as wrong"),
        (403, "ExpiredToken", "have expired"),
        (403, "InvalidAccessKeyId", "does not accept the credentials"),
        (403, "AccessDenied", "does not let backupd"),
        (404, "NoSuchBucket", "no such bucket"),
        (400, "AuthorizationHeaderMalformed", "another region"),
        (507, "InsufficientStorage", "no space left on"),
        (403, "InvalidObjectState", "in an archive class"),
        (400, "InvalidRequest", "as told"),
    ],
)
def test_each_refusal_has_its_sentence(
    world: World, status: int, code: str, sentence: str, asked: Callable[[S3Target], None]
) -> None:
    world.proxy.always("*", refuse(status, code))
    with pytest.raises(TargetError, match=sentence) as raised:
        asked(world.target)
    assert raised.value.hint


def test_what_a_rule_of_the_bucket_has_moved_to_an_archive_says_what_to_do(world: World) -> None:
    """GLACIER: it is listed as ever, and nobody can read it before the store was asked for it, hours ago."""
    world.put(SMALL)
    world.proxy.always("GetObject", refuse(403, "InvalidObjectState"))
    with pytest.raises(TargetError, match=f"could not read {NAME} .* archive class") as raised:
        get(world.target)
    assert "restore-object" in raised.value.hint
    assert world.target.objects(JOB, RUN) == {NAME: len(SMALL)}


def test_a_page_without_an_object_is_not_the_end_of_a_listing(world: World) -> None:
    """A store may answer so that has passed over many deleted objects: segments behind it are not lost."""
    for number in range(1, 4):
        put_segment(world, number)
    listed = world.target.segments(JOB)
    world.proxy.next("ListObjectsV2", answer_an_empty_page)
    assert world.target.segments(JOB) == listed
    assert len(listed) == 3


def test_segments_are_removed_from_a_store_that_wants_the_md5_of_such_a_request(world: World) -> None:
    """MinIO until 2025, OneFS: they know no other checksum."""
    for number in range(1, 4):
        put_segment(world, number)
    for operation in ("DeleteObjects", "PutObjectRetention"):
        world.proxy.always(operation, refuse_without_md5)
    world.target.remove_segments(JOB, [segment_name(CHAIN, number) for number in (1, 2)])
    assert list(world.server.segments(JOB)) == [segment_name(CHAIN, 3)]
    world.server.remove_segments(JOB, [segment_name(CHAIN, 3)])


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_segments_that_a_busy_store_did_not_get_to_are_removed_by_another_request(world: World, code: str) -> None:
    """It answers 200, with an error for each of those within."""
    put_segment(world, 1)
    key = f"{world.config.prefix}/{MACHINE}/{JOB}/{BINLOG}/{segment_name(CHAIN, 1)}"
    said = f"<DeleteResult><Error><Key>{key}</Key><Code>{code}</Code><Message>as told</Message></Error></DeleteResult>"
    world.proxy.next("DeleteObjects", pretend(said.encode()))
    world.target.remove_segments(JOB, [segment_name(CHAIN, 1)])
    assert list(world.server.segments(JOB)) == []
    assert world.proxy.seen["DeleteObjects"] == 2


def test_a_removal_of_segments_that_the_store_fails_at_is_told_and_they_stay(world: World) -> None:
    put_segment(world, 1)
    world.proxy.always("DeleteObjects", INTERNAL)
    with pytest.raises(TargetError, match="could not remove from"):
        world.target.remove_segments(JOB, [segment_name(CHAIN, 1)])
    assert list(world.server.segments(JOB)) == [segment_name(CHAIN, 1)]


@pytest.mark.parametrize(("operation", "content"), [("PutObject", SMALL), ("CompleteMultipartUpload", LARGE)])
def test_a_segment_whose_answer_was_lost_is_known_by_its_mark_when_the_store_says_that_there_is_one(
    world: World, operation: str, content: bytes
) -> None:
    name = segment_name(CHAIN, 1)
    world.proxy.next(operation, lose_the_answer, refuse(412, "PreconditionFailed"))
    with world.target.writing(JOB, BINLOG, name) as writer:
        writer.write(content)
    assert dict(world.server.segments(JOB)) == {name: len(content)}


def test_where_nobody_may_look_whose_a_segment_is_it_is_not_taken_for_ours(world: World) -> None:
    world.proxy.always("PutObject", refuse(412, "PreconditionFailed"))
    world.proxy.always("GetObject", refuse(403, "AccessDenied"))
    with (
        pytest.raises(TargetError, match="does not let backupd"),
        world.target.writing(JOB, BINLOG, segment_name(CHAIN, 1)) as writer,
    ):
        writer.write(SMALL)


def put_segment(world: World, number: int) -> None:
    with world.server.writing(JOB, BINLOG, segment_name(CHAIN, number)) as writer:
        writer.write(SMALL)


@pytest.mark.parametrize("larger_by", [0, 1])
def test_an_object_that_is_listed_twice_is_one_unless_its_sizes_differ(world: World, larger_by: int) -> None:
    world.put(SMALL)
    world.proxy.always("ListObjectsV2", list_twice(larger_by=larger_by))
    if not larger_by:
        assert world.target.objects(JOB, RUN) == {NAME: len(SMALL)}
        return
    with pytest.raises(TargetError, match=f"lists '{NAME}' twice: as {len(SMALL)} bytes and as {len(SMALL) + 1}"):
        world.target.objects(JOB, RUN)
