"""How far tar has come: never further than it certainly is, and with all that is needed to go on from there."""

import tarfile

import pytest

from backupd.archive.unpack_progress import BEHIND_BYTES, Cutter, Folder, TrackedMembers, UnpackProgress
from backupd.vocabulary.errors import VerificationError
from tests.unit.test_archive_unpack import END, LINK, member, record, with_records

FOLDER, NESTED = member("shop", tarfile.DIRTYPE), member("shop/deep", tarfile.DIRTYPE)
FILE, LINKED = member("shop/deep/a", content=b"x" * 700), member("shop/link", LINK, "deep")
LAST = member("top", content=b"x")
PLAIN = FOLDER + NESTED + FILE + LINKED + LAST + END
NOTHING = UnpackProgress()


class Tar:
    """What is given to it is `given`; so much of it has it `fed`, once told."""

    def __init__(
        self, begun: UnpackProgress = NOTHING, ranges: tuple[tuple[int, int], ...] = ((0, len(PLAIN)),)
    ) -> None:
        self.fed = 0
        self.given = b""
        self.needed: list[str] = []
        self.members = TrackedMembers(
            "data-1",
            begun=begun,
            ranges=ranges,
            fed=lambda: self.fed,
            need=lambda folder: self.needed.append(str(folder)),
        )

    def give(self, plain: bytes) -> None:
        for begin in range(0, len(plain), 512):
            self.given += b"".join(self.members.take(plain[begin : begin + 512]))

    def has(self, given: int) -> UnpackProgress:
        """The progress once tar has certainly done with so many bytes of what it was given."""
        self.fed = given + BEHIND_BYTES
        return self.members.progress


def test_it_is_never_further_than_tar_certainly_is() -> None:
    tar = Tar()
    tar.give(PLAIN)
    assert tar.has(-1) == UnpackProgress()
    headers = [len(FOLDER), len(FOLDER + NESTED), len(FOLDER + NESTED + FILE), len(FOLDER + NESTED + FILE + LINKED)]
    assert [tar.has(at).offset for at in headers] == headers
    tar = Tar()
    tar.give(PLAIN)
    assert tar.has(headers[2] - 1).offset == headers[1]
    assert len(tar.given) == len(PLAIN)


def test_it_tells_what_has_to_be_known_to_go_on() -> None:
    tar = Tar()
    tar.give(PLAIN)
    within = tar.has(len(FOLDER + NESTED))
    shop, deep = (Folder(name, tar.given[begin : begin + 512]) for name, begin in (("shop", 0), ("shop/deep", 512)))
    assert within == UnpackProgress(len(FOLDER + NESTED), 0, (), (shop, deep))
    assert tar.has(len(FOLDER + NESTED + FILE)) == UnpackProgress(len(FOLDER + NESTED + FILE), 1, (), (shop,))
    last = tar.has(len(FOLDER + NESTED + FILE + LINKED))
    assert last == UnpackProgress(len(FOLDER + NESTED + FILE + LINKED), 2, ("shop/link",), ())


def test_the_folder_of_a_member_is_asked_for_once_and_the_restored_one_never() -> None:
    tar = Tar()
    tar.give(PLAIN)
    assert tar.needed == ["shop", "shop/deep", "shop"]
    tar = Tar()
    tar.give(member("top") + member("a/1") + member("a/2") + member("top2") + member("a/3") + member("b/1"))
    assert tar.needed == ["a", "b"]


def test_who_goes_on_counts_what_was_there_and_goes_through_no_link_of_before() -> None:
    begun = UnpackProgress(5000, 7, ("old",), ())
    tar = Tar(begun, ranges=((5000, 5000 + len(LAST)), (9000, 9000 + len(LAST))))
    assert tar.has(0) == begun
    tar.give(LAST)
    tar.give(member("new", LINK, "top"))
    assert tar.has(len(LAST)) == UnpackProgress(9000, 8, ("old",), ())
    assert tar.members.files == 9
    with pytest.raises(VerificationError, match=r"^data-1 was not written by backupd: the name 'old/x' leads outside"):
        tar.give(member("old/x"))


def test_each_member_lies_in_its_own_range_of_the_tar_stream() -> None:
    one = member("a")
    size = len(one)
    begins = [5000, 5000 + size, 7000, 9000, 9000 + size]
    tar = Tar(ranges=((5000, 5000 + 2 * size), (7000, 7000 + size), (9000, 9000 + 2 * size)))
    tar.give(one * len(begins))
    assert [tar.has(at * size).offset for at in range(len(begins))] == begins


def test_half_a_header_is_kept_back_until_the_rest_of_it_was_judged() -> None:
    members = Tar().members
    assert [len(piece) for piece in members.take(FOLDER[:300])] == [0]
    assert [len(piece) for piece in members.take(FOLDER[300:] + NESTED)] == [len(FOLDER + NESTED)]


def test_of_a_stranger_s_extended_header_nothing_is_passed_on() -> None:
    tar = Tar()
    tar.give(with_records(record("path", "named"), record("SCHILY.fflags", "x")) + END)
    assert len(tar.given) == 512 + len(END)
    assert tar.given.startswith(b"named\0")
    assert tar.given.endswith(END)


def test_a_file_with_holes_is_told_as_one() -> None:
    tar = Tar()
    holes = {"major": "1", "minor": "0", "name": "s", "realsize": "99999"}
    told = with_records(*(record(f"GNU.sparse.{key}", value) for key, value in holes.items()))
    tar.give(told[:-512] + member("GNUSparseFile.0/s", content=b"0\n".ljust(512, b"\0")) + END)
    assert b"GNU.sparse.realsize=99999\n" in tar.given
    tar = Tar()
    tar.give(FILE)
    assert b"GNU.sparse" not in tar.given


def pieces(cuts: list[tuple[int, int]], plain: bytes, at_a_time: int) -> bytes:
    cutter = Cutter(cuts, ends_itself=True)
    blocks = [plain[begin : begin + at_a_time] for begin in range(0, len(plain), at_a_time)]
    found = b"".join(piece for block in blocks for piece in cutter.take(block))
    return found + b"".join(cutter.end())


@pytest.mark.parametrize("at_a_time", [1, 3, 10, 26])
@pytest.mark.parametrize(
    ("cuts", "left"),
    [
        ([(0, 26)], "abcdefghijklmnopqrstuvwxyz"),
        ([(3, 5)], "de"),
        ([(0, 3), (3, 6), (10, 11), (25, 26)], "abcdefkz"),
        ([], ""),
    ],
)
def test_only_what_is_in_a_cut_passes_however_it_comes(cuts: list[tuple[int, int]], left: str, at_a_time: int) -> None:
    assert pieces(cuts, b"abcdefghijklmnopqrstuvwxyz", at_a_time) == left.encode()


@pytest.mark.parametrize(("ends_itself", "end"), [(True, b""), (False, bytes(1024))])
def test_what_was_cut_off_is_ended_as_an_archive(ends_itself: bool, end: bytes) -> None:
    assert b"".join(Cutter([(0, 1)], ends_itself=ends_itself).end()) == end
