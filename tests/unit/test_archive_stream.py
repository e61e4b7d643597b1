"""Files become one object that plain tools open; whatever fails, fails the whole and leaves nothing running."""

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest

from backupd.archive.packing import CopyManner
from backupd.archive.sources import BinlogCut, Exclusions, list_members
from backupd.archive.stations import Compressor
from backupd.archive.stream import OpenObject, store_binlog, store_tree
from backupd.host.signals import cancellable
from backupd.operations.restore.verify import verify_object
from backupd.vocabulary.errors import Cancelled, GaveUp, SnapshotError, TargetError, VerificationError
from backupd.vocabulary.storage import StoredObject
from tests.fakes.target import MemoryTarget
from tests.manners import usual_manner
from tests.processes import children

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ALL = Exclusions(datadir=PurePosixPath())
MIB = 1 << 20


class Sink:
    """Keeps what is written; may be told to do something first."""

    def __init__(self, before: Callable[[int], None] = lambda _size: None) -> None:
        self.content = bytearray()
        self._before = before

    def write(self, data: bytes) -> None:
        self._before(len(self.content) + len(data))
        self.content += data


def opening(sink: Sink) -> OpenObject:
    return lambda _name: nullcontext(sink)


class Pacing:
    """A governor that does something at each block."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self.paced = 0
        self._act = act

    def pace(self, size: int) -> None:
        self.paced += size
        self._act(self.paced)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    before = children()
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")] == []
    assert children() <= before


def filled(root: Path, megabytes: int = 8) -> Path:
    for i in range(megabytes):
        (root / f"t{i:03}.ibd").write_bytes(os.urandom(MIB // 2) + bytes(MIB // 2))
    return root


def stored(root: Path, sink: Sink, manner: CopyManner | None = None) -> StoredObject:
    return store_tree(root, list_members(root, ALL), sink, manner=manner or usual_manner(threads=2))


def test_plain_tools_open_what_was_stored(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "-odd\nname\udcff").write_bytes(b"odd")
    (root / "ibdata1").write_bytes(os.urandom(3 * MIB + 17))
    (root / "ibdata1").chmod(0o640)
    (root / "again").hardlink_to(root / "ibdata1")
    (root / "alias").symlink_to("shop/x")
    (root / ("long" * 50)).write_text("long")
    with (root / "sparse").open("wb") as file:
        file.seek(64 * MIB)
        file.write(b"end")
    sink = Sink()
    told = stored(root, sink)
    (tmp_path / "data-1.tar.zst").write_bytes(sink.content)
    (tmp_path / "out").mkdir()
    by_hand = f"set -o pipefail; zstd -dc data-1.tar.zst | tar -x -C {tmp_path / 'out'}"
    subprocess.run(["bash", "-c", by_hand], check=True, cwd=tmp_path)
    out = tmp_path / "out"
    subprocess.run(["diff", "-r", "--no-dereference", root, out], check=True)
    assert (out / "ibdata1").stat().st_mode & 0o777 == 0o640
    assert (out / "ibdata1").stat().st_ino == (out / "again").stat().st_ino
    assert (out / "sparse").stat().st_blocks < 1000
    assert len(sink.content) < 5 * MIB
    assert told.files == 6


def test_object_tells_what_sha256sum_says(tmp_path: Path) -> None:
    sink = Sink()
    told = stored(filled(tmp_path), sink)
    plain = subprocess.run(["zstd", "-dc"], input=bytes(sink.content), check=True, capture_output=True).stdout
    assert (told.stored_bytes, told.stored_sha256) == (len(sink.content), hashlib.sha256(sink.content).hexdigest())
    assert (told.plain_bytes, told.plain_sha256) == (len(plain), hashlib.sha256(plain).hexdigest())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("size", "frames"), [(0, 1), (1, 1), (64, 1), (65, 2), (640, 10), (641, 11)])
def test_frame_ends_at_each_boundary_and_there_is_no_empty_one(size: int, frames: int, threads: int) -> None:
    compressor = Compressor(level=1, threads=threads, frame_bytes=64)
    plain = os.urandom(size)
    out = b"".join([*compressor.take(plain[:100]), *compressor.take(plain[100:]), *compressor.end()])
    assert zstd.decompress(out) == plain
    found = 0
    while out:
        out = out[zstd.get_frame_size(out) :]
        found += 1
    assert found == frames


def test_frames_carry_their_own_checksum(tmp_path: Path) -> None:
    (tmp_path / "data.zst").write_bytes(b"".join(Compressor(level=1, threads=1).end()))
    told = subprocess.run(["zstd", "-lv", tmp_path / "data.zst"], check=True, capture_output=True, text=True).stdout
    assert "Check: XXH64" in told


def test_left_out_files_are_not_in_the_archive(tmp_path: Path) -> None:
    (tmp_path / "ibtmp1").write_bytes(b"temporary")
    (tmp_path / "ibdata1").write_bytes(b"kept")
    sink = Sink()
    stored(tmp_path, sink)
    with tarfile.open(fileobj=BytesIO(zstd.decompress(bytes(sink.content)))) as archive:
        assert archive.getnames() == [".", "ibdata1"]


def test_file_that_vanishes_in_the_middle_fails_the_copy(tmp_path: Path) -> None:
    filled(tmp_path, 16)
    last = tmp_path / "t015.ibd"
    manner = usual_manner(Pacing(lambda _: last.unlink(missing_ok=True)))
    with pytest.raises(SnapshotError, match=r"^t015\.ibd could not be read from the snapshot: No such file"):
        stored(tmp_path, Sink(), manner)


def replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_another(path: Path) -> None:
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: os.truncate(path, 6 * MIB), "it was truncated while it was read"),
        (lambda path: os.truncate(path, 40 * MIB), "it was changed while it was read"),
        (lambda path: os.utime(path, ns=(0, 0)), "it was changed while it was read"),
        (replace_by_another, "it was replaced by another file"),
        (replace_by_a_pipe, "Illegal seek|Invalid argument"),
        (Path.unlink, "No such file or directory"),
    ],
)
def test_file_that_is_not_what_it_was_in_the_middle_fails_the_copy(
    tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    (tmp_path / "t000.ibd").write_bytes(os.urandom(12 * MIB))
    once = iter([change])

    def in_the_middle(paced: int) -> None:
        if paced > 4 * MIB:
            next(once, lambda _: None)(tmp_path / "t000.ibd")

    with pytest.raises(SnapshotError, match=rf"^t000\.ibd could not be read from the snapshot: {says}") as failed:
        stored(tmp_path, Sink(), usual_manner(Pacing(in_the_middle)))
    assert "check that the snapshot is intact" in (failed.value.hint or "")


@pytest.mark.parametrize("failing_at", [0, 1, MIB, 3 * MIB])
def test_writer_that_fails_at_any_byte_fails_the_copy(tmp_path: Path, failing_at: int) -> None:
    def fail(size: int) -> None:
        if size > failing_at:
            raise TargetError("no space left on")

    sink = Sink(fail)
    with pytest.raises(TargetError, match="no space left on"):
        stored(filled(tmp_path), sink)
    assert len(sink.content) <= failing_at


def test_target_that_fails_at_any_call_has_no_object(tmp_path: Path) -> None:
    """As many calls as it takes: into how many writes a copy falls is a matter of timing."""
    filled(tmp_path, 4)
    for call in itertools.count(1):
        broken = MemoryTarget(fail_at_call=call)
        try:
            copy_to(broken, tmp_path)
        except TargetError:
            assert broken.stored == {}
        else:
            break
    assert broken.calls < call
    assert call > len(("open", "write", "end"))


def copy_to(target: MemoryTarget, root: Path) -> StoredObject:
    with target.writing("nightly", "r1", "data-1.tar.zst") as writer:
        return store_tree(root, list_members(root, ALL), writer, manner=usual_manner())


def test_what_the_governor_raises_ends_the_copy(tmp_path: Path) -> None:
    def give_up(paced: int) -> None:
        if paced > 2 * MIB:
            raise GaveUp("the penalty is too high")

    with pytest.raises(GaveUp):
        stored(filled(tmp_path), Sink(), usual_manner(Pacing(give_up)))


def test_governor_is_asked_while_the_target_hangs_and_what_is_in_flight_is_bounded(tmp_path: Path) -> None:
    """Every half second, and on a busy machine many times before the target answers, which ends the copy well."""
    hanging, hangs = threading.Event(), threading.Event()
    asked: list[int] = []

    def give_up_after_a_while(paced: int) -> None:
        asked.append(paced)
        if hangs.is_set() and asked[-4:] == [paced] * 4:  # nothing more is read
            hanging.set()
            raise GaveUp("nothing moves")

    def hang(_size: int) -> None:
        hangs.set()
        hanging.wait(60)

    pacing = Pacing(give_up_after_a_while)
    filled(tmp_path, 64)
    with pytest.raises(GaveUp):
        stored(tmp_path, Sink(hang), usual_manner(pacing))
    assert pacing.paced < 40 * MIB


def test_signal_ends_a_copy_to_a_target_that_hangs(tmp_path: Path) -> None:
    hanging = threading.Event()

    def hang(_size: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.5, hanging.set).start()
        hanging.wait(60)

    filled(tmp_path, 64)
    began = time.monotonic()
    with cancellable(), pytest.raises(Cancelled):
        stored(tmp_path, Sink(hang))
    assert time.monotonic() - began < 45  # of 60


def test_copying_threads_give_way_and_the_main_thread_does_not(tmp_path: Path) -> None:
    seen: set[tuple[int, str]] = set()

    def look(_size: int) -> None:
        thread = threading.get_native_id()
        asked = subprocess.run(["ionice", "-p", str(thread)], check=True, capture_output=True, text=True)
        seen.add((os.getpriority(os.PRIO_PROCESS, thread), asked.stdout.strip()))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    stored(filled(tmp_path, 1), Sink(look))
    assert seen == {(max(own, 5), "best-effort: prio 7")}
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_file_that_is_a_folder_now_fails_the_copy(tmp_path: Path) -> None:
    listing = list_members(filled(tmp_path, 2), ALL)
    (tmp_path / "t001.ibd").unlink()
    (tmp_path / "t001.ibd").mkdir()
    with pytest.raises(SnapshotError, match=r"t001\.ibd could not be read from the snapshot: its type has changed"):
        store_tree(tmp_path, listing, Sink(), manner=usual_manner())


# --- the binlog ------------------------------------------------------------------------------------------------------


def binlog_members(sink: Sink) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(zstd.decompress(bytes(sink.content)))) as archive:
        return {member.name: (archive.extractfile(member) or BytesIO()).read() for member in archive}


@pytest.mark.parametrize("offset", [4, 511, 512, 513, MIB, 2 * MIB + 5, 3 * MIB])
def test_binlog_ends_at_exactly_the_recorded_offset(tmp_path: Path, offset: int) -> None:
    content = os.urandom(3 * MIB)
    (tmp_path / "binlog.000007").write_bytes(content)
    (tmp_path / "binlog.000007").chmod(0o640)
    sink = Sink()
    cut = BinlogCut(tmp_path / "binlog.000007", offset, PurePosixPath("mysql/binlog.000007"))
    [told] = store_binlog(cut, open_object=opening(sink), manner=usual_manner()).objects
    assert binlog_members(sink) == {
        "mysql/binlog.000007": content[:offset],
        "mysql/binlog.index": b"./binlog.000007\n",
    }
    assert (told.files, told.name) == (2, "binlog.tar.zst")
    assert told.stored_bytes == len(sink.content)
    listing = subprocess.run(
        "zstd -dc | tar -tv", shell=True, input=bytes(sink.content), check=True, capture_output=True
    )
    assert listing.stdout.startswith(b"-rw-r----- ")


def test_index_names_the_earlier_binlogs_that_are_stored_too(tmp_path: Path) -> None:
    (tmp_path / "binlog.000007").write_bytes(b"x" * 100)
    sink = Sink()
    arcname = PurePosixPath("binlog.000007")
    store_binlog(
        BinlogCut(tmp_path / "binlog.000007", 100, arcname, ("binlog.000005", "binlog.000006")),
        open_object=opening(sink),
        manner=usual_manner(),
    )
    assert binlog_members(sink)["binlog.index"] == b"./binlog.000005\n./binlog.000006\n./binlog.000007\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="owners are root's to set")
def test_a_binlog_s_folder_that_no_other_object_has_gets_the_owner_of_the_datadir(tmp_path: Path) -> None:
    """Left to tar, it would be root's, and no restored server could write there."""
    (tmp_path / "binlog.000007").write_bytes(b"x" * 100)
    os.chown(tmp_path, 999, 998)
    sink, arcname = Sink(), PurePosixPath("logs/binlog.000007")
    cut = BinlogCut(tmp_path / "binlog.000007", 100, arcname, folder_like=tmp_path)
    [told] = store_binlog(cut, open_object=opening(sink), manner=usual_manner()).objects
    with tarfile.open(fileobj=BytesIO(zstd.decompress(bytes(sink.content)))) as archive:
        first = archive.getmembers()[0]
    assert (first.name, first.isdir(), first.uid, first.gid, told.files) == ("logs", True, 999, 998, 2)


