"""Several streams: each file in one of them, each frame by itself, each member where the index says."""

import hashlib
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePosixPath

import pyrage
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.archive import listing as archive_listing
from backupd.archive.governor import CopyGovernor
from backupd.archive.index import Index, Member, written
from backupd.archive.listing import Entry, Listing, Packed, divide
from backupd.archive.packing import CopyManner, ObjectSink, automatic_streams
from backupd.archive.sealing import Encryptor
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stations import Compressor
from backupd.archive.stream import StoredStreams, store_content, store_streams
from backupd.vocabulary.errors import GaveUp, SnapshotError, TargetError
from backupd.vocabulary.storage import StoredObject
from tests.manners import usual_manner
from tests.processes import children
from tests.share import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20
KEY = pyrage.x25519.Identity.generate()
FRAME = 1 * MIB + 77  # no multiple of anything else here


class Objects:
    """A target that keeps what is written, and knows what is open; may fail as soon as one object has some bytes."""

    def __init__(self, *, fail_in: str = "", hang_in: str = "") -> None:
        self.stored: dict[str, bytearray] = {}
        self.open: set[str] = set()
        self.most_open = 0
        self.hangs, self.released = threading.Event(), threading.Event()
        self._fail_in, self._hang_in = fail_in, hang_in

    @contextmanager
    def opening(self, name: str) -> Iterator["_Object"]:
        self.open.add(name)
        self.most_open = max(self.most_open, len(self.open))
        try:
            yield _Object(self, name)
        except BaseException:
            del self.stored[name]
            raise
        finally:
            self.open.discard(name)

    def written(self, name: str, data: bytes) -> None:
        if name == self._hang_in:
            self.hangs.set()
            self.released.wait(10)
        if name == self._fail_in:
            raise TargetError(f"no room for {name}")
        self.stored[name] += data


class _Object:
    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        objects.stored[name] = bytearray()

    def write(self, data: bytes) -> None:
        self._objects.written(self._name, data)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    before = children()
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")] == []
    assert children() <= before


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for folder in ("shop", "shop/deep", "empty", "blog"):
        (root / folder).mkdir(parents=True)
    for number in range(7):
        (root / "shop" / f"t{number}.ibd").write_bytes(os.urandom(number * 100_000) + bytes(MIB // 2))
    (root / "shop" / "deep" / ("long\udcff" * 30)).write_bytes(b"long")
    (root / "blog" / "posts.ibd").write_bytes(os.urandom(MIB))
    (root / "again.ibd").hardlink_to(root / "blog" / "posts.ibd")
    (root / "alias").symlink_to("blog/posts.ibd")
    with (root / "sparse").open("wb") as file:
        file.seek(64 * MIB)
        file.write(b"end")
    return root


def stored(
    root: Path,
    objects: Objects,
    streams: int,
    manner: CopyManner | None = None,
    listing: Listing | None = None,
    object_size: int = 1 << 40,
) -> StoredStreams:
    listing = listing or list_members(root, Exclusions(datadir=PurePosixPath()))
    return store_streams(
        root, listing, objects.opening, streams=streams, object_size=object_size, manner=manner or usual_manner()
    )


ENTRIES = st.lists(
    st.tuples(
        st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=3),
        st.integers(0, 1000),
        st.none() | st.tuples(st.just(1), st.integers(1, 3)),
    ),
    max_size=12,
)


def listing_of(drawn: list[tuple[list[bytes], int, tuple[int, int] | None]]) -> Listing:
    folders = {b"."} | {b"/".join(path[: depth + 1]) for path, _, _ in drawn for depth in range(len(path))}
    files = [
        Entry(b"/".join([*path, b"%d" % number]), size, folder=False, linked=linked)
        for number, (path, size, linked) in enumerate(drawn)
    ]
    entries = tuple(Entry(name, 0, folder=True) for name in sorted(folders)) + tuple(files)
    assert tuple(Packed(entries)) == entries
    return Listing(Packed(entries))


@given(ENTRIES.map(listing_of), st.integers(1, 6), st.integers(1, 3000))
def test_every_division_has_each_file_once_and_the_folders_that_it_needs(
    listing: Listing, streams: int, object_size: int
) -> None:
    divided = divide(listing, streams, object_size=object_size)
    assert 1 <= len(divided) <= streams
    parts = [part for objects in divided for part in objects]
    files = [entry for part in parts for entry in part.entries if not entry.folder]
    assert sorted(files, key=lambda entry: entry.name) == sorted(
        (entry for entry in listing.entries if not entry.folder), key=lambda entry: entry.name
    )
    assert len(parts) == 1 or all(part.files for part in parts)
    assert [entry for entry in parts[0].entries if entry.folder] == [e for e in listing.entries if e.folder]
    of_inode: dict[tuple[int, int], int] = {}
    for number, part in enumerate(parts):
        there: set[bytes] = set()
        for entry in part.entries:
            assert entry.name == b"." or (entry.name.rpartition(b"/")[0] or b".") in there
            there.add(entry.name)
            if entry.linked is not None:
                assert of_inode.setdefault(entry.linked, number) == number
        units = len({entry.linked or entry.name for entry in part.entries if not entry.folder})
        assert part.size <= object_size or units == 1


def of_sizes(*sizes: int) -> Listing:
    return Listing(tuple(Entry(b"%d" % number, size, folder=False) for number, size in enumerate(sizes)))


def test_division_is_about_even() -> None:
    divided = divide(of_sizes(900, 500, 400, 300, 200, 100, 100, 50), 3, object_size=10_000)
    assert [[part.size for part in objects] for objects in divided] == [[900], [850], [800]]


def test_a_stream_ends_its_object_before_the_file_that_is_too_much() -> None:
    divided = divide(of_sizes(40, 50, 30, 20, 60, 500, 10), 1, object_size=100)
    assert [[entry.size for entry in part.entries] for part in divided[0]] == [[40, 50], [30, 20], [60], [500], [10]]


def test_an_object_ends_after_so_many_names_and_a_file_keeps_its_own_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "OBJECT_NAMES", 3)
    entries = [Entry(b"%d" % number, 1, folder=False) for number in range(7)]
    entries.append(Entry(b"again", 0, folder=False, linked=(1, 1)))
    entries[1] = replace(entries[1], linked=(1, 1))
    divided = divide(Listing(tuple(entries)), 1, object_size=1000)
    names = [[entry.name for entry in part.entries] for part in divided[0]]
    assert names == [[b"0", b"1", b"2", b"again"], [b"3", b"4", b"5"], [b"6"]]


