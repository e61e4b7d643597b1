"""Whatever archives say, alone or together: with GNU tar and this kernel nothing is written outside of the folder."""

import tarfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from backupd.archive.governor import Unhindered
from backupd.archive.members import Members
from backupd.archive.unpack import Unpacking, UnpackOptions
from backupd.host.filesystem import require_no_way_out
from backupd.vocabulary.errors import BackupdError, UsageError, VerificationError
from tests.unit.test_archive_unpack import END, HARD, LINK, chunks, member, sealed


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Three folders below what must not be changed."""
    into = tmp_path / "outside" / "a" / "b" / "into"
    into.mkdir(parents=True)
    (tmp_path / "outside" / "file").write_text("as it was")
    return into


def outside(into: Path) -> dict[str, str]:
    """What is there beside the way to the folder, and what it holds."""
    above = into.parents[2]
    files = (path for path in above.rglob("*") if path.is_file() and not path.is_relative_to(into))
    return {str(path.relative_to(above)): path.read_text() for path in files}


AS_IT_WAS = {"file": "as it was"}


def unpacked(into: Path, *members: bytes, files: int | None = None, confined: bool = True) -> None:
    content, told = sealed(b"".join(members) + END, files=len(members) if files is None else files)

    def reading(_offset: int, _size: int | None):  # type: ignore[no-untyped-def]
        return nullcontext(iter(chunks(content)))

    Unpacking(told, into, options=UnpackOptions(Unhindered(), confined=confined)).run(reading)


def evil(above: Path) -> dict[str, tuple[bytes, ...]]:
    return {
        "climbing name": (member("../../../evil", content=b"x"),),
        "climbing to a file": (member("../../../file", content=b"x"),),
        "through an absolute link": (member("d", LINK, str(above)), member("d/evil", content=b"x")),
        "through a climbing link": (member("d", LINK, "../../.."), member("d/file", content=b"x")),
        "through a second name of a link": (
            member("d", LINK, "../../.."),
            member("e", HARD, "d"),
            member("e/evil", content=b"x"),
        ),
        "a link outside": (member("../../../evil", LINK, "/etc/passwd"),),
        "a hard link outside": (member("../../../evil", HARD, "../../../file"),),
    }


@pytest.mark.parametrize("name", evil(Path()))
@pytest.mark.parametrize("confined", [True, False])
def test_the_kernel_holds_where_our_judgement_would_fail(
    into: Path, monkeypatch: pytest.MonkeyPatch, name: str, confined: bool
) -> None:
    """And without it, all of that is written: the archives are what they should be."""
    monkeypatch.setattr(Members, "_judge", lambda *_: None)
    try:
        unpacked(into, *evil(into.parents[2])[name], files=0, confined=confined)
    except BackupdError:
        assert confined
    else:
        assert not confined
    assert (outside(into) == AS_IT_WAS) is confined or (into.parents[2] / "evil").is_symlink() is not confined


def test_links_of_one_archive_and_names_of_another_lead_nowhere(into: Path) -> None:
    """Each is harmless by itself."""
    folders = [member(name, tarfile.DIRTYPE) for name in ("a", "a/b")]
    unpacked(into, *folders, member("a/b/d", LINK, "../.."), files=1)
    unpacked(into, member("a/b/d/e", LINK, "../../.."))
    assert (into / "e").readlink() == Path("../../..")
    with pytest.raises(UsageError, match="could not be unpacked"):
        unpacked(into, member("e/evil", content=b"x"))
    with pytest.raises(UsageError, match="could not be unpacked"):
        unpacked(into, member("e/file", content=b"x"))
    assert outside(into) == AS_IT_WAS
    with pytest.raises(VerificationError, match="'e' leads out of it"):
        require_no_way_out(into)


def test_a_links_second_name_is_judged_where_it_stands(into: Path) -> None:
    unpacked(
        into, member("a", tarfile.DIRTYPE), member("a/link", LINK, "../file"), member("second", HARD, "a/link"), files=2
    )
    assert (into / "second").is_symlink()
    with pytest.raises(UsageError, match="could not be unpacked"):
        unpacked(into, member("second/evil", content=b"x"))
    with pytest.raises(VerificationError, match="'second' leads out of it") as refused:
        (into / "a" / "link").unlink()
        require_no_way_out(into)
    assert refused.value.hint
    assert outside(into) == AS_IT_WAS
