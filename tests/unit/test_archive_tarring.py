"""A tar stream of ours is what GNU tar makes of the same files, and GNU tar makes the same files of it."""

import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backupd.archive import tarring
from backupd.archive.index import Member
from backupd.archive.listing import Listing
from backupd.archive.members import Members
from backupd.archive.pax import Header, HeaderType
from backupd.archive.redo import RedoCut
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import store_tree
from backupd.vocabulary.errors import SnapshotError
from tests.manners import usual_manner
from tests.share import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KIB, MIB = 1 << 10, 1 << 20
CREATE = ["--create", "--file=-", "--no-recursion", "--null", "--files-from=-", "--format=posix"]
CREATE += ["--pax-option=delete=atime,delete=ctime", "--sparse", "--numeric-owner", "--xattrs"]
EXTRACT = ["--extract", "--numeric-owner", "--same-permissions", "--same-owner", "--xattrs", "--xattrs-include=*"]
ANYBODY = 0xFFFFFFFF
ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, ANYBODY), (2, 6, 0), (4, 4, ANYBODY), (16, 6, ANYBODY), (32, 0, ANYBODY))
)  # acl_ea.h: user::rw- user:0:rw- group::r-- mask::rw- other::---


class Sink(bytearray):
    def write(self, data: bytes) -> None:
        self.extend(data)


def ours(root: Path, listing: Listing | None = None) -> bytes:
    sink = Sink()
    listing = listing or list_members(root, Exclusions(datadir=PurePosixPath()))
    store_tree(root, listing, sink, manner=usual_manner())
    return zstd.decompress(bytes(sink))


def tar(*options: str, folder: Path, given: bytes) -> bytes:
    return subprocess.run(
        ["tar", f"--directory={folder}", *options], input=given, env={"LC_ALL": "C"}, capture_output=True, check=True
    ).stdout


def theirs(root: Path) -> bytes:
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    return tar(*CREATE, folder=root, given=b"\0".join(entry.name for entry in listing.entries))


def members(archive: bytes) -> dict[str, Member]:
    """By their names, without where they lie: files of one folder come as they lie on the disk."""
    found: list[Member] = []
    for _ in Members("the archive", told=found.append).take(archive):
        pass
    return {str(PurePosixPath(member.name)): replace(member, name="", offset=0) for member in found}


def holes(path: Path) -> list[tuple[int, int]]:
    found, at, size = [], 0, path.stat().st_size
    with path.open("rb") as file, suppress(OSError):  # ENXIO: there is no more data
        while at < size:
            begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            found.append((begin, at))
    return found


def attributes(path: Path) -> Mapping[str, bytes]:
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """All that tar keeps of it."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *root.rglob("*")):
        facts = path.lstat()
        kept: tuple[object, ...] = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_mtime_ns, attributes(path))
        if stat.S_ISREG(facts.st_mode):
            kept += (path.read_bytes(), facts.st_nlink, holes(path))
        elif stat.S_ISLNK(facts.st_mode):
            kept += (path.readlink(),)
        found[str(path.relative_to(root))] = kept
    return found


def with_holes(path: Path, pieces: Mapping[int, bytes], size: int) -> None:
    with path.open("wb") as file:
        for at, content in pieces.items():
            file.seek(at)
            file.write(content)
        file.truncate(size)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Everything that a datadir may have, and what it should not."""
    root = tmp_path / "root"
    (root / "shop" / "empty").mkdir(parents=True)
    (root / "shop" / ("deep" * 60)).mkdir()
    for name in ("-rf", "a\nb", "caf\u00e9", "not-utf8-\udcff", "n" * 100, "n" * 101, "n" * 255, "=%3D", " ", "\\"):
        (root / "shop" / name).write_bytes(name.encode("utf-8", "surrogateescape"))
    (root / "shop" / ("deep" * 60) / ("long" * 50)).write_bytes(b"long")
    for size in (0, 1, 511, 512, 513, MIB - 1, MIB, 4 * MIB, 4 * MIB + 1, 9 * MIB + 77):
        (root / f"of-{size}").write_bytes(random.Random(size).randbytes(size))
    (root / "shop" / "again").hardlink_to(root / "of-513")
    (root / "again").hardlink_to(root / "of-513")
    (root / "shop" / "l").symlink_to("../of-1")
    (root / "shop" / ("l" * 101)).symlink_to("x" * 150)
    with_holes(root / "only-a-hole", {}, MIB)
    with_holes(root / "hole-at-both-ends", {MIB: b"x" * 5000}, 3 * MIB)
    with_holes(root / "hole-within", {0: b"x" * 5000, 8 * MIB + 12288: b"end"}, 8 * MIB + 12288 + 3)
    with_holes(root / "many-holes", {at * 12288: b"%d" % at * 700 for at in range(900)}, 12 * MIB)
    with_holes(root / ("holes" * 30), {64 * KIB: b"x"}, MIB)
    for number, path in enumerate((root / "of-1", root / "only-a-hole", root / "shop" / "a\nb", root / "shop")):
        path.chmod((0o4755, 0o600, 0o000, 0o2750)[number])
    os.utime(root / "of-1", ns=(0, -1_500_000_000))
    os.utime(root / "of-511", ns=(0, 1_700_000_000_120_000_000))
    os.utime(root / "of-512", ns=(0, 9_000_000_000 * 10**9))
    os.utime(root / "shop" / "l", ns=(0, 12_000_000_001), follow_symlinks=False)
    os.setxattr(root / "of-1", "user.odd=%25", b"a\0\n=b\xff")
    os.setxattr(root / "only-a-hole", "user.x", b"")
    if os.geteuid() == 0:
        os.chown(root / "of-512", 3_000_000_000, 2_097_152)
        os.chown(root / "shop" / "l", 4711, 4712, follow_symlinks=False)
        os.setxattr(root / "of-1", "security.backupd", b"label")
        os.setxattr(root / "shop", "trusted.backupd", b"1")
        os.setxattr(root / "shop" / "l", "trusted.backupd", b"1", follow_symlinks=False)
        os.setxattr(root / "of-513", "system.posix_acl_access", ACCESS_LIST)
        os.setxattr(root / "shop" / "empty", "system.posix_acl_default", ACCESS_LIST)
    return root


