"""What every target promises: the fake that the stories are tested with, and the real ones."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from backupd.errors import TargetError
from backupd.lab.sshd import SshServer
from backupd.model import Flavour, Layout, Manifest, Position, ServerFacts, StoredObject
from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.targets.sftp import SftpTarget
from tests.contract.s3_server import s3_config, s3_service, s3_target
from tests.contract.sftp_server import sftp_config, sftp_server
from tests.fakes.target import MemoryTarget

__all__ = ["s3_service", "sftp_server"]

JOB, RUN, NAME = "nightly", "run-1", "data.tar.zst"

MANIFEST = Manifest(
    run_id=RUN,
    job=JOB,
    host="db1",
    created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    objects=(StoredObject(NAME, 10, 5, "a" * 64, "b" * 64, 1),),
    server=ServerFacts(
        flavour=Flavour.MARIADB,
        version="10.11.6-MariaDB",
        version_number=(10, 11, 6),
        datadir=Path("/var/lib/mysql"),
        socket=None,
        binlog_basename=None,
        binlog_expire_seconds=None,
        read_only=False,
        is_replica=False,
        redo_logging=True,
        page_size=16384,
        settings={"lower_case_table_names": "0"},
    ),
    position=Position(),
    lsn=None,
    layout=Layout.STRIPED,
    volume="vg/data",
    datadir="mysql",
)


@pytest.fixture(params=["memory", "directory", "sftp", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    match request.param:
        case "memory":
            return MemoryTarget()
        case "directory":
            return DirectoryTarget("store", tmp_path)
        case "sftp":
            server: SshServer = request.getfixturevalue("sftp_server")
            return SftpTarget(sftp_config(server, tmp_path))
        case _:
            return s3_target(s3_config(request.getfixturevalue("s3_service")))


def put(target: Target, *blocks: bytes, job: str = JOB, run: str = RUN, name: str = NAME) -> None:
    with target.writing(job, run, name) as writer:
        for block in blocks:
            writer.write(block)


def put_half(target: Target) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"half")
        raise ZeroDivisionError


def get(target: Target, *, job: str = JOB, run: str = RUN, name: str = NAME) -> bytes:
    with target.reading(job, run, name) as chunks:
        return b"".join(chunks)


def test_a_backup_s_objects_are_told_with_their_sizes(target: Target) -> None:
    assert dict(target.objects(JOB, RUN)) == {}
    put(target, b"abc", b"de")
    put(target, b"", name="empty")
    put(target, b"another run's", run="r2")
    assert dict(target.objects(JOB, RUN)) == {NAME: 5, "empty": 0}
    target.publish(MANIFEST)
    assert dict(target.objects(JOB, RUN)) == {NAME: 5, "empty": 0}


def test_usable_target_tells_its_room(target: Target) -> None:
    free = target.require_usable()
    assert free is None or free > 0


@pytest.mark.parametrize("size", [0, 1, 4095, (1 << 20) - 1, 1 << 20, (3 << 20) + 517])
def test_what_was_written_is_read_back(target: Target, size: int) -> None:
    content = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    put(target, content[: size // 3], content[size // 3 : size])
    assert get(target) == content[:size]


def test_object_cannot_be_seen_before_it_is_whole(target: Target) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"half")
        with pytest.raises(TargetError):
            get(target)
    assert get(target) == b"half"


def test_nothing_is_left_of_an_object_whose_writing_failed(target: Target) -> None:
    with pytest.raises(ZeroDivisionError):
        put_half(target)
    with pytest.raises(TargetError):
        get(target)
    put(target, b"second try")
    assert get(target) == b"second try"


def test_several_objects_are_written_and_read_at_once(target: Target) -> None:
    contents = {f"data-{n}.tar.zst": bytes([n]) * (1 << 20) + bytes(n) for n in range(1, 5)}
    together = Barrier(len(contents), timeout=20)

    def write(name: str) -> None:
        content = contents[name]
        with target.writing(JOB, RUN, name) as writer:
            together.wait()
            for start in range(0, len(content), 100_000):
                writer.write(content[start : start + 100_000])
            together.wait()

    def read(name: str) -> bytes:
        with target.reading(JOB, RUN, name) as chunks:
            together.wait()
            return b"".join(chunks)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
        assert dict(zip(contents, pool.map(read, contents), strict=True)) == contents


def test_an_object_that_fails_leaves_the_others_that_are_being_written(target: Target) -> None:
    with target.writing(JOB, RUN, "good.tar.zst") as writer:
        writer.write(b"one, ")
        with pytest.raises(ZeroDivisionError):
            put_half(target)
        writer.write(b"two")
    assert get(target, name="good.tar.zst") == b"one, two"
    with pytest.raises(TargetError):
        get(target)


def test_missing_object_is_a_target_error(target: Target) -> None:
    put(target, b"x")
    with pytest.raises(TargetError):
        get(target, name="other.tar.zst")
    with pytest.raises(TargetError):
        get(target, run="run-2")


def test_published_manifest_is_read_back(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    assert target.manifest(JOB, RUN) == MANIFEST
    assert get(target) == b"x"


def test_backup_without_manifest_is_none(target: Target) -> None:
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)
    put(target, b"x")
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)


def test_finished_backup_is_not_written_to(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    with pytest.raises(TargetError):
        put(target, b"y")
    with pytest.raises(TargetError):
        target.publish(replace(MANIFEST, host="db2"))
    assert get(target) == b"x"
    assert target.manifest(JOB, RUN) == MANIFEST


def test_remove_leaves_nothing_of_an_unfinished_backup_and_touches_no_other(target: Target) -> None:
    put(target, b"x")
    put(target, b"y", run="run-2")
    put(target, b"z", job="hourly")
    target.remove(JOB, RUN)
    with pytest.raises(TargetError):
        get(target)
    assert get(target, run="run-2") == b"y"
    assert get(target, job="hourly") == b"z"


def test_remove_of_nothing_does_nothing(target: Target) -> None:
    target.remove(JOB, RUN)
    put(target, b"x")
    target.remove(JOB, RUN)
    target.remove(JOB, RUN)
    put(target, b"again")
    assert get(target) == b"again"


def test_a_finished_backup_is_removed_whole(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    target.remove(JOB, RUN)
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)
    with pytest.raises(TargetError):
        get(target)


@pytest.mark.parametrize("bad", ["..", ".", "", "a/b", "/etc", "nul\0"])
def test_names_cannot_lead_out_of_the_target(target: Target, bad: str) -> None:
    for job, run, name in ((bad, RUN, NAME), (JOB, bad, NAME), (JOB, RUN, bad)):
        with pytest.raises(TargetError):
            put(target, b"x", job=job, run=run, name=name)
        with pytest.raises(TargetError):
            get(target, job=job, run=run, name=name)


def test_location_names_job_and_backup(target: Target) -> None:
    assert JOB in target.location(JOB, RUN)
    assert RUN in target.location(JOB, RUN)


# --- ranges ----------------------------------------------------------------------------------------------------------

LONG = bytes(i * 31 % 251 for i in range(1004)) * 2500  # more than two reads of any target
RANGES = [
    (0, 1), (0, 4096), (1, 4095), (4095, 2), (4096, 4096), (517, 1 << 20), ((1 << 20) - 1, 3), ((2 << 20) + 9, 100_000),
    (len(LONG) - 1, 1), (len(LONG), 0), (0, len(LONG)), (12345, 0), (0, None), (4097, None), (len(LONG), None),
]  # fmt: skip


def test_any_range_of_an_object_is_read_as_it_was_written(target: Target) -> None:
    put(target, LONG)
    for offset, size in RANGES:
        with target.reading(JOB, RUN, NAME, offset=offset, size=size) as chunks:
            found = b"".join(chunks)
        assert found == LONG[offset : None if size is None else offset + size], (offset, size)


@pytest.mark.parametrize(("offset", "size"), [(0, 6), (4, 2), (5, 1), (4096, 1)])
def test_a_range_that_the_object_does_not_have_is_a_target_error(target: Target, offset: int, size: int) -> None:
    put(target, b"12345")
    with pytest.raises(TargetError), target.reading(JOB, RUN, NAME, offset=offset, size=size) as chunks:
        b"".join(chunks)


# --- what lies there -------------------------------------------------------------------------------------------------


def listed(target: Target, job: str | None = None) -> set[tuple[str, str, bool]]:
    return {(one.job, one.backup_id, one.finished) for one in target.backups(job)}


def test_an_empty_target_has_no_backups(target: Target) -> None:
    assert listed(target) == listed(target, JOB) == set()


def test_backups_are_listed_finished_or_not_of_one_job_or_of_all(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    put(target, b"two", run="run-2")
    put(target, b"three", job="nightly-2", run="run-3")
    assert listed(target, JOB) == {(JOB, RUN, True), (JOB, "run-2", False)}
    assert listed(target) == {(JOB, RUN, True), (JOB, "run-2", False), ("nightly-2", "run-3", False)}
    assert listed(target, "weekly") == set()


def test_a_backup_tells_when_it_was_written(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    (found,) = target.backups(JOB)
    assert found.at.utcoffset() is not None
    if not isinstance(target, MemoryTarget):  # its clock stands still
        assert abs((datetime.now(UTC) - found.at).total_seconds()) < 60


def test_a_removed_backup_is_no_longer_listed(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    target.remove(JOB, RUN)
    assert listed(target) == set()


def test_a_manifest_is_never_written_over(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    with pytest.raises(TargetError):
        target.publish(replace(MANIFEST, host="db2"))
    assert target.manifest(JOB, RUN) == MANIFEST
