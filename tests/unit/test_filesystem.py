"""What we write beside what others wrote, and what is judged before it is looked at."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backupd.host.filesystem import (
    identity,
    make_folders,
    open_if_plain,
    read_plain,
    read_plain_or_linked,
    remove_tree,
    require_no_way_out,
    write_among_others,
    write_beside,
)
from backupd.vocabulary.errors import CleanupIncomplete, UsageError, VerificationError
from backupd.vocabulary.volumes import FileIdentity
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


def test_what_is_neither_file_nor_folder_is_not_opened_to_be_known(tmp_path: Path) -> None:
    """A socket cannot be opened at all; of some devices that is an act already, and whoever plants a link chooses."""
    os.mknod(tmp_path / "s", 0o140600)
    (tmp_path / "link").symlink_to("s")
    (tmp_path / "folder").mkdir()
    assert identity(tmp_path / "link") == FileIdentity((tmp_path / "s").stat().st_ino, None)
    assert identity(tmp_path / "folder").inode == (tmp_path / "folder").stat().st_ino
    with pytest.raises(FileNotFoundError):
        identity(tmp_path / "nothing")


@pytest.mark.parametrize("plant", [lambda _path: None, os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_file_is_told_with_its_folders(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    (tmp_path / "shop").mkdir()
    plant(tmp_path / "shop" / "t.isl")
    with pytest.raises(OSError, match=r"t\.isl") as caught:
        read_plain(tmp_path / "shop" / "t.isl", beneath=tmp_path, at_most=10)
    assert caught.value.filename == str(tmp_path / "shop" / "t.isl")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("leads_to", ["/etc/passwd", "/dev/zero", "/", "..", "link", "fifo", "nothing"])
def test_by_a_link_only_a_file_of_the_folder_s_owner_is_read(tmp_path: Path, leads_to: str) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, -1)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(leads_to)
    with pytest.raises(OSError, match=r"\[Errno"):
        read_plain_or_linked(tmp_path / "link", at_most=1 << 20)


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


def test_no_file_goes_for_one_that_is_not_there_where_proc_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("some")
    monkeypatch.setattr("backupd.host.filesystem._OPENED", tmp_path / "proc/self/fd")
    with pytest.raises(OSError, match="/proc is not mounted") as told:
        read_plain(tmp_path / "file", beneath=tmp_path, at_most=4)
    assert (told.value.errno, told.value.filename) == (errno.ENOSYS, str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "gone", beneath=tmp_path, at_most=4)


def failing(patch: pytest.MonkeyPatch, number: int, *, times: int, then: Callable[[], object]) -> None:
    """What was looked at cannot be opened so often; `then` happens."""
    open_it, left = os.open, [number] * times

    def opened(path: Any, *how: Any, **where: Any) -> int:
        if left and str(path).startswith("/proc/self/fd/"):
            then()
            raise OSError(left.pop(), "it failed", str(path))
        return open_it(path, *how, **where)

    patch.setattr("os.open", opened)


def test_a_file_that_was_replaced_on_its_server_is_looked_at_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client has the old one in its cache, and hears of that only as it opens it."""
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_text("old")
    new.write_text("new")
    failing(monkeypatch, errno.ESTALE, times=1, then=lambda: new.rename(file))
    assert read_plain(file, beneath=tmp_path, at_most=4) == b"new"


def test_a_file_that_goes_as_it_is_opened_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE says so: it asks its server by the name."""
    (tmp_path / "file").write_text("some")
    failing(monkeypatch, errno.ENOENT, times=1, then=(tmp_path / "file").unlink)
    with pytest.raises(FileNotFoundError):
        open_if_plain(tmp_path / "file")


@pytest.mark.parametrize(("number", "times"), [(errno.ESTALE, 2), (errno.EACCES, 1)])
def test_any_other_failure_is_told_at_once_with_the_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, times: int
) -> None:
    (tmp_path / "file").write_text("some")
    failing(monkeypatch, number, times=times, then=lambda: None)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="it failed") as told:
        open_if_plain(tmp_path / "file")
    assert (told.value.errno, told.value.filename) == (number, str(tmp_path / "file"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