def test_binlog_shorter_than_its_position_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binlog.000007").write_bytes(b"x" * 99)
    cut = BinlogCut(tmp_path / "binlog.000007", 100, PurePosixPath("binlog.000007"))
    with pytest.raises(SnapshotError, match="has 99 bytes, but the recorded position is at 100"):
        store_binlog(cut, open_object=opening(Sink()), manner=usual_manner())


def test_missing_binlog_is_a_snapshot_error(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="could not be read"):
        store_binlog(
            BinlogCut(tmp_path / "b.000001", 4, PurePosixPath("b.000001")),
            open_object=opening(Sink()),
            manner=usual_manner(),
        )


# --- reading back ----------------------------------------------------------------------------------------------------


def test_whole_object_is_verified_and_a_target_that_loses_or_changes_bytes_is_not(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    for target, fault in (
        (MemoryTarget(), None),
        (MemoryTarget(drop_bytes=1), "stored bytes, found"),
        (MemoryTarget(flip_bit=12345), "stored sha256"),
    ):
        told = copy_to(target, tmp_path)
        if fault is None:
            verify_object(target, "nightly", "r1", told)
            continue
        with pytest.raises(VerificationError, match=fault) as found:
            verify_object(target, "nightly", "r1", told)
        assert "data-1.tar.zst, frame 1 of 1 (bytes 0 to " in found.value.message
        assert found.value.hint
