"""What a tar stream of ours may have, member by member: each refusal says what was wrong, all else is told in full."""

import tarfile
from collections.abc import Iterator

import pytest

from backupd.archive.index import Member, MemberKind, Recorded
from backupd.archive.members import Members, leads_outside
from backupd.vocabulary.errors import VerificationError
from tests.unit.test_archive_unpack import END, EVIL, HARD, LINK, extended, member, record, with_field, with_records

MIB = 1 << 20
OTHER_FORMAT, NO_NUMBER = "a header is of another format", "size is not a number"
DAMAGED, CUT_SHORT = "an extended header is damaged", "it ends in the middle of a member"
WHY = {
    "climbing name": "the name '../evil' leads outside or through a link",
    "climbing in the middle": "the name 'a/../../evil' leads outside or through a link",
    "absolute name": "the name '/tmp/evil' leads outside or through a link",
    "climbing name in an extended header": "the name '../evil' leads outside or through a link",
    "climbing sparse name": "'harmless' has an unknown sparse format",
    "name that ends early": "an extended header has a path with a NUL, where tar would end it",
    "absolute name in a header of GNU": OTHER_FORMAT,
    "absolute name in a header of Unix V7": OTHER_FORMAT,
    "link that ends early": "an extended header has a linkpath with a NUL, where tar would end it",
    "absolute link": "the link 'evil' leads outside: '/etc'",
    "climbing link": "the link 'evil' leads outside: '../etc'",
    "link that climbs later": "the link 'evil' leads outside: 'here/here/../../..'",
    "link in an extended header": f"the link 'evil' leads outside: '../{'x' * 200}'",
    "climbing hard link": "the hard link 'evil' leads outside: '../outside'",
    "absolute hard link": "the hard link 'evil' leads outside: '/etc/passwd'",
    "file through a link": "the name 'd/evil' leads outside or through a link",
    "file in a link's place": "the name 'd' leads outside or through a link",
    "device": "'evil' is neither a file, a folder nor a link",
    "pipe": "'evil' is neither a file, a folder nor a link",
    "long name of GNU": "'././@LongLink' is neither a file, a folder nor a link",
    "unknown kind": "'evil' is neither a file, a folder nor a link",
    "deleting extension": "an extended header has the unknown keyword 'GNU.dumpdir'",
    "folder with content": "'evil' cannot have 512 bytes",
    "binary size": "a header's size is not an octal number",
    "signed size": "a header's size is not an octal number",
    "blank size": "a header's size is not an octal number",
    "padded size": "a header's size is not an octal number",
    "size in two words": "a header is damaged (invalid header)",
    "size with a line in it": "a header's size is not an octal number",
    "binary owner": "a header's uid is not an octal number",
    "signed size in an extended header": NO_NUMBER,
    "padded size in an extended header": NO_NUMBER,
    "negative size in an extended header": NO_NUMBER,
    "size of other digits": NO_NUMBER,
    "size beyond all files": f"size is {'9' * 19}",
    "owner who is nobody": "uid is 4294967295",
    "size twice": "an extended header has size twice",
    "path twice": "an extended header has path twice",
    "record whose length is padded": DAMAGED,
    "two extended headers": "an extended header is followed by another",
    "extended header of nothing": "an extended header is followed by nothing",
    "holes of another version": "'harmless' has holes of another version",
    "holes without a size": "'harmless' has an unknown sparse format",
    "a thousand folders": f"'{'a/' * 40}'… is 1000 folders deep",
    "our own marker": "the name '.backupd-incomplete' is one of backupd's own",
    "our marker's link": "the name './.backupd-incomplete.new' is one of backupd's own",
    "file in the folder's own place": "'.' ends in / and is not a folder",
    "link in the folder's own place": "'./' ends in / and is not a folder",
    "damaged header": "a header is damaged (bad checksum)",
    "header cut short": CUT_SHORT,
    "content cut short": CUT_SHORT,
    "no end": CUT_SHORT,
    "something after the end": "something follows its end",
}
FURTHER = {
    "negative mode": (with_field(slice(100, 108), b"-000644\0"), "a header's mode is not an octal number"),
    "binary group": (with_field(slice(116, 124), b"\x80" + bytes(7)), "a header's gid is not an octal number"),
    "binary time": (with_field(slice(136, 148), b"\x80" + bytes(11)), "a header's mtime is not an octal number"),
    "group that is nobody": (with_records(record("gid", str(2**32 - 1))), "gid is 4294967295"),
    "no time": (with_records(record("mtime", "now")), "a time is not a number"),
    "record without a value": (with_records(b"9 mtime1\n"), DAMAGED),
    "record without a line's end": (with_records(b"10 path=ab"), DAMAGED),
    "record longer than its header": (with_records(b"99 path=ab\n"), DAMAGED),
    "extended header of a byte": (with_records(b"1"), DAMAGED),
    "file whose name ends as a folder's": (
        with_records(record("path", "evil/")),
        "'evil/' ends in / and is not a folder",
    ),
    "empty extended header": (with_records(), "an extended header has 0 bytes"),
    "huge extended header": (with_records(record("path", "a") * (1 << 17)), "an extended header has 1179648 bytes"),
    "holes of no file": (
        with_records(record("GNU.sparse.major", "1"))[:1024] + member("d", tarfile.DIRTYPE),
        "'d' has an unknown sparse format",
    ),
    "holes of a later version": (
        extended(GNU__sparse__name="a", GNU__sparse__major="2", GNU__sparse__minor="0", GNU__sparse__realsize="5"),
        "'harmless' has holes of another version",
    ),
    "holes in a size that is none": (
        extended(GNU__sparse__name="a", GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="-5"),
        "GNU.sparse.realsize is not a number",
    ),
    "folder in a link's place": (member("d", LINK, "shop") + member("d", tarfile.DIRTYPE), "the name 'd' leads"),
    "one folder too deep": (member("a/" * 200 + "f"), f"'{'a/' * 40}'… is 200 folders deep"),
    "our own folder": (member(".backupd-incomplete/f"), "the name '.backupd-incomplete/f' is one of backupd's own"),
}
FINE = {
    "a file as deep as may be": member("a/" * 199 + "f"),
    "a folder as deep as may be": member("a/" * 199 + "f", tarfile.DIRTYPE),
    "the last owner": with_records(record("uid", str(2**32 - 2)), record("gid", str(2**32 - 2))),
    "the largest extended header": with_records(b"%d SCHILY.xattr.user.a=" % MIB + b"x" * (MIB - 29) + b"\n"),
    "a marker's name further down": member("a/.backupd-incomplete"),
    "a link as high as the folder": member("a/b/link", LINK, "../../top"),
    "a link to itself": member("link", LINK, "."),
    "a hard link to a neighbour": member("a/hard", HARD, "a/file"),
    "the folder itself": member("./", tarfile.DIRTYPE),
    "a folder": member("d/", tarfile.DIRTYPE),
}


