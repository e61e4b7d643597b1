"""What comes back is what was stored, or an error; and nothing is ever written outside the folder."""

import hashlib
import os
import stat
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backupd.archive import tarchild
from backupd.archive.index import Member
from backupd.archive.members import Members
from backupd.archive.parallel import Task, side_by_side
from backupd.archive.source_file import Part
from backupd.archive.sources import BinlogCut, Exclusions, list_members
from backupd.archive.stream import store_binlog, store_tree
from backupd.archive.tarring import tar_stream
from backupd.archive.unpack import unpack
from backupd.archive.unpack_progress import TrackedMembers, UnpackProgress
from backupd.operations.restore.verify import verify_object
from backupd.vocabulary.errors import GaveUp, UsageError, VerificationError
from backupd.vocabulary.storage import Frame, StoredObject
from tests.fakes.target import MemoryTarget
from tests.manners import usual_manner
from tests.share import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20


class Sink(bytearray):
    def write(self, data: bytes) -> None:
        self.extend(data)


def packed(root: Path) -> tuple[bytes, StoredObject]:
    sink = Sink()
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    told = store_tree(root, listing, sink, manner=usual_manner())
    return bytes(sink), told


def chunks(content: bytes, size: int = 64 << 10) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def tree(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_uid,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (root, *root.rglob("*"))
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "shop").mkdir(parents=True)
    (root / "ibdata1").write_bytes(os.urandom(MIB) + bytes(MIB))
    (root / "shop" / "a.ibd").write_bytes(b"a" * 100_000)
    (root / "shop" / "alias").symlink_to("../ibdata1")
    (root / "shop" / "a.ibd").chmod(0o660)
    (root / "shop").chmod(0o2750)
    root.chmod(0o711)
    if os.geteuid() == 0:
        os.chown(root / "shop" / "a.ibd", 4711, 4712)
        os.chown(root, 4711, 4712)
    return root


@pytest.fixture
def into(tmp_path: Path) -> Path:
    into = tmp_path / "into"
    into.mkdir()
    return into


def test_files_modes_owners_times_and_links_come_back(root: Path, into: Path) -> None:
    content, told = packed(root)
    unpack(iter(chunks(content)), told, into)
    before, after = tree(root), tree(into)
    assert {**after, ".": ()} == {**before, ".": ()}


def test_the_folder_itself_stays_ours_alone(root: Path, into: Path) -> None:
    content, told = packed(root)
    unpack(iter(chunks(content)), told, into)
    assert stat.S_IMODE(into.stat().st_mode) == 0o700
    assert into.stat().st_uid == os.geteuid()


def test_holes_come_back_as_holes(tmp_path: Path, into: Path) -> None:
    (tmp_path / "root").mkdir()
    with (tmp_path / "root" / "sparse").open("wb") as file:
        for at in range(0, 1 << 30, 1 << 26):
            file.seek(at)
            file.write(b"here")
        file.truncate(1 << 40)
    content, told = packed(tmp_path / "root")
    unpack(iter(chunks(content)), told, into)
    assert (into / "sparse").stat().st_size == 1 << 40
    assert (into / "sparse").stat().st_blocks * 512 < MIB
    assert told.plain_bytes < MIB


def test_binlog_lies_beside_the_data(root: Path, into: Path) -> None:
    content, told = packed(root)
    unpack(iter(chunks(content)), told, into)
    (root / "binlog.000007").write_bytes(b"x" * 1000)
    sink = Sink()
    cut = BinlogCut(root / "binlog.000007", 600, PurePosixPath("shop/binlog.000007"))
    [stored] = store_binlog(cut, open_object=lambda _name: nullcontext(sink), manner=usual_manner()).objects
    unpack(iter(chunks(bytes(sink))), stored, into)
    assert (into / "shop" / "binlog.000007").read_bytes() == b"x" * 600
    assert (into / "shop" / "binlog.index").read_text() == "./binlog.000007\n"
    assert (into / "shop" / "a.ibd").exists()


def mutate(content: bytes, kind: str, at: int, more: bytes) -> bytes:
    at %= len(content)
    match kind:
        case "flip":
            return content[:at] + bytes([content[at] ^ (more[0] or 1)]) + content[at + 1 :]
        case "cut":
            return content[:at]
        case "drop":
            return content[:at] + content[at + len(more) :]
        case "insert":
            return content[:at] + more + content[at:]
        case "swap":
            half = at // 2
            return content[half:at] + content[:half] + content[at:]
        case "frame":
            return content + content
        case _:
            return content + more


