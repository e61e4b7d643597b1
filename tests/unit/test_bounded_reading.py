"""Whatever lies on a target, little of it is held in memory, and what is too large is refused in a sentence."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.archive.governor import Unhindered
from backupd.archive.index import Index
from backupd.archive.unpack import frames_in
from backupd.mysql.tablefiles import TableFiles, tables_in
from backupd.operations.restore.into_folder import restore
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource
from backupd.vocabulary.errors import Unreadable, VerificationError
from backupd.vocabulary.storage import Frame, StoredObject
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import BELIEVED, MemoryTarget

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20
MOST_MIB = 256

# What is read by a process of its own, which says how much memory it had at most.
READER = """
import re, sys
import backupd.policy.manifest as manifest
from backupd.vocabulary.errors import VerificationError
def chunks():
    made = eval(sys.argv[1])
    yield from made
try:
    manifest.from_chunks(chunks())
    print("read")
except VerificationError as error:
    print(error.message[:300])
# Not ru_maxrss, which begins with what the process had that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


def read(chunks: str) -> tuple[str, int]:
    """What becomes of a manifest of these chunks, and MiB."""
    ended = subprocess.run([sys.executable, "-c", READER, chunks], capture_output=True, text=True, check=True)
    *said, mib = ended.stdout.splitlines()
    return "\n".join(said), int(mib)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ("(b' ' * (1 << 20) for _ in range(400))", "the manifest is larger than 32 MiB"),
        ("iter(lambda: bytes(1 << 20), None)", "the manifest is larger than 32 MiB"),
        ("[b'{\"a\":[' + b'[],' * (10 << 20) + b'[]]}']", "has more than 1048576 values"),
        ("[b'{\"a\":[' + b'{},' * 530_000 + b'{}]}']", "has more than 1048576 values"),
        ("[b'{\"a\":[' + b'{\"\":1},' * 300_000 + b'1]}']", "its digest differs"),
        ("[b'{\"a\":\"' + b'a' * (31 << 20) + b'\"}']", "its digest differs"),
        ("[b'[' * (31 << 20)]", "has more than 1048576 values"),
        ("[b'[' * 1_000_000]", "cannot be parsed"),
    ],
    ids=["400 MiB", "endless", "ten million lists", "objects", "objects with a key", "one text", "brackets", "deep"],
)
def test_no_manifest_takes_more_memory_than_a_run_may(chunks: str, said: str) -> None:
    told, mib = read(chunks)
    assert said in told
    assert mib <= MOST_MIB


@pytest.mark.matrix
def test_the_largest_manifest_that_is_written_can_be_read_in_that_memory() -> None:
    """Of 10 TiB in frames of 64 MiB."""
    told, mib = read("__import__('tests.unit.test_bounded_reading', fromlist=['largest']).largest()")
    assert told == "read"
    assert mib <= MOST_MIB


def largest() -> Iterator[bytes]:
    """A child writes it: what that takes is not the reader's."""
    program = "import sys; from tests.unit.test_bounded_reading import write; sys.stdout.buffer.write(write())"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        while chunk := child.stdout.read(MIB):
            yield chunk


def write() -> bytes:
    frames = tuple(Frame(64 * MIB, 20 * MIB + number, f"{number:064x}") for number in range(10 * MIB // 64))
    whole = StoredObject("data-1.tar.zst", len(frames) * 64 * MIB, 1, "a" * 64, "b" * 64, 1, frames)
    return manifests.to_text(replace(MANIFEST, objects=(whole,))).encode()


def test_no_more_of_a_manifest_is_read_than_there_can_be() -> None:
    asked = 0

    def chunks() -> Iterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield bytes(MIB)

    with pytest.raises(VerificationError, match="larger than 32 MiB"):
        manifests.from_chunks(chunks())
    assert asked == 33


# --- the index -------------------------------------------------------------------------------------------------------


def test_an_index_that_unpacks_to_far_more_than_its_files_need_is_not_read(tmp_path: Path) -> None:
    target = MemoryTarget()
    index = StoredObject("index.jsonl.zst", 800 * MIB, 9, "a" * 64, "b" * 64, 0, (Frame(800 * MIB, 9, "b" * 64),))
    with target.writing("nightly", "r1", "index.jsonl.zst") as writer:
        writer.write(b"123456789")
    manifest = replace(MANIFEST, run_id="r1", objects=(*MANIFEST.objects, index))
    target.publish(manifest)
    with pytest.raises(VerificationError, match=r"unpacks to 838860800 bytes: \d+ files need far less"):
        restore([BackupSource(target, "nightly", "r1", BELIEVED)], to=tmp_path / "to", tables=tables_in("a.b"))
    assert not (tmp_path / "to").exists()


def test_an_index_that_is_too_large_to_be_held_is_not_read() -> None:
    stored = StoredObject("index.jsonl.zst", 1, 100 * MIB, "a" * 64, "b" * 64, 0, (Frame(1, 100 * MIB, "b" * 64),))

    def reading(offset: int, size: int | None) -> AbstractContextManager[Iterator[bytes]]:
        raise AssertionError("it is read")

    with pytest.raises(
        Unreadable, match=r"is 100\.0 MiB large as stored, and at most 96\.0 MiB of it are held in memory"
    ):
        frames_in(stored, reading, key=None, governor=Unhindered(), at_most=96 * MIB)


def packed(*lines: bytes) -> bytes:
    return zstd.compress(b'{"index":{"major":1,"minor":0}}\n' + b"".join(lines))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"name":[' + b"[]," * 200_000 + b"[]]}\n", "has more than one member can have"),
        (b'{"name":"' + b"a" * (10 * MIB) + b'"}\n', "a line is not terminated"),
        (b"[" * 130_000 + b"\n", "cannot be parsed"),
    ],
)
def test_a_line_of_an_index_is_no_larger_than_a_member_can_be(line: bytes, why: str) -> None:
    with pytest.raises(VerificationError, match=why):
        list(Index(packed(line)).members())


@pytest.mark.thorough
def test_no_more_names_of_tables_are_held_than_there_is_memory_for() -> None:
    names = (f"shop/{number:060}.ibd" for number in range(10**9))
    with pytest.raises(VerificationError, match="more tables than can be held in memory"):
        TableFiles(names, datadir="", lower_case=False)
