"""Which parts of a backup's objects single tables want, by an index that may be of another backup."""

import sys
from collections.abc import Mapping, Sequence

import pytest

from backupd.archive.index import Index, Member, MemberKind, MemberLines, Recorded, written
from backupd.mysql.tablefiles import tables_in
from backupd.operations.restore.wanted_objects import WantedPart, parts_with
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.storage import Manifest
from tests.story.stored import manifest, stored

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FIRST, SECOND = "data-1.tar.zst", "data-2.tar.zst"
SIZE = 8192  # of each object
FILE = Recorded(MemberKind.FILE, mode=0o640, uid=0, gid=0, mtime_ns=0, target="", xattrs={})


def backup() -> Manifest:
    return manifest([stored(name, bytes(SIZE), 2)[1] for name in (FIRST, SECOND)])


def listed(objects: Mapping[str, Sequence[tuple[str, int, int]]]) -> Index:
    """Each member with where it begins and how long it is."""
    lines = {}
    for name, members in objects.items():
        lines[name] = MemberLines()
        for member, begin, size in members:
            lines[name].add(Member(member, begin, size, FILE))
        lines[name].finish()
    return Index(zstd.compress(b"".join(written(lines))))


def wanted(objects: Mapping[str, Sequence[tuple[str, int, int]]]) -> tuple[WantedPart, ...]:
    return parts_with(tables_in("shop.small"), listed(objects), backup())


SMALL = ("shop/small.ibd", 1024, 512)


def test_what_follows_one_another_is_fetched_at_once_and_an_object_of_other_tables_is_not() -> None:
    (part,) = wanted({FIRST: [("ibdata1", 0, 1024), SMALL, ("shop/zoo.ibd", 1536, 512)], SECOND: [("b/z.ibd", 0, 512)]})
    assert (part.stored.name, part.wanted, part.size) == (FIRST, ((0, 1536),), 1536)


def test_of_an_object_that_the_index_does_not_know_all_is_fetched() -> None:
    first, second = wanted({FIRST: [SMALL]})
    assert (first.wanted, second.wanted, second.size) == (((1024, 1536),), None, SIZE)


@pytest.mark.parametrize(
    "members",
    [[("ibdata1", 0, 1025), SMALL], [SMALL, ("undo001", 0, 512)], [SMALL, ("undo001", 1536, SIZE)]],
    ids=["overlapping", "backwards", "beyond the end"],
)
def test_an_index_that_does_not_fit_the_objects_is_damaged(members: Sequence[tuple[str, int, int]]) -> None:
    with pytest.raises(VerificationError, match=f"the index does not match {FIRST}") as told:
        wanted({FIRST: members, SECOND: []})
    assert told.value.hint