def test_objects_roll_over_and_each_of_them_is_a_whole_archive(root: Path, tmp_path: Path) -> None:
    objects = Objects()
    told = stored(root, objects, 2, object_size=MIB)
    assert list(objects.stored)[:2] == ["data-1.tar.zst", "data-2.tar.zst"]
    names = [f"data-{number}.tar.zst" for number in range(1, len(objects.stored) + 1)]
    assert [stored.name for stored in told.objects] == names == sorted(objects.stored, key=names.index)
    assert list(told.members) == names
    assert len(names) > 3
    assert objects.most_open == 2
    out = tmp_path / "out"
    out.mkdir()
    for stored_object in told.objects:
        assert stored_object.plain_bytes < 2 * MIB
        content = objects.stored[stored_object.name]
        subprocess.run(f"zstd -dc | tar -x -C {out}", shell=True, input=content, check=True)
    subprocess.run(["diff", "-r", "--no-dereference", root, out], check=True)
    assert (out / "again.ibd").stat().st_ino == (out / "blog" / "posts.ibd").stat().st_ino
    assert sum(stored.files for stored in told.objects) == 12
    assert {stage.bytes for stage in told.throughput if stage.stage == "read"} == {
        sum(stored.plain_bytes for stored in told.objects)
    }


def test_a_failure_after_an_object_was_finished_ends_all(root: Path) -> None:
    with pytest.raises(TargetError, match=r"no room for data-3\.tar\.zst"):
        stored(root, Objects(fail_in="data-3.tar.zst"), 1, object_size=MIB)


def test_any_stream_can_be_unpacked_by_itself_and_all_together_are_the_tree(root: Path, tmp_path: Path) -> None:
    objects = Objects()
    told = stored(root, objects, 3)
    assert list(objects.stored) == ["data-1.tar.zst", "data-2.tar.zst", "data-3.tar.zst"]
    assert objects.most_open == 3
    out = tmp_path / "out"
    out.mkdir()
    for name, content in objects.stored.items():
        alone = tmp_path / name
        alone.mkdir()
        for folder in (out, alone):
            subprocess.run(f"zstd -dc | tar -x -C {folder}", shell=True, input=content, check=True)
    subprocess.run(["diff", "-r", "--no-dereference", root, out], check=True)
    assert (out / "again.ibd").stat().st_ino == (out / "blog" / "posts.ibd").stat().st_ino
    assert sum(stored.files for stored in told.objects) == 12