MUTATIONS = st.tuples(
    st.sampled_from(["flip", "flip", "cut", "drop", "insert", "swap", "append", "frame"]),
    st.integers(0, 1 << 30),
    st.binary(min_size=1, max_size=600),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, StoredObject]:
    root = tmp_path_factory.mktemp("small")
    (root / "shop").mkdir()
    (root / "shop" / "a.ibd").write_bytes(os.urandom(3000) + bytes(3000))
    (root / "shop" / "b.ibd").write_bytes(b"b" * 5000)
    return packed(root)


@settings(max_examples=examples(400))
@given(MUTATIONS)
def test_every_mutation_of_a_stored_object_is_found_when_it_is_read_back(
    small: tuple[bytes, StoredObject], mutation: tuple[str, int, bytes]
) -> None:
    content, told = small
    changed = mutate(content, *mutation)
    if changed != content:
        with pytest.raises(VerificationError):
            verify_object(MemoryTarget(stored={("nightly", "r1", told.name): changed}), "nightly", "r1", told)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MUTATIONS)
def test_every_mutation_of_a_stored_object_is_found_while_it_is_unpacked(
    small: tuple[bytes, StoredObject], tmp_path_factory: pytest.TempPathFactory, mutation: tuple[str, int, bytes]
) -> None:
    content, told = small
    changed = mutate(content, *mutation)
    if changed != content:
        with pytest.raises(VerificationError):
            unpack(iter(chunks(changed, 1000)), told, tmp_path_factory.mktemp("into"))
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")] == []


# --- archives that backupd never wrote -------------------------------------------------------------------------------


def sealed(plain: bytes, files: int = 1) -> tuple[bytes, StoredObject]:
    """An object whose digests are right: what somebody who can write to the target could put there."""
    stored = zstd.compress(plain)
    digests = (hashlib.sha256(plain).hexdigest(), hashlib.sha256(stored).hexdigest())
    frames = (Frame(len(plain), len(stored), digests[1]),)
    return stored, StoredObject("data-1.tar.zst", len(plain), len(stored), *digests, files, frames)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


def extended(**records: str) -> bytes:
    info = tarfile.TarInfo("harmless")
    info.pax_headers = {key.replace("__", "."): value for key, value in records.items()}
    return info.tobuf(tarfile.PAX_FORMAT)


def with_field(place: slice, field: bytes) -> bytes:
    """A header with these bytes in one of its fields."""
    header = bytearray(member("evil"))
    header[place] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def record(keyword: str, value: str) -> bytes:
    size = next(size for size in range(1, 1000) if len(f"{size} {keyword}={value}\n".encode()) == size)
    return f"{size} {keyword}={value}\n".encode()


def with_records(*records: bytes) -> bytes:
    """A member with an extended header in these words."""
    content = b"".join(records)
    info = tarfile.TarInfo("PaxHeaders/evil")
    info.type, info.size = tarfile.XHDTYPE, len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512) + member("evil")


def of_format(magic: bytes) -> bytes:
    """Outside of POSIX's format the prefix of a name is none: tar reads `/tmp/evil`."""
    header = bytearray(member("/tmp/evil"))
    header[257:265], header[345:346] = magic, b"a"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


