"""What every target promises of the segments of a binlog archive: the fake and the real ones."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.targets.names import BINLOG, is_segments
from backupd.vocabulary.binlogs import segment_name
from backupd.vocabulary.errors import AlreadyThere, TargetError
from tests.contract.s3_server import PART, s3_service
from tests.contract.sftp_server import sftp_server
from tests.contract.test_targets import JOB, MANIFEST, OTHER, RANGES, RUN, get, lay, listed, put, target
from tests.fakes.target import MACHINE, MemoryTarget

__all__ = ["s3_service", "sftp_server", "target"]

CHAIN, NEXT = "20261125T234000Z-1f2e3d4c", "20261126T010000Z-00000001"
NAMES = [segment_name(CHAIN, number) for number in (1, 2, 3)]
FIRST = NAMES[0]
LARGE = bytes(range(256)) * (PART // 256 + 1) + b"the end"  # in parts, where nobody says how much it will be


def put_segment(target: Target, content: bytes, name: str = FIRST, *, job: str = JOB) -> None:
    put(target, content, job=job, run=BINLOG, name=name)


def segment(target: Target, name: str = FIRST) -> bytes:
    return get(target, run=BINLOG, name=name)


@pytest.mark.parametrize("content", [b"", b"a few bytes", LARGE], ids=["empty", "small", "large"])
def test_a_segment_is_read_back_and_never_written_over(target: Target, content: bytes) -> None:
    put_segment(target, content)
    for again in (content, b"other bytes", LARGE + b"!"):
        with pytest.raises(AlreadyThere) as raised:
            put_segment(target, again)
        assert raised.value.hint
        assert segment(target) == content
    assert dict(target.segments(JOB)) == {FIRST: len(content)}


def test_the_jobs_that_have_segments_are_told_by_machine(target: Target) -> None:
    assert list(target.archived_jobs()) == []
    put(target, b"an object of a backup")
    assert list(target.archived_jobs()) == []
    put_segment(target, b"1")
    put_segment(target, b"2", job="hourly")
    put_segment(target.of_machine(OTHER), b"3", job="weekly")
    assert sorted(target.archived_jobs()) == sorted([JOB, "hourly"])
    target.remove_segments("hourly", [FIRST])
    assert list(target.archived_jobs()) == [JOB]


def test_any_range_of_a_segment_is_read(target: Target) -> None:
    content = b'{"a": "description"}\n' + bytes(range(256)) * 40
    put_segment(target, content)
    for offset, size in RANGES:
        if offset + (size or 0) <= len(content):
            with target.reading(JOB, BINLOG, FIRST, offset=offset, size=size) as chunks:
                assert b"".join(chunks) == content[offset : None if size is None else offset + size]


@pytest.mark.parametrize("size", [5, PART + 5])
def test_of_several_writers_of_one_segment_one_succeeds(target: Target, size: int) -> None:
    together = Barrier(4, timeout=30)

    def write(digit: bytes) -> bool:
        try:
            with target.writing(JOB, BINLOG, FIRST) as writer:
                writer.write(digit * size)
                together.wait()
        except AlreadyThere:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = dict(zip((b"1", b"2", b"3", b"4"), pool.map(write, (b"1", b"2", b"3", b"4")), strict=True))
    (winner,) = [digit for digit, succeeded in won.items() if succeeded]
    assert segment(target) == winner * size
    assert dict(target.segments(JOB)) == {FIRST: size}


def test_nothing_is_left_of_a_segment_whose_writing_failed(target: Target) -> None:
    for content in (b"half", LARGE):
        with pytest.raises(ZeroDivisionError), target.writing(JOB, BINLOG, FIRST) as writer:
            writer.write(content)
            raise ZeroDivisionError
    assert dict(target.segments(JOB)) == {}
    with pytest.raises(TargetError):
        segment(target)
    put_segment(target, b"second try")
    assert segment(target) == b"second try"


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "manifest.json", "data-1.tar.zst", f"{CHAIN}-1.binlog", f"../{FIRST}", f"{FIRST}\n"]
)
def test_what_is_no_segment_s_name_is_neither_written_nor_removed(target: Target, name: str) -> None:
    put_segment(target, b"one")
    with pytest.raises(TargetError):
        put_segment(target, b"x", name)
    with pytest.raises(TargetError, match="not a segment's name"):
        target.remove_segments(JOB, [FIRST, name])
    assert dict(target.segments(JOB)) == {FIRST: 3}


def test_the_archive_is_no_backup_and_outlives_the_last_one(target: Target) -> None:
    put(target, b"abc")
    target.publish(MANIFEST)
    put_segment(target, b"one")
    put_segment(target, b"two", job="hourly")
    assert listed(target) == listed(target, JOB) == {(JOB, RUN, True)}
    target.remove(JOB, RUN)
    assert listed(target) == listed(target, "hourly") == set()
    with pytest.raises(TargetError, match="cannot be called 'binlog'"):
        target.remove(JOB, BINLOG)
    with pytest.raises(TargetError):
        target.manifest(JOB, BINLOG)
    with pytest.raises(TargetError):
        put(target, b"x", run=BINLOG)
    assert segment(target) == b"one"
    assert dict(target.segments("hourly")) == {FIRST: 3}


def test_segments_are_told_from_a_name_on(target: Target) -> None:
    assert dict(target.segments(JOB)) == {}
    sizes = {name: number for number, name in enumerate([*NAMES, segment_name(NEXT, 1)])}
    for name, size in sizes.items():
        put_segment(target, b"x" * size, name)
    assert dict(target.segments(JOB)) == sizes
    for at, last in enumerate(sizes):
        assert dict(target.segments(JOB, after=last)) == dict(list(sizes.items())[at + 1 :])
    assert dict(target.segments("hourly")) == {}
    assert dict(target.of_machine(OTHER).segments(JOB)) == {}


def test_segments_are_removed_and_what_is_not_there_is_no_error(target: Target) -> None:
    target.remove_segments(JOB, NAMES)
    target.remove_segments(JOB, [])
    for name in NAMES:
        put_segment(target, b"x", name)
    put(target, b"abc")
    for _ in range(2):
        target.remove_segments(JOB, NAMES[:2])
        assert dict(target.segments(JOB)) == {NAMES[2]: 1}
    target.remove_segments(JOB, NAMES)
    assert dict(target.segments(JOB)) == {}
    assert get(target) == b"abc"
    put_segment(target, b"again")
    assert segment(target) == b"again"


def test_the_last_thing_of_a_job_takes_its_folders_along(target: Target) -> None:
    put_segment(target, b"x")
    target.remove_segments(JOB, [FIRST])
    assert target.machines() in ([], [MACHINE])
    if isinstance(target, DirectoryTarget):
        assert list((target.folder / MACHINE).iterdir()) == []


def test_what_a_person_put_beside_segments_is_told_and_stays(target: Target) -> None:
    put_segment(target, b"x")
    strays = {"note.txt": 4, f"{FIRST}.bak": 4, "@eaDir/": 0}
    for path in ("note.txt", f"{FIRST}.bak", "@eaDir/thumb.jpg"):
        lay(target, f"{MACHINE}/{JOB}/{BINLOG}/{path}", b"mine")
    if not isinstance(target, MemoryTarget):  # it has no place for strays
        assert dict(target.segments(JOB)) == {FIRST: 1, **strays}
        assert [name for name in target.segments(JOB) if is_segments(name)] == [FIRST]
        target.remove_segments(JOB, [FIRST])
        assert dict(target.segments(JOB)) == strays
    assert listed(target) == set()


def test_a_segment_of_a_few_bytes_is_not_begun_as_an_upload_in_parts(target: Target) -> None:
    class Refusing:
        def hold(self, holding: object) -> None:
            raise AssertionError(holding)

        released = hold

    with target.writing(JOB, BINLOG, FIRST, at_most=PART + 1, ledger=Refusing()) as writer:
        writer.write(b"x" * (PART + 1))
    assert dict(target.segments(JOB)) == {FIRST: PART + 1}
