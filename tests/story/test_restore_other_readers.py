"""Copies of one run that are for different readers: what one has lost another gives, with frames and key of its own."""

from pathlib import Path

import pytest

from backupd.archive.encryption import Identities, read_identities
from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource, targets_read
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import NoKey, TargetError, VerificationError
from tests.fakes.target import BELIEVED, MACHINE
from tests.story.stored import JOB, RUN, Stream, content, files_in, put, unpacked
from tests.story.test_restore_resumed import Failing, recorded

MIB = 1 << 20
STREAMS: dict[str, Stream] = {
    "data-1.tar.zst": [("./", b""), *((f"t{i}.ibd", content(f"t{i}", MIB)) for i in range(16))],
    "data-2.tar.zst": [("./", b""), ("u.ibd", content("u", MIB))],
}


class Readers:
    """Two people, each with a key, and a host that has both."""

    def __init__(self, folder: Path) -> None:
        import pyrage

        keys = [str(pyrage.x25519.Identity.generate()) for _ in range(2)]
        self.one, self.other, self.both = (
            self._file(folder / name, lines) for name, lines in (("one", keys[:1]), ("other", keys[1:]), ("both", keys))
        )

    def _file(self, path: Path, lines: list[str]) -> Identities:
        path.touch(mode=0o600)
        path.write_text("\n".join(lines))
        return read_identities(path)


@pytest.fixture
def readers(tmp_path: Path) -> Readers:
    return Readers(tmp_path)


def copy_in(folder: Path, readers: Identities | None) -> Path:
    folder.mkdir()
    put(
        DirectoryTarget(folder.name, folder, machine=MACHINE),
        STREAMS,
        recipients=() if readers is None else readers.recipients,
    )
    return folder


def source(folder: Path, *, gives: int | None = None) -> BackupSource:
    return BackupSource(Failing(folder, gives=gives), JOB, RUN, BELIEVED)


def damage(folder: Path, name: str) -> None:
    file = folder / MACHINE / JOB / RUN / name
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)


def whole(to: Path) -> bool:
    return files_in(to) == unpacked(STREAMS)


@pytest.mark.parametrize("second", ["encrypted", "plain"])
def test_what_one_has_lost_the_other_gives(tmp_path: Path, readers: Readers, second: str) -> None:
    first = copy_in(tmp_path / "a", readers.one)
    other = copy_in(tmp_path / "b", readers.other if second == "encrypted" else None)
    damage(first, "data-1.tar.zst.age")
    damage(other, "data-2.tar.zst.age" if second == "encrypted" else "data-2.tar.zst")
    copies = [source(first), source(other), source(copy_in(tmp_path / "c", readers.one))]
    restore(copies, to=tmp_path / "out", identities=readers.both)
    assert whole(tmp_path / "out")
    assert targets_read(copies) == ["a", "b"]


def test_a_copy_that_the_key_does_not_open_is_passed_over(tmp_path: Path, readers: Readers) -> None:
    copies = [source(copy_in(tmp_path / "a", readers.one)), source(copy_in(tmp_path / "b", readers.other))]
    restore(copies, to=tmp_path / "out", identities=readers.other)
    assert whole(tmp_path / "out")
    assert targets_read(copies) == ["b"]


def test_one_that_could_help_and_is_for_others_is_told(tmp_path: Path, readers: Readers) -> None:
    first, other = copy_in(tmp_path / "a", readers.one), copy_in(tmp_path / "b", readers.other)
    damage(first, "data-1.tar.zst.age")
    with pytest.raises(VerificationError, match=r"data-1\.tar\.zst\.age, frame") as refused:
        restore([source(first), source(other)], to=tmp_path / "out", identities=readers.one)
    assert any("none of the identities" in note for note in refused.value.__notes__)
    assert not (tmp_path / "out").exists()


def test_without_a_key_a_plain_copy_is_taken_and_else_none(tmp_path: Path, readers: Readers) -> None:
    first, other = copy_in(tmp_path / "a", readers.one), copy_in(tmp_path / "b", readers.other)
    with pytest.raises(NoKey, match="run r1 is encrypted for"):
        restore([source(first), source(other)], to=tmp_path / "out")
    restore([source(first), source(copy_in(tmp_path / "c", None))], to=tmp_path / "out")
    assert whole(tmp_path / "out")


def test_what_was_begun_with_one_goes_on_with_the_other(tmp_path: Path, readers: Readers) -> None:
    first, other = copy_in(tmp_path / "a", readers.one), copy_in(tmp_path / "b", readers.other)
    out, size = tmp_path / "out", (first / MACHINE / JOB / RUN / "data-1.tar.zst.age").stat().st_size
    with pytest.raises(TargetError, match="the line is dead"):
        restore([source(first, gives=size * 7 // 8)], to=out, identities=readers.both)
    assert recorded(out, "data-1.tar.zst") > 0
    restore([source(other)], to=out, identities=readers.both)
    assert whole(out)
