"""What stands on a disk after a restore is compared with what the archive has recorded of it."""

import os
import struct
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from backupd.archive.index import Index, Member, MemberKind, Recorded, written
from backupd.archive.ondisk import differences, opened
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import store_streams
from backupd.archive.unpack import unpack
from tests.manners import usual_manner

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners and attributes are root's to set")

ANYBODY = 0xFFFFFFFF
ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, ANYBODY), (2, 6, 0), (4, 4, ANYBODY), (16, 6, ANYBODY), (32, 0, ANYBODY))
)  # acl_ea.h: user::rw- user:0:rw- group::r-- mask::rw- other::---
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
LABEL = "user.backupd=%"


class Sink(bytearray):
    def write(self, data: bytes) -> None:
        self.extend(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "shop" / "empty").mkdir(parents=True)
    (root / "shop" / "a.ibd").write_bytes(b"a" * 100_000)
    (root / "shop" / "second").hardlink_to(root / "shop" / "a.ibd")
    (root / "alias").symlink_to("shop/a.ibd")
    (root / "shop" / "far").symlink_to("../alias")
    with (root / "holes").open("wb") as file:
        file.truncate(1 << 30)
    (root / "labelled").write_bytes(b"x")
    os.setxattr(root / "labelled", LABEL, b"a\0\n=b\xff")
    os.setxattr(root / "labelled", "user.other", b"1")
    os.setxattr(root / "shop" / "a.ibd", "system.posix_acl_access", ACCESS_LIST)
    os.chown(root / "shop", 4711, 3_000_000_000)
    os.utime(root / "shop" / "a.ibd", ns=(0, 1_700_000_000_123_456_789))
    os.utime(root / "shop", ns=(0, -1_500_000_000))
    os.utime(root / "alias", ns=(0, 12_000_000_001), follow_symlinks=False)
    return root


@pytest.fixture
def restored(root: Path, tmp_path: Path) -> tuple[Path, list[Member]]:
    to, sink = tmp_path / "to", Sink()
    to.mkdir()
    listing = list_members(root, Exclusions(datadir=PurePosixPath()))
    told = store_streams(root, listing, lambda _name: nullcontext(sink), streams=1, manner=usual_manner())
    unpack(iter([bytes(sink)]), told.objects[0], to)
    index = Index(zstd.compress(b"".join(written(told.members))))
    return to, [member for _, member in index.members()]


def test_what_was_just_unpacked_is_as_it_was_recorded(restored: tuple[Path, list[Member]]) -> None:
    to, members = restored
    assert list(differences(to, members)) == []
    assert len(members) == 9
    assert os.getxattr(to / "labelled", LABEL) == b"a\0\n=b\xff"


def test_folders_are_as_they_were_afterwards_whatever_was_unpacked_into_them(
    restored: tuple[Path, list[Member]],
) -> None:
    to, members = restored
    mode = (to / "shop").stat().st_mode
    (to / "shop" / "binlog.000001").write_bytes(b"of another object")
    (to / "shop").chmod(0o700)
    assert list(differences(to, members)) == []
    assert ((to / "shop").stat().st_mtime_ns, (to / "shop").stat().st_mode) == (-1_500_000_000, mode)


def shorten(to: Path) -> None:
    kept = (to / "shop" / "a.ibd").stat()
    os.truncate(to / "shop" / "a.ibd", 5)
    os.utime(to / "shop" / "a.ibd", ns=(0, kept.st_mtime_ns))


def become_a_file(to: Path) -> None:
    (to / "alias").unlink()
    (to / "alias").touch(mode=0)


def part(to: Path) -> None:
    content = to / "shop" / "second"
    held = content.read_bytes()
    content.unlink()
    content.write_bytes(held)


def lead_elsewhere(to: Path) -> None:
    (to / "shop" / "far").unlink()
    (to / "shop" / "far").symlink_to("../holes")


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing file": (lambda to: (to / "labelled").unlink(), "labelled: is missing"),
    "shortened file": (shorten, "shop/a.ibd: 5 bytes instead of 100000"),
    "mode": (lambda to: (to / "holes").chmod(0o4644), "holes: mode 4644 instead of 0644"),
    "owner": (lambda to: os.chown(to / "shop", 0, 1), "shop: owner 0:1 instead of 4711:3000000000"),
    "link's owner": (lambda to: os.lchown(to / "alias", 7, 7), "alias: owner 7:7 instead of 0:0"),
    "time": (lambda to: os.utime(to / "labelled", ns=(0, 5)), "labelled: time 5 ns instead of"),
    "link turned file": (become_a_file, "alias: is no symlink"),
    "another target": (lead_elsewhere, "shop/far: leads to ../holes instead of ../alias"),
    "parted names": (part, "shop/second: is another file than shop/a.ibd"),
    "no attribute": (lambda to: os.removexattr(to / "labelled", LABEL), f"labelled: attribute missing: {LABEL}"),
    "another attribute": (
        lambda to: os.setxattr(to / "labelled", "user.other", b"2"),
        "labelled: another attribute user.other",
    ),
    "no access list": (
        lambda to: os.removexattr(to / "shop" / "a.ibd", "system.posix_acl_access"),
        "shop/a.ibd: attribute missing: system.posix_acl_access",
    ),
    "an access list more": (
        lambda to: os.setxattr(to / "shop" / "empty", "system.posix_acl_default", ACCESS_LIST),
        "shop/empty: unexpected attribute: system.posix_acl_default",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_kind_of_difference_is_told(restored: tuple[Path, list[Member]], name: str) -> None:
    to, members = restored
    change, told = WRONG[name]
    change(to)
    [found] = [str(each) for each in differences(to, members) if "second" not in each.name or "names" in name]
    assert told in found


def test_what_nobody_restores_is_not_compared(restored: tuple[Path, list[Member]]) -> None:
    to, members = restored
    labelled = next(member for member in members if member.name == "labelled")
    for name in ("security.selinux", "security.capability", "trusted.overlay.opaque"):
        labelled.recorded.xattrs[name] = b"another host's"  # type: ignore[index]
    assert list(differences(to, members)) == []


def test_whoever_an_access_list_lets_in_that_nobody_recorded_stays_outside(tmp_path: Path) -> None:
    """A server that a copy has taken over may have left one on the restored folder."""
    recorded = Recorded(MemberKind.FOLDER, mode=0o750, xattrs={LABEL: b"1"})
    for name in (ACCESS, DEFAULT):
        os.setxattr(tmp_path, name, ACCESS_LIST)
    opened(tmp_path, recorded)
    assert os.listxattr(tmp_path) == [LABEL]
    opened(tmp_path, replace(recorded, xattrs={ACCESS: ACCESS_LIST}))
    assert os.getxattr(tmp_path, ACCESS) == ACCESS_LIST


def test_a_name_that_leads_outside_is_not_looked_at(tmp_path: Path, restored: tuple[Path, list[Member]]) -> None:
    to, members = restored
    (tmp_path / "outside").mkdir()
    before = (tmp_path / "outside").stat().st_mtime_ns
    folder = next(member for member in members if member.name == "shop")
    [found] = differences(to, [Member("../outside", 0, 512, folder.recorded)])
    assert "leads outside" in str(found)
    assert (tmp_path / "outside").stat().st_mtime_ns == before
