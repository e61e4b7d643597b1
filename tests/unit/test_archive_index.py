"""The index of a backup's members: what is read is what was written, and anything else is refused with a sentence."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.archive.index import LARGEST_ID, Index, Member, MemberKind, MemberLines, Recorded, written
from backupd.archive.ondisk import differences
from backupd.vocabulary.errors import Unreadable
from tests.share import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.just("\udcff"), min_size=1)
RECORDED = st.builds(
    Recorded,
    st.sampled_from(MemberKind),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, LARGEST_ID),
    gid=st.integers(0, LARGEST_ID),
    mtime_ns=st.integers(1 - 10**27, 10**27 - 1),
    target=st.just("") | NAMES,
    xattrs=st.dictionaries(NAMES, st.binary(), max_size=2),
)
MEMBERS = st.builds(Member, NAMES, st.integers(0, 1 << 50), st.integers(1, 1 << 50), RECORDED)
FIRST = b'{"index":{"major":1,"minor":0}}\n'
LINE = {"name": "a", "offset": 0, "bytes": 512, "kind": "file", "mode": "0644", "uid": 0, "gid": 0, "mtime_ns": 0}


def kept(members: list[Member]) -> MemberLines:
    lines = MemberLines()
    for member in members:
        lines.add(member)
    lines.finish()
    return lines


def read(content: bytes) -> list[tuple[str, Member]]:
    return list(Index(zstd.compress(content)).members())


@given(st.dictionaries(st.text(max_size=20), st.lists(MEMBERS, max_size=4), max_size=3))
@settings(max_examples=examples(30))
def test_index_is_read_as_it_was_written(objects: dict[str, list[Member]]) -> None:
    content = b"".join(written({name: kept(members) for name, members in objects.items()}))
    assert read(content) == [(name, member) for name, members in objects.items() for member in members]


def test_an_index_of_several_frames_is_one() -> None:
    members = [Member(f"shop/{i}.ibd", i << 20, 1 << 20, Recorded(MemberKind.FILE, mode=0o640)) for i in range(200)]
    content = b"".join(written({"data-1.tar.zst": kept(members)}))
    frames = b"".join(zstd.compress(content[at : at + 5000]) for at in range(0, len(content), 5000))
    assert [member for _, member in Index(frames).members()] == members


def test_what_a_later_backupd_adds_is_passed_over() -> None:
    lines = [
        {"index": {"major": 1, "minor": 7, "more": []}},
        {"object": "data-1.tar.zst", "more": 1},
        {"more": {}},
        {**LINE, "kind": "door", "more": [1]},
    ]
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert read(content) == [("data-1.tar.zst", Member("a", 0, 512, Recorded(None, mode=0o644)))]


def test_an_index_of_another_major_version_is_not_called_damaged() -> None:
    with pytest.raises(Unreadable, match="has the format 2"):
        read(FIRST.replace(b"1", b"2"))


def line(**other: object) -> bytes:
    return FIRST + json.dumps({**LINE, **other}).encode() + b"\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\n",
        b"[]\n",
        b"{}\n",
        b'{"index":1}\n',
        FIRST + b"{}",
        FIRST + b"[1]\n",
        FIRST + b"[" * 100_000 + b"\n",
        FIRST + b'{"object":1}\n',
        FIRST + b'{"name":"a"}\n',
        line(name=""),
        line(name=1),
        line(name="a\0b"),
        line(kind="symlink", target="a\0b"),
        line(offset=-1),
        line(bytes=0),
        line(bytes=True),
        line(bytes=1.5),
        line(kind=1),
        line(mode="rwx"),
        line(mode=420),
        line(uid="0"),
        line(mtime_ns=1.5),
        line(xattrs=[]),
        line(xattrs={"user.a": 1}),
        line(xattrs={"user.a": "!"}),
        line(name="\ud800"),
        line(kind="hardlink", target="\ud800"),
        line(kind="symlink", target="a\udfff"),
        line(xattrs={"user.\ud800": ""}),
        line(xattrs={"user.a\0b": ""}),
        line(uid=-1),
        line(uid=(1 << 32) - 1),
        line(gid=1 << 40),
        line(mode="-1"),
        line(mode="10000"),
        line(size=-1),
        line(size=1 << 63),
        line(offset=1 << 63),
        line(bytes=1 << 63),
        line(kind="folder", mtime_ns=10**27),
        line(kind="folder", mtime_ns=-(10**27)),
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(Unreadable, match="the index of the members cannot be parsed") as refused:
        read(content)
    assert refused.value.hint


def test_the_last_moment_that_an_index_may_tell_can_be_a_folder_s(tmp_path: Path) -> None:
    for moment in (10**27 - 1, 1 - 10**27):
        ((_, member),) = read(line(name=tmp_path.name, kind="folder", mode="0755", mtime_ns=moment))
        list(differences(tmp_path.parent, [member]))  # what the file system makes of it is its own