def test_members_and_their_attributes_are_those_that_gnu_tar_stores(root: Path) -> None:
    mine, its = members(ours(root)), members(theirs(root))
    assert mine.keys() == its.keys()
    for name, member in mine.items():
        if "again" in name or "513" in name:  # which of a file's names comes first is the disk's to say
            continue
        assert member.recorded == its[name].recorded, name
        if "holes" not in name:  # GNU tar has the map of a sparse file end with an empty piece
            assert abs(member.size - its[name].size) <= 2 * tarfile.BLOCKSIZE, name
    assert len(mine) == 34


@pytest.mark.skipif(os.geteuid() != 0, reason="owners and attributes are root's to set")
def test_gnu_tar_makes_the_same_files_of_it_as_of_its_own(root: Path, tmp_path: Path) -> None:
    made = {}
    for name, archive in (("ours", ours(root)), ("theirs", theirs(root))):
        (tmp_path / name).mkdir()
        tar(*EXTRACT, folder=tmp_path / name, given=archive)
        made[name] = tree(tmp_path / name)
    assert made["ours"] == made["theirs"]
    assert made["ours"] == tree(root)
    assert (tmp_path / "ours" / "again").samefile(tmp_path / "ours" / "of-513")


def test_archive_ends_where_tar_stops_reading(tmp_path: Path) -> None:
    archive = ours(tmp_path)
    assert len(archive) == 10240
    assert not any(archive[-1024:])


@pytest.mark.parametrize("size", [8 << 30, 5 << 40])
def test_file_of_terabytes_that_is_all_holes_is_a_few_blocks(tmp_path: Path, size: int) -> None:
    with_holes(tmp_path / "ibdata1", {size - 5: b"end"}, size)
    archive = ours(tmp_path)
    assert len(archive) <= 20480
    assert members(archive)["ibdata1"].recorded.size == size


@st.composite
def pieces(draw: st.DrawFn) -> tuple[dict[int, bytes], int]:
    """Data in a file with holes, near together and far apart, over the ends of requests."""
    found, at = {}, 0
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.sampled_from([0, 1, 4096, 60 * KIB, 70 * KIB, 3 * MIB, 5 * MIB]))
        size = draw(st.sampled_from([1, 4095, 4096, 100 * KIB, 4 * MIB + 5]))
        found[at] = random.Random(at).randbytes(size)
        at += size
    return found, at + draw(st.sampled_from([0, 1, 4096, MIB]))


@given(pieces())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_with_holes_comes_back_with_them(tmp_path: Path, drawn: tuple[dict[int, bytes], int]) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir(exist_ok=True)
    out.mkdir(exist_ok=True)
    with_holes(root / "t.ibd", *drawn)
    tar("--extract", folder=out, given=ours(root))
    assert (out / "t.ibd").read_bytes() == (root / "t.ibd").read_bytes()
    assert holes(out / "t.ibd") == holes(root / "t.ibd")


NAMES = st.binary(min_size=1, max_size=300).filter(lambda name: b"\0" not in name and b"/" not in name)