def judged(plain: bytes, at_a_time: int) -> list[Member]:
    """What is told of the stream, which comes in blocks of so many bytes and passes unchanged."""
    told: list[Member] = []
    members = Members("data-1.tar.zst", told=told.append)
    blocks = (plain[begin : begin + at_a_time] for begin in range(0, len(plain), at_a_time))
    assert b"".join(piece for block in blocks for piece in members.take(block)) == plain
    assert list(members.end()) == []
    assert members.files == sum(one.recorded.kind is not MemberKind.FOLDER for one in told)
    return told


def whole(evil: bytes) -> bytes:
    """With an end, where it is not of that that the end is wrong."""
    return evil if evil[-512:] == bytes(512) or len(evil) % 512 or b"fine" in evil else evil + END


def evils() -> Iterator[tuple[str, bytes, str]]:
    yield from ((name, whole(evil), WHY[name]) for name, evil in EVIL.items())
    yield from ((name, evil + END, why) for name, (evil, why) in FURTHER.items())


@pytest.mark.parametrize(("evil", "why"), [case[1:] for case in evils()], ids=[case[0] for case in evils()])
def test_what_backupd_never_wrote_is_refused_for_what_is_wrong_with_it(evil: bytes, why: str) -> None:
    for at_a_time in (len(evil), 1000):
        with pytest.raises(VerificationError) as refused:
            judged(evil, at_a_time)
        assert refused.value.message.startswith(f"data-1.tar.zst was not written by backupd: {why}")
        assert refused.value.hint == "it was damaged or changed on the target; restore another backup"


def test_every_refusal_is_of_something_in_the_corpus() -> None:
    assert WHY.keys() == EVIL.keys()


@pytest.mark.parametrize("plain", FINE.values(), ids=FINE.keys())
def test_what_is_at_the_limit_passes(plain: bytes) -> None:
    assert judged(plain + END, 512)


