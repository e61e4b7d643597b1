"""What a segment costs on its way to a storage that is far, and what comes of it when something fails there.

Either it is there, whole, or its writer is told; nothing else is left, and what was there before stays.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.targets import Target
from backupd.targets.blob_store import Trouble
from backupd.targets.directory import DirectoryTarget
from backupd.targets.keyed import BucketItem
from backupd.targets.names import BINLOG
from backupd.targets.sftp import SftpTarget
from backupd.vocabulary.binlogs import segment_name
from backupd.vocabulary.errors import AlreadyThere, TargetAway, TargetError
from tests.contract.blob_targets import memory_blobs
from tests.contract.s3_faults import Fault, Proxy, cut_in_the_middle, in_between, lose_the_answer, refuse
from tests.contract.s3_server import s3_config, s3_service, s3_target
from tests.contract.sftp_server import sftp_config, sftp_server, sftp_target
from tests.contract.tcp_proxy import proxy as cutting
from tests.contract.test_blob_faults import BUSY, EVER, refused, unanswered
from tests.contract.test_target_segments import CHAIN, FIRST, LARGE, NAMES, put_segment, segment
from tests.contract.test_targets import JOB, RUN, lay, listed, put, target
from tests.fakes.blob_store import MemoryBlobStore
from tests.fakes.target import MACHINE
from tests.servers.s3server import S3Service
from tests.servers.sshd import SshServer

__all__ = ["s3_service", "sftp_server", "target"]

SMALL = b"a few events"


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["directory", "sftp"], indirect=True)
def test_what_a_dead_writer_left_is_in_nobody_s_way_and_goes_with_its_segment(target: Target) -> None:
    assert isinstance(target, DirectoryTarget | SftpTarget)
    dead = [f".{name}.0123456789abcdef.partial" for name in NAMES]
    for name in dead:
        lay(target, f"{MACHINE}/{JOB}/{name}", b"half")
    for name in NAMES:
        put_segment(target, b"whole", name)
    put(target, b"abc")
    assert dict(target.segments(JOB)) == dict.fromkeys(NAMES, 5)
    assert listed(target) == {(JOB, RUN, False)}
    target.remove_segments(JOB, [NAMES[1]])
    folder = next(path for path in _root(target).rglob(JOB))
    assert {path.name for path in folder.iterdir()} == {BINLOG, RUN, dead[2]}
    target.remove(JOB, RUN)
    assert dict(target.segments(JOB)) == {NAMES[0]: 5, NAMES[2]: 5}


def _root(target: DirectoryTarget | SftpTarget) -> Path:
    return target.folder if isinstance(target, DirectoryTarget) else target._config.path


# --- blobs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("request_name", "content"), [("put", SMALL), ("commit", LARGE)])
@pytest.mark.parametrize("faults", [[BUSY], [unanswered], [BUSY, unanswered, unanswered]])
def test_an_answer_of_a_cloud_s_that_was_lost_is_looked_up(
    request_name: str, content: bytes, faults: list[Callable[[Callable[[], None]], None]]
) -> None:
    store = MemoryBlobStore()
    store.faults[request_name] = [*faults]
    target = memory_blobs(store)
    put_segment(target, content)
    assert segment(target) == content


@pytest.mark.parametrize(("request_name", "content"), [("put", SMALL), ("commit", LARGE)])
def test_what_a_cloud_has_stays_where_a_writer_of_the_same_name_fails(request_name: str, content: bytes) -> None:
    store = MemoryBlobStore()
    target = memory_blobs(store)
    put_segment(target, b"first")
    store.faults[request_name] = [BUSY, unanswered]
    with pytest.raises(AlreadyThere):
        put_segment(target, content)
    store.faults[request_name] = [refused(Trouble.OTHER)]  # as Azure says whose blocks are gone
    with pytest.raises(AlreadyThere):
        put_segment(target, content)
    store.faults[request_name] = [BUSY] * EVER
    with pytest.raises(TargetAway):
        put_segment(target, content)
    assert segment(target) == b"first"
    assert store.parts == {}


def test_a_segment_costs_a_cloud_one_request() -> None:
    asked: list[str] = []

    class Counting(MemoryBlobStore):
        def _meet(self, name: str, do: Callable[[], None]) -> None:
            asked.append(name)
            super()._meet(name, do)

    put_segment(memory_blobs(Counting()), SMALL)
    assert asked == ["put"]


def test_backups_are_listed_without_the_segments_beside_them() -> None:
    told: list[str] = []

    class Telling(MemoryBlobStore):
        def listed(self, prefix: str, *, after: str = "") -> Sequence[BucketItem]:
            found = super().listed(prefix, after=after)
            told.extend(item.key for item in found)
            return found

    target = memory_blobs(Telling())
    for name in NAMES:
        put_segment(target, SMALL, name)
    runs = ["b1", "bin-2", RUN]  # whose names begin as the archive's does
    for run in runs:
        put(target, b"abc", run=run)
    for job in (JOB, None):
        told.clear()
        assert [backup.backup_id for backup in target.backups(job)] == [RUN, *runs[:-1]]
        assert len(told) == len(runs)


def test_a_cloud_that_refuses_a_removal_says_so() -> None:
    store = MemoryBlobStore()
    target = memory_blobs(store)
    for name in NAMES:
        put_segment(target, SMALL, name)
    store.faults["delete"] = [refused(Trouble.LOCKED)]
    with pytest.raises(TargetError):
        target.remove_segments(JOB, NAMES)
    target.remove_segments(JOB, NAMES)
    assert store.blobs == {}


# --- S3 --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def between(s3_service: S3Service) -> Iterator[Proxy]:
    with in_between(s3_service.endpoint) as found:
        yield found


def test_a_segment_costs_s3_one_request_and_a_thousand_removals_two(s3_service: S3Service, between: Proxy) -> None:
    target = s3_target(s3_config(s3_service, endpoint=between.endpoint))
    put_segment(target, SMALL)
    assert dict(between.seen) == {"PutObject": 1}
    between.seen.clear()
    target.remove_segments(JOB, [FIRST, *(segment_name(CHAIN, number) for number in range(2, 1001))])
    assert dict(between.seen) == {"ListMultipartUploads": 1, "DeleteObjects": 1}
    assert dict(target.segments(JOB)) == {}


@pytest.mark.parametrize(
    ("operation", "content"), [("PutObject", SMALL), ("UploadPart", LARGE), ("CompleteMultipartUpload", LARGE)]
)
@pytest.mark.parametrize("fault", [lose_the_answer, cut_in_the_middle, refuse(503, "SlowDown")])
def test_an_answer_of_s3_s_that_was_lost_is_looked_up(
    s3_service: S3Service, between: Proxy, operation: str, content: bytes, fault: Fault
) -> None:
    target = s3_target(s3_config(s3_service, endpoint=between.endpoint))
    between.next(operation, fault)
    put_segment(target, content)
    assert segment(target) == content
    between.next(operation, fault)
    with pytest.raises(AlreadyThere):
        put_segment(target, content[::-1])
    assert segment(target) == content
    assert target._listing.uploads(target._bucket.prefix) == []


def test_a_store_that_knows_no_removal_of_many_is_asked_for_each(s3_service: S3Service, between: Proxy) -> None:
    target = s3_target(s3_config(s3_service, endpoint=between.endpoint))
    for name in NAMES:
        put_segment(target, SMALL, name)
    between.always("DeleteObjects", refuse(501, "NotImplemented"))
    target.remove_segments(JOB, NAMES[:2])
    assert dict(target.segments(JOB)) == {NAMES[2]: len(SMALL)}


def test_a_bucket_that_keeps_versions_keeps_none_of_a_removed_segment(s3_service: S3Service) -> None:
    config = s3_config(s3_service, bucket="segments")
    target = s3_target(config)
    client = target._service.client
    client.create_bucket(Bucket=config.bucket)
    client.put_bucket_versioning(Bucket=config.bucket, VersioningConfiguration={"Status": "Enabled"})
    for name in NAMES:
        put_segment(target, SMALL, name)
    target.remove_segments(JOB, [NAMES[0], NAMES[2]])
    assert {one.key.rpartition("/")[2] for one in target._listing.versions(config.prefix)} == {NAMES[1]}
    assert segment(target, NAMES[1]) == SMALL


def test_a_listing_of_several_pages_is_told_whole_and_from_a_name_on(s3_service: S3Service, between: Proxy) -> None:
    target = s3_target(s3_config(s3_service, endpoint=between.endpoint))
    folder = s3_service.folder / target._config.bucket / target._config.prefix / MACHINE / JOB / BINLOG
    put_segment(target, SMALL)
    names = [segment_name(CHAIN, number) for number in range(2, 1104)]
    for name in names:
        (folder / name).touch()
    assert list(target.segments(JOB)) == [FIRST, *names]
    between.seen.clear()
    assert list(target.segments(JOB, after=names[-4])) == names[-3:]
    assert dict(between.seen) == {"ListObjectsV2": 1}
    put(target, b"abc")
    between.seen.clear()
    assert [backup.backup_id for backup in target.backups(JOB)] == [RUN]
    assert dict(between.seen) == {"ListObjectsV2": 2, "ListMultipartUploads": 1}


def test_an_upload_that_a_dead_writer_left_goes_with_its_segment(s3_service: S3Service) -> None:
    target = s3_target(s3_config(s3_service))
    for name in NAMES:
        key = f"{target._key(JOB, BINLOG)}/{name}"
        target._service.client.create_multipart_upload(Bucket=target._config.bucket, Key=key)
    assert target.backups() == []
    target.remove_segments(JOB, [NAMES[1]])
    left = [one.key.rpartition("/")[2] for one in target._listing.uploads(target._bucket.prefix)]
    assert left == [NAMES[2]]


# --- SFTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 500, 1500, 2500, 3500, 5000, 8000])
def test_a_line_that_is_cut_anywhere_costs_no_segment_and_leaves_nothing_else(
    sftp_server: SshServer, tmp_path: Path, after: int
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with cutting(sftp_server.port) as line:
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{line.port} {sftp_server.known_hosts.read_text().partition(' ')[2].strip()}\n")
        config = replace(sftp_config(sftp_server, store), port=line.port, known_hosts=known, outage_seconds=20)
        target = sftp_target(config)
        put_segment(target, b"warm", NAMES[1])
        line.cut_after(after)
        with suppress(AlreadyThere):  # the answer to the rename was lost half way: its writer reads it
            put_segment(target, SMALL * 10)
        assert segment(target) == SMALL * 10
        assert {path.name for path in store.rglob("*") if path.is_file()} == {FIRST, NAMES[1]}


def test_a_segment_is_named_after_it_was_synced_and_its_folder_is_synced_after_that(
    sftp_server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what goes over the line: three bundles of requests, each of which waits for the one before."""
    bundles: list[list[str]] = []
    target = SftpTarget(sftp_config(sftp_server, tmp_path), machine=MACHINE)
    put_segment(target, SMALL, NAMES[1])
    handler = type(target._line._sftp._handler)  # type: ignore[union-attr]
    _count(handler, bundles, monkeypatch)
    put_segment(target, SMALL)
    told = [[each for each in bundle if each != "close"] for bundle in bundles]
    assert [sorted(bundle) for bundle in told if bundle] == [
        ["open", "open", "stat"], ["fstat", "fsync", "write"], ["fsync", "rename"],
    ]  # fmt: skip
    assert told[1][:2] == ["write", "fsync"]
    assert told[2] == ["rename", "fsync"]


