"""What we write beside what others wrote, and what is judged before it is looked at."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.host.filesystem import make_folders, remove_tree, require_no_way_out, write_among_others, write_beside
from backupd.vocabulary.errors import CleanupIncomplete, UsageError, VerificationError
from tests.deep_folders import dig


@pytest.mark.parametrize("planted", ["symlink", "hard link", "link to nowhere", "FIFO", "file", "nothing"])
def test_our_file_is_a_new_one_whatever_has_its_name(tmp_path: Path, planted: str) -> None:
    (tmp_path / "copy").mkdir()
    victim, ours = tmp_path / "victim", tmp_path / "copy" / "replica.sql"
    victim.write_text("as it was")
    match planted:
        case "symlink":
            ours.symlink_to(victim)
        case "hard link":
            ours.hardlink_to(victim)
        case "link to nowhere":
            ours.symlink_to(tmp_path / "new")
        case "FIFO":
            os.mkfifo(ours)
        case "file":
            ours.write_text("longer than what we write")
    write_among_others(tmp_path / "copy", "replica.sql", "ours\n")
    assert victim.read_text() == "as it was"
    assert ours.read_text() == "ours\n"
    assert (ours.is_symlink(), ours.stat().st_nlink) == (False, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "victim"}


def test_what_cannot_be_replaced_is_told(tmp_path: Path) -> None:
    (tmp_path / "replica.sql").mkdir()
    with pytest.raises(UsageError, match=r"replica\.sql could not be written") as told:
        write_beside(tmp_path / "replica.sql", "ours", hint="the copy is whole")
    assert told.value.hint == "the copy is whole"


INSIDE: dict[str, tuple[str, str]] = {
    "beside it": ("a/link", "file"),
    "above it": ("a/b/link", "../file"),
    "the folder itself": ("a/b/link", "../.."),
    "nowhere": ("link", "a/gone"),
    "through another link": ("link", "a/link/file"),
    "dots": ("link", "./a/./b"),
}
OUTSIDE: dict[str, tuple[str, str]] = {
    "absolute": ("link", "/etc/passwd"),
    "absolute within": ("a/link", "/"),
    "one too far": ("a/b/link", "../../.."),
    "at once": ("link", ".."),
    "behind a dot": ("link", "./../x"),
    "later": ("a/link", "b/../../../x"),
    "later, and back": ("a/link", "b/../c"),  # through a link it could lead anywhere
}


def made(folder: Path, name: str, target: str) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / name).symlink_to(target)


@pytest.mark.parametrize("case", INSIDE.values(), ids=INSIDE)
def test_a_link_may_lead_to_what_is_in_the_folder(tmp_path: Path, case: tuple[str, str]) -> None:
    made(tmp_path, *case)
    require_no_way_out(tmp_path)


@pytest.mark.parametrize("case", OUTSIDE.values(), ids=OUTSIDE)
def test_a_link_that_leads_out_is_named(tmp_path: Path, case: tuple[str, str]) -> None:
    made(tmp_path, *case)
    with pytest.raises(VerificationError, match=f"'{case[0]}' leads out of it") as told:
        require_no_way_out(tmp_path)
    assert told.value.hint


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, 0o140600)], ids=["FIFO", "socket"])
def test_what_is_neither_file_nor_folder_nor_link_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "a").mkdir()
    make(tmp_path / "a" / "odd")
    with pytest.raises(VerificationError, match="'a/odd' is neither"):
        require_no_way_out(tmp_path)


def test_folders_are_made_where_they_are_missing_and_through_no_link(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    for _ in range(2):
        make_folders(("a", "b"), beneath=inside)
    assert (inside / "a" / "b").is_dir()
    for parts in (("link", "c"), ("..", "out", "c"), ("a", "..", "..", "out", "c")):
        with pytest.raises(OSError, match=r"Not a directory|leads out"):
            make_folders(parts, beneath=inside)
    assert not any(outside.iterdir())


def test_a_folder_goes_however_deep_it_is_and_no_link_in_it_is_followed(tmp_path: Path) -> None:
    folder, precious = tmp_path / "deep", tmp_path / "precious"
    folder.mkdir()
    precious.touch()
    dig(folder, link_to=tmp_path)
    remove_tree(folder)
    assert list(tmp_path.iterdir()) == [precious]


def test_what_cannot_be_removed_is_named() -> None:
    folder = Path(f"/proc/{os.getpid()}/ns")
    with pytest.raises(CleanupIncomplete, match=f"{folder} could not be removed") as told:
        remove_tree(folder)
    assert told.value.hint == f"rm -r {folder}"