END = bytes(1024)
LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
EVIL = {
    "climbing name": member("../evil", content=b"x"),
    "climbing in the middle": member("a/../../evil", content=b"x"),
    "absolute name": member("/tmp/evil", content=b"x"),
    "climbing name in an extended header": extended(path="../evil"),
    "climbing sparse name": extended(GNU__sparse__name="../evil", GNU__sparse__major="1", GNU__sparse__minor="0"),
    "name that ends early": extended(path="..\0"),
    "absolute name in a header of GNU": of_format(b"ustar  \0"),
    "absolute name in a header of Unix V7": of_format(bytes(8)),
    "link that ends early": extended(linkpath="..\0x"),
    "absolute link": member("evil", LINK, "/etc"),
    "climbing link": member("evil", LINK, "../etc"),
    "link that climbs later": member("here", LINK, ".") + member("evil", LINK, "here/here/../../.."),
    "link in an extended header": member("evil", LINK, "../" + "x" * 200),
    "climbing hard link": member("evil", HARD, "../outside"),
    "absolute hard link": member("evil", HARD, "/etc/passwd"),
    "file through a link": member("d", LINK, "shop") + member("d/evil", content=b"x"),
    "file in a link's place": member("d", LINK, "shop") + member("d", content=b"x"),
    "device": member("evil", tarfile.CHRTYPE),
    "pipe": member("evil", tarfile.FIFOTYPE),
    "long name of GNU": member("././@LongLink", tarfile.GNUTYPE_LONGNAME, content=b"../evil\0"),
    "unknown kind": member("evil", b"Z"),
    "deleting extension": extended(GNU__dumpdir="Rx\0"),
    "folder with content": member("evil", tarfile.DIRTYPE, content=b"x" * 512),
    "binary size": with_field(slice(124, 136), b"\x80" + bytes(10) + b"\0"),
    "signed size": with_field(slice(124, 136), b"-0000000000\0"),
    "blank size": with_field(slice(124, 136), b" " * 12),
    "padded size": with_field(slice(124, 136), b"     000000\0"),
    "size in two words": with_field(slice(124, 136), b"0 000000001\0"),
    "size with a line in it": with_field(slice(124, 136), b"0000_000000\0"),
    "binary owner": with_field(slice(108, 116), b"\x80" + bytes(7)),
    "signed size in an extended header": with_records(record("size", "+0")),
    "padded size in an extended header": with_records(record("size", " 0")),
    "negative size in an extended header": with_records(record("size", "-512")),
    "size of other digits": with_records(record("size", "\u0660")),
    "size beyond all files": with_records(record("size", "9" * 19)),
    "owner who is nobody": with_records(record("uid", str(2**32 - 1))),
    "size twice": with_records(record("size", "0"), record("size", "512")),
    "path twice": with_records(record("path", "a"), record("path", "b")),
    "record whose length is padded": with_records(b"012 path=abc\n"),
    "two extended headers": with_records(record("path", "a"))[:1024] + with_records(record("path", "b")),
    "extended header of nothing": with_records(record("path", "a"))[:1024],
    "holes of another version": extended(
        GNU__sparse__name="a", GNU__sparse__major="0", GNU__sparse__minor="1", GNU__sparse__realsize="5"
    ),
    "holes without a size": extended(GNU__sparse__name="a", GNU__sparse__major="1", GNU__sparse__minor="0"),
    "a thousand folders": member("a/" * 1000 + "evil", content=b"x"),
    "our own marker": member(".backupd-incomplete", content=b"x"),
    "our marker's link": member("./.backupd-incomplete.new", LINK, "shop"),
    "file in the folder's own place": member(".", content=b"x"),
    "link in the folder's own place": member("./", LINK, "shop"),
    "damaged header": member("evil")[:100] + b"\xff" + member("evil")[101:],
    "header cut short": member("evil")[:300],
    "content cut short": member("evil", content=b"x" * 2000)[:1024],
    "no end": member("fine", content=b"x"),
    "something after the end": member("fine") + END + member("evil"),
}


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL.keys())
def test_archive_that_backupd_never_wrote_is_refused_and_nothing_is_outside(into: Path, evil: bytes) -> None:
    (into / "target").mkdir()
    proper_end = END if evil[-512:] != bytes(512) and len(evil) % 512 == 0 and b"fine" not in evil else b""
    content, told = sealed(evil + proper_end)
    with pytest.raises(VerificationError, match="was not written by backupd") as refused:
        unpack(iter(chunks(content)), told, into / "target")
    assert refused.value.hint
    assert {path.name for path in into.iterdir()} == {"target"}


def test_tar_is_told_in_our_words_alone(monkeypatch: pytest.MonkeyPatch, root: Path, into: Path) -> None:
    """However a header said it, what tar reads is what was judged."""
    given: list[bytes] = []
    take = TrackedMembers.take

    def kept(members: TrackedMembers, block: bytes) -> Iterator[bytes]:
        for piece in take(members, block):
            given.append(piece)
            yield piece

    monkeypatch.setattr(TrackedMembers, "take", kept)
    header = bytearray(member("a", content=b"x" * 5))
    header[50:60], header[265:270] = b"/../../../", b"owner"  # behind the name's end
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    odd = with_records(record("SCHILY.acl.access", "u::rwx"), record("SCHILY.fflags", "x"))
    content, told = sealed(bytes(header) + odd + END, files=2)
    unpack(iter(chunks(content)), told, into)
    assert {path.name for path in into.iterdir()} == {"a", "evil"}
    assert b"owner" not in b"".join(given)
    assert b"SCHILY" not in b"".join(given)
    assert b".." not in b"".join(given)


def test_what_was_judged_and_told_again_is_the_same(root: Path) -> None:
    """Of an archive of ours each header is as it was, but for the folder itself."""
    (root / ("long" * 40)).symlink_to("shop/" + "x" * 200)
    (root / "schön").hardlink_to(root / "ibdata1")
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    plain = b"".join(part for part in every_byte(tar_stream(root, listing)))
    members = TrackedMembers("ours", begun=UnpackProgress(), ranges=((0, len(plain)),), fed=lambda: 0)
    again = b"".join(piece for block in chunks(plain, 1000) for piece in members.take(block))
    told: list[list[Member]] = [[], []]
    for stream, found in zip((plain, again), told, strict=True):
        for _ in Members("a stream", told=found.append).take(stream):
            pass
    first, second = ([(each.name.rstrip("/"), each.recorded) for each in found if each.name != "."] for found in told)
    assert second == first
    assert len(first) == 7