def plain_of(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-dc"], input=content, check=True, capture_output=True).stdout


def test_digests_are_those_of_the_whole(root: Path) -> None:
    objects = Objects()
    for told in stored(root, objects, 2).objects:
        content = bytes(objects.stored[told.name])
        plain = plain_of(content)
        assert (told.stored_bytes, told.stored_sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert (told.plain_bytes, told.plain_sha256) == (len(plain), hashlib.sha256(plain).hexdigest())


def ranges(told: StoredObject, content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    for frame in told.frames:
        yield frame.plain_bytes, content[at : at + frame.stored_bytes]
        assert hashlib.sha256(content[at : at + frame.stored_bytes]).hexdigest() == frame.stored_sha256
        at += frame.stored_bytes
    assert at == len(content)


@pytest.mark.parametrize("threads", [1, 2])
def test_frames_tile_the_object_and_each_opens_alone(root: Path, threads: int) -> None:
    objects = Objects()
    for told in stored(root, objects, 2, usual_manner(threads=threads, frame_bytes=FRAME)).objects:
        plain = b""
        for size, piece in ranges(told, bytes(objects.stored[told.name])):
            alone = plain_of(piece)
            assert len(alone) == size <= FRAME
            plain += alone
        assert len(told.frames) == -(-told.plain_bytes // FRAME) > 1
        assert hashlib.sha256(plain).hexdigest() == told.plain_sha256


def members_of(told: StoredStreams) -> dict[str, list[Member]]:
    """As the index has them."""
    found: dict[str, list[Member]] = {}
    for name, member in Index(zstd.compress(b"".join(written(told.members)))).members():
        found.setdefault(name, []).append(member)
    return found


def test_index_says_where_each_member_lies(root: Path) -> None:
    objects = Objects()
    told = stored(root, objects, 2)
    seen: list[str] = []
    for name, members in members_of(told).items():
        plain = zstd.decompress(bytes(objects.stored[name]))
        assert members[0].offset == 0
        for member, after in zip(members, [*(m.offset for m in members[1:]), None], strict=True):
            assert after is None or member.offset + member.size == after
            alone = plain[member.offset : member.offset + member.size] + bytes(2 * tarfile.BLOCKSIZE)
            with tarfile.open(fileobj=BytesIO(alone)) as archive:
                [only] = archive.getmembers()
                assert only.name == member.name
                if only.isreg():
                    content = archive.extractfile(only)
                    assert content is not None
                    assert content.read() == (root / member.name).read_bytes()
            seen.append(member.name)
        assert not any(plain[members[-1].offset + members[-1].size :])
    files = [name for name in seen if not (root / name).is_dir() or (root / name).is_symlink()]
    assert sorted(files) == sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()
    )


def test_every_stage_of_the_copy_is_told(root: Path) -> None:
    told = stored(root, Objects(), 2)
    plain = sum(stored.plain_bytes for stored in told.objects)
    kept = sum(stored.stored_bytes for stored in told.objects)
    assert {stage.stage: stage.bytes for stage in told.throughput} == {
        "read": plain,
        "digest": plain,
        "compress": plain,
        "digest-stored": kept,
        "write": kept,
    }
    assert all(stage.busy_seconds > 0 for stage in told.throughput)


def test_time_in_which_the_target_hangs_is_the_writing_s_alone(root: Path) -> None:
    objects = Objects(hang_in="data-1.tar.zst")

    def release() -> None:
        objects.hangs.wait(10)
        threading.Timer(0.3, objects.released.set).start()

    threading.Thread(target=release).start()
    busy = {stage.stage: stage.busy_seconds for stage in stored(root, objects, 1).throughput}
    assert busy["write"] > 0.25
    assert busy["digest-stored"] < busy["write"]


def test_streams_that_nobody_numbered_are_at_most_four(root: Path) -> None:
    assert len(stored(root, Objects(), 0).objects) == automatic_streams() <= 4


def test_tree_without_files_is_one_object(tmp_path: Path) -> None:
    (tmp_path / "root" / "empty").mkdir(parents=True)
    told = stored(tmp_path / "root", Objects(), 4)
    assert [(stored.name, stored.files) for stored in told.objects] == [("data-1.tar.zst", 0)]
    assert [member.name for member in members_of(told)["data-1.tar.zst"]] == [".", "empty"]


@pytest.mark.parametrize("failing", ["data-1.tar.zst", "data-2.tar.zst", "data-3.tar.zst"])
def test_one_stream_s_failure_ends_all(root: Path, failing: str) -> None:
    objects = Objects(fail_in=failing)
    with pytest.raises(TargetError, match=f"no room for {failing}"):
        stored(root, objects, 3)
    assert objects.stored == {}


def test_file_that_vanishes_from_one_stream_fails_all(root: Path) -> None:
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    (root / "shop" / "t3.ibd").unlink()
    objects = Objects()
    with pytest.raises(SnapshotError, match=r"^shop/t3\.ibd could not be read from the snapshot: No such file"):
        stored(root, objects, 3, listing=listing)
    assert objects.stored == {}


def test_stream_that_hangs_does_not_stop_the_others_and_the_governor_ends_it(root: Path) -> None:
    objects = Objects(hang_in="data-1.tar.zst")
    seen: list[bool] = []

    def check() -> None:
        others = sum(len(objects.stored[name]) for name in objects.stored if name != "data-1.tar.zst")
        seen.append(others > 0)
        if seen[-1]:
            objects.released.set()
            raise GaveUp("nothing moves")

    with pytest.raises(GaveUp):
        stored(root, objects, 2, usual_manner(CopyGovernor(check=check)))
    assert seen[-1]


def test_all_streams_together_keep_to_one_rate(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(4):
        (root / str(number)).write_bytes(os.urandom(MIB))
    waited: list[float] = []
    now = [0.0]

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    governor = CopyGovernor(max_rate=MIB, clock=lambda: now[0], wait=wait)
    stored(root, Objects(), 4, usual_manner(governor))
    assert 4.0 <= sum(waited) < 5.5


@pytest.mark.parametrize("content", [b"", b"{}", os.urandom(3 * MIB)])
def test_small_content_is_an_object_like_the_others(content: bytes) -> None:
    objects = Objects()
    told = store_content("index.jsonl.zst", [content], open_object=objects.opening, manner=usual_manner())
    assert plain_of(bytes(objects.stored["index.jsonl.zst"])) == content
    assert (told.plain_bytes, told.files) == (len(content), 0)
    assert sum(size for size, _ in ranges(told, bytes(objects.stored["index.jsonl.zst"]))) == len(content)


# --- encrypted ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 150_000), min_size=1, max_size=8), st.integers(20_000, 200_000), st.booleans())
@settings(max_examples=examples(40))
def test_frames_of_a_sealed_object_tile_it(blocks: list[int], frame_bytes: int, random: bool) -> None:
    compressor = Compressor(level=1, threads=1, frame_bytes=frame_bytes)
    objects = Objects()
    noise = os.urandom(max(blocks))
    storing = ObjectSink(compressor.ends, _Object(objects, "o"), Encryptor([str(KEY.to_public())]))
    for size in blocks:
        for piece in compressor.take(noise[:size] if random else bytes(size)):
            assert list(storing.take(piece)) == []
    for piece in compressor.end():
        assert list(storing.take(piece)) == []
    assert list(storing.end()) == []
    content = bytes(objects.stored["o"])
    assert sum(frame.plain_bytes for frame in storing.frames) == sum(blocks)
    at = 0
    for frame in storing.frames:
        assert frame.stored_bytes > 0
        assert hashlib.sha256(content[at : at + frame.stored_bytes]).hexdigest() == frame.stored_sha256
        at += frame.stored_bytes
    assert at == len(content) == storing.whole.size
    assert len(zstd.decompress(pyrage.decrypt(content, [KEY]))) == sum(blocks)


def test_objects_of_recipients_say_so_and_only_they_read_them(root: Path, tmp_path: Path) -> None:
    objects = Objects()
    told = stored(root, objects, 2, usual_manner(recipients=(str(KEY.to_public()),), frame_bytes=FRAME))
    assert list(objects.stored) == ["data-1.tar.zst.age", "data-2.tar.zst.age"]
    assert set(told.members) == {"data-1.tar.zst", "data-2.tar.zst"}
    assert "encrypt" in {stage.stage for stage in told.throughput}
    for each in told.objects:
        content = bytes(objects.stored[each.name])
        assert each.encrypted
        assert len(list(ranges(each, content))) > 1
        subprocess.run(["tar", "-x", "-C", tmp_path], input=plain_of(pyrage.decrypt(content, [KEY])), check=True)
    assert (tmp_path / "shop" / "t6.ibd").read_bytes() == (root / "shop" / "t6.ibd").read_bytes()