def test_a_folder_is_synced_before_it_is_told_that_a_segment_is_there_already(
    sftp_server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may have been killed between the name and the sync of the folder."""
    bundles: list[list[str]] = []
    target = SftpTarget(sftp_config(sftp_server, tmp_path), machine=MACHINE)
    put_segment(target, SMALL)
    handler = type(target._line._sftp._handler)  # type: ignore[union-attr]
    _count(handler, bundles, monkeypatch)
    with pytest.raises(AlreadyThere):
        put_segment(target, SMALL)
    told = [each for bundle in bundles for each in bundle if each != "close"]
    assert told[-3:] == ["stat", "open", "fsync"], "that it is there, and then that it stays"


def _count(handler: type, bundles: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are begun while others are under way are in their bundle.

    A write's answer comes once another request is under way: whoever asks for that is a thread, which may be late.
    """
    under_way = 0
    another = asyncio.Event()

    def wrapped(name: str) -> None:
        original = getattr(handler, name)

        async def request(self: object, *given: object, **named: object) -> object:
            nonlocal under_way
            if not under_way:
                bundles.append([])
                another.clear()
            else:
                another.set()
            bundles[-1].append(name)
            under_way += 1
            try:
                answer = await original(self, *given, **named)
                if name == "write":
                    await asyncio.wait_for(another.wait(), 20)
                return answer
            finally:
                under_way -= 1

        monkeypatch.setattr(handler, name, request)

    for name in ("open", "write", "fsync", "fstat", "stat", "rename", "close"):
        wrapped(name)