def every_byte(parts: Iterator[Part]) -> Iterator[bytes]:
    for part in parts:
        yield part if isinstance(part, bytes) else bytes(sum(size for _, size in part.pieces))


@pytest.mark.parametrize(
    ("kind", "mode", "restored"),
    [(tarfile.REGTYPE, 0o6755, 0o755), (tarfile.DIRTYPE, 0o6755, 0o2755), (tarfile.DIRTYPE, 0o1777, 0o1777)],
)
def test_no_file_acts_as_its_owner(into: Path, kind: bytes, mode: int, restored: int) -> None:
    info = tarfile.TarInfo("evil")
    info.type, info.mode = kind, mode
    content, told = sealed(info.tobuf(tarfile.PAX_FORMAT) + END, files=kind == tarfile.REGTYPE)
    unpack(iter(chunks(content)), told, into)
    assert stat.S_IMODE((into / "evil").stat().st_mode) == restored


def test_no_capability_and_no_policy_is_restored(into: Path) -> None:
    capability = "\x01\x00\x00\x02\x00\x04" + "\x00" * 14
    odd = extended(**{"SCHILY.xattr.security.capability": capability, "SCHILY.xattr.user.kept": "1"})
    content, told = sealed(odd + END)
    unpack(iter(chunks(content)), told, into)
    assert os.listxattr(into / "harmless") == ["user.kept"]


def test_wrong_number_of_files_is_refused(into: Path) -> None:
    content, told = sealed(member("a", content=b"x") + END, files=2)
    with pytest.raises(VerificationError, match="expected 2 files, found 1"):
        unpack(iter(chunks(content)), told, into)


@pytest.mark.thorough
def test_stream_that_expands_beyond_what_was_recorded_is_ended_early(into: Path) -> None:
    bomb = zstd.compress(member("a", content=bytes(256 * MIB)) + END)
    digest = hashlib.sha256(bomb).hexdigest()
    told = StoredObject("data-1.tar.zst", 10_000, len(bomb), "", digest, 1, (Frame(10_000, len(bomb), digest),))
    with pytest.raises(VerificationError, match=r"expected 10000 plain bytes .*, found 1048576 or more"):
        unpack(iter(chunks(bomb)), told, into)


# --- folders that cannot take it -------------------------------------------------------------------------------------


def test_what_tar_cannot_unpack_is_told_in_its_words(root: Path, into: Path) -> None:
    (into / "ibdata1" / "in the way").mkdir(parents=True)
    content, told = packed(root)
    with pytest.raises(UsageError, match=f"data-1.tar.zst could not be unpacked into {into}: .*ibdata1: Cannot open"):
        unpack(iter(chunks(content)), told, into)


@pytest.mark.parametrize("reads", ["true", "cat > /dev/null"], ids=["nothing", "everything"])
def test_tar_that_hangs_is_given_up_and_its_disk_is_named(
    monkeypatch: pytest.MonkeyPatch, root: Path, into: Path, tmp_path: Path, reads: str
) -> None:
    """Be it that it takes no byte, or that it has taken all and does not end."""
    program = tmp_path / "bin" / "tar"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{reads}\nexec sleep 3600\n")
    program.chmod(0o755)
    (root / "much").write_bytes(os.urandom(4 << 20))  # more than a pipe holds
    content, stored = packed(root)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(tarchild, "_STALLED_SECONDS", 0.5)
    with pytest.raises(UsageError, match=r"tar has done nothing for 0\.5 s") as told:
        unpack(iter(chunks(content)), stored, into)
    assert "dmesg" in told.value.hint
    assert str(into) in told.value.message


@pytest.mark.thorough
def test_two_objects_that_both_have_files_in_folders_that_are_not_there_come_in_side_by_side(into: Path) -> None:
    """Each tar finds some folder missing a moment before the other one makes it."""

    def one(name: str) -> Task:
        content, told = sealed(b"".join(member(f"{i}/{name}", content=b"x") for i in range(500)) + END, files=500)
        return lambda _require_wanted: unpack(iter(chunks(content)), told, into)

    side_by_side([one("a"), one("b")], idle=lambda: None)
    assert {str(path.relative_to(into)) for path in into.glob("*/*")} == {f"{i}/{n}" for i in range(500) for n in "ab"}


def test_missing_folder_is_named(root: Path, tmp_path: Path) -> None:
    content, told = packed(root)
    with pytest.raises(UsageError, match="No such file or directory") as refused:
        unpack(iter(chunks(content)), told, tmp_path / "nowhere")
    assert refused.value.hint


def test_governor_can_end_a_restore(root: Path, into: Path) -> None:
    class Impatient:
        def pace(self, size: int) -> None:
            raise GaveUp("not now")

    content, told = packed(root)
    with pytest.raises(GaveUp):
        unpack(iter(chunks(content)), told, into, governor=Impatient())