@pytest.mark.parametrize("at_a_time", [7, 512, 513, 1 << 20])
def test_each_member_is_told_with_its_place_and_all_that_a_header_says(at_a_time: int) -> None:
    info = tarfile.TarInfo("shop/a.ibd")
    info.size, info.mode, info.uid, info.gid = 700, 0o100640, 7, 8
    info.pax_headers = {
        "mtime": "1700000000.123456789",
        "uid": "3000000",
        "gid": "4000000",
        "SCHILY.xattr.user.a%3Db%25": "v=w",
        "SCHILY.acl.access": "u::rw",
        "atime": "1",
    }
    file = info.tobuf(tarfile.PAX_FORMAT)
    info = tarfile.TarInfo("alias")
    info.type, info.linkname, info.mtime, info.mode = LINK, "shop/" + "x" * 150, 5, 0o777
    link = info.tobuf(tarfile.PAX_FORMAT)
    folder, hard = member("shop", tarfile.DIRTYPE), member("hard", HARD, "shop/a.ibd")
    plain = folder + file + b"x" * 700 + bytes(324) + link + hard + END
    told = judged(plain, at_a_time)
    places = [0, len(folder), len(folder + file) + 1024, len(folder + file + link) + 1024]
    sizes = [len(folder), len(file) + 1024, len(link), len(hard)]
    assert [(one.name, one.offset, one.size) for one in told] == list(
        zip(["shop", "shop/a.ibd", "alias", "hard"], places, sizes, strict=True)
    )
    assert [one.recorded for one in told] == [
        Recorded(MemberKind.FOLDER, mode=0o644),
        Recorded(
            MemberKind.FILE, 700, 0o640, 3_000_000, 4_000_000, 1_700_000_000_123_456_789, xattrs={"user.a=b%": b"v=w"}
        ),
        Recorded(MemberKind.SYMLINK, mode=0o777, mtime_ns=5 * 10**9, target="shop/" + "x" * 150),
        Recorded(MemberKind.HARD_LINK, mode=0o644, target="shop/a.ibd"),
    ]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("-1.5", -1_500_000_000), ("7", 7_000_000_000), ("7.1234567899", 7_123_456_789), ("0.000000001", 1)],
)
def test_a_time_is_told_to_the_nanosecond_before_1970_too(text: str, nanoseconds: int) -> None:
    (told,) = judged(with_records(record("mtime", text)) + END, 512)
    assert told.recorded.mtime_ns == nanoseconds


def test_a_file_with_holes_has_its_own_name_and_its_whole_size() -> None:
    info = tarfile.TarInfo("GNUSparseFile.0/sparse")
    info.size, info.pax_headers = (
        512,
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s", "GNU.sparse.realsize": "99999"},
    )
    (told,) = judged(info.tobuf(tarfile.PAX_FORMAT) + b"0\n".ljust(512, b"\0") + END, 512)
    assert (told.name, told.recorded.size) == ("s", 99999)


def test_a_file_links_to_nothing_whatever_its_header_says() -> None:
    info = tarfile.TarInfo("a")
    info.linkname = "ghost"
    (told,) = judged(info.tobuf(tarfile.PAX_FORMAT) + END, 512)
    assert told.recorded.target == ""


def test_bytes_that_are_no_text_are_kept_in_names_and_values() -> None:
    (told,) = judged(with_field(slice(0, 100), b"\xff\xfe".ljust(100, b"\0")) + END, 512)
    assert told.name == "\udcff\udcfe"
    named = with_records(b"11 path=\xff\xfe\n", b"30 SCHILY.xattr.user.a=\x00\xff\xfeabc\n")
    (told,) = judged(named + END, 512)
    assert told.name == "\udcff\udcfe"
    assert told.recorded.xattrs == {"user.a": b"\x00\xff\xfeabc"}


@pytest.mark.parametrize(
    ("name", "link", "outside"),
    [
        ("a/b", None, False),
        ("..", None, True),
        ("a/../b", None, True),
        ("/a", None, True),
        ("a", "b", False),
        ("a", "..", True),
        ("a/b", "..", False),
        ("a/b", "../..", True),
        ("a/b/c", "../../d", False),
        ("a/b", "c/..", True),
        ("a/b", "../c/../d", True),
        ("a", "/b", True),
        ("../a", "b", True),
    ],
)
def test_a_name_stays_in_the_folder_and_a_link_climbs_at_its_beginning_only(
    name: str, link: str | None, outside: bool
) -> None:
    assert leads_outside(name, link) is outside