@given(
    name=NAMES,
    target=NAMES,
    numbers=st.tuples(*[st.integers(0, 2**32 - 2)] * 2, st.integers(-(2**60), 2**62), st.integers(0, 0o7777)),
    xattrs=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=3),
)
def test_whatever_a_header_is_given_is_read_from_it(
    name: bytes, target: bytes, numbers: tuple[int, int, int, int], xattrs: dict[bytes, bytes]
) -> None:
    uid, gid, mtime_ns, mode = numbers
    facts = os.stat_result((mode, 1, 1, 1, uid, gid, 0, 0, 0, 0), {"st_mtime_ns": mtime_ns})
    header = Header(name, HeaderType.SYMLINK, facts, target=target, xattrs=xattrs).encoded()
    assert len(header) % 512 == 0
    with tarfile.open(fileobj=BytesIO(header + bytes(1024)), errors="surrogateescape") as archive:
        [found] = archive.getmembers()
    assert (os.fsencode(found.name), os.fsencode(found.linkname)) == (name, target)
    assert (found.uid, found.gid, found.mode) == (uid, gid, mode)
    assert float(found.mtime) == pytest.approx(mtime_ns / 10**9)
    prefix = "SCHILY.xattr."
    assert {
        keyword.removeprefix(prefix).encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for keyword, value in found.pax_headers.items()
        if keyword.startswith(prefix)
    } == {key.replace(b"%", b"%25").replace(b"=", b"%3D"): value for key, value in xattrs.items()}


# --- the order on the disk -------------------------------------------------------------------------------------------


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mapping[str, int]], None]]:
    """Says where files lie on the disk."""

    def say(where: Mapping[str, int]) -> None:
        def asked(file: int, _request: int, answer: bytearray) -> None:
            name = Path(f"/proc/self/fd/{file}").readlink().name
            struct.pack_into("=I", answer, 20, 1)
            struct.pack_into("=Q", answer, 40, where[name])

        monkeypatch.setattr(tarring, "ioctl", asked)

    return say  # type: ignore[return-value]


def test_files_of_a_folder_come_in_the_order_in_which_they_lie_on_the_disk(
    tmp_path: Path, places: Callable[[Mapping[str, int]], None]
) -> None:
    for name in ("a", "b", "c/a", "c/d", "c/e", "z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    places({"a": 9, "b": 3, "d": 1, "e": 5, "z": 2})
    assert list(members(ours(tmp_path))) == [".", "b", "a", "c", "c/d", "c/e", "c/a", "z"]


def test_where_nobody_tells_how_files_lie_names_are_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(file: int, _request: int, _answer: bytearray) -> None:
        asked.append(file)
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(tarring, "ioctl", refuse)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x")
    assert list(members(ours(tmp_path))) == [".", "a", "b", "c"]
    assert len(asked) == 1


# --- a redo log of which only a part is stored ------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "kept",
    [
        ((0, 12288), (MIB, 5 * MIB)),
        ((0, 2 * MIB), (9 * MIB, 3 * MIB)),
        ((0, 12288), (11 * MIB + 4096, MIB - 4096)),
        ((0, 12 * MIB),),
    ],
    ids=str,
)
def test_of_a_cut_redo_log_the_pieces_come_back_and_zeros_between_them(
    tmp_path: Path, kept: tuple[tuple[int, int], ...], sparse: bool
) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    out.mkdir()
    noise = random.Random(1).randbytes(12 * MIB)
    with_holes(root / "ib_logfile0", {0: noise[: 6 * MIB]} if sparse else {0: noise}, 12 * MIB)
    (root / "ibdata1").write_bytes(b"x")
    cut = RedoCut(b"ib_logfile0", 12 * MIB, kept)
    listing = list_members(root, Exclusions(datadir=PurePosixPath()), cut)
    archive = ours(root, listing)
    tar("--extract", folder=out, given=archive)
    was = (root / "ib_logfile0").read_bytes()
    wanted = bytearray(12 * MIB)
    for begin, size in kept:
        wanted[begin : begin + size] = was[begin : begin + size]
    assert (out / "ib_logfile0").read_bytes() == wanted
    assert (out / "ibdata1").read_bytes() == b"x"
    held = sum(size for begin, size in kept) if not sparse else 12 * MIB
    assert len(archive) <= held + 20480
    assert listing.size <= held + 3 * 1536 + 1


def test_redo_log_that_changed_since_it_was_looked_at_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "ib_logfile0").write_bytes(bytes(MIB))
    listing = list_members(tmp_path, Exclusions(PurePosixPath()), RedoCut(b"ib_logfile0", MIB - 512, ((0, 12288),)))
    with pytest.raises(SnapshotError, match="it was changed"):
        ours(tmp_path, listing)
