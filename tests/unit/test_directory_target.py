"""What only a folder as a target promises: names, modes, durability, and sentences for what file systems say."""

import errno
import os
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from backupd.errors import TargetError
from backupd.targets.directory import DirectoryTarget

JOB, RUN, NAME = "nightly", "run-1", "data.tar.zst"


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def put(target: DirectoryTarget, content: bytes) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(content)


def test_only_the_owner_can_read_what_is_stored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(DirectoryTarget("store", tmp_path), b"x")
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {JOB: 0o700, f"{JOB}/{RUN}": 0o700, f"{JOB}/{RUN}/{NAME}": 0o600}


def test_object_has_a_temporary_name_until_it_is_whole(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path)
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"x")
        assert f"{JOB}/{RUN}/.{NAME}.partial" in everything(tmp_path)
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}", f"{JOB}/{RUN}/{NAME}"}


def test_remove_leaves_an_empty_target(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path)
    put(target, b"x")
    (tmp_path / JOB / RUN / f".{NAME}.partial").write_bytes(b"left by a process that was killed")
    target.remove(JOB, RUN)
    assert everything(tmp_path) == set()


def test_proof_of_being_writable_leaves_nothing(tmp_path: Path) -> None:
    assert DirectoryTarget("store", tmp_path).require_usable() > 0
    assert everything(tmp_path) == set()


def test_missing_folder_is_not_created(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path / "unmounted")
    with pytest.raises(TargetError, match="is not there") as refused:
        target.require_usable()
    assert "mount" in refused.value.hint
    with pytest.raises(TargetError, match="is not there"):
        put(target, b"x")
    assert everything(tmp_path) == set()


def test_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(TargetError, match="is not a folder"):
        DirectoryTarget("store", tmp_path / "store").require_usable()


FAULTS = [
    (errno.ENOSPC, "no room left on target store"),
    (errno.EDQUOT, "no room left on target store"),
    (errno.EROFS, "is mounted read-only"),
    (errno.EIO, "could not write data.tar.zst to target store"),
]


def failing(number: int) -> Any:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(("number", "sentence"), FAULTS)
@pytest.mark.parametrize("call", ["write", "fsync", "close", "rename"])
def test_errors_at_any_step_get_a_sentence_and_leave_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, sentence: str
) -> None:
    class Failing(FileIO):
        """A file whose file system tells of a failure at one of its calls."""

        def write(self, data: Any) -> int:
            return failing(number)() if call == "write" else super().write(data)

        def close(self) -> None:
            told = call == "close" and not self.closed
            super().close()
            if told:
                failing(number)()

    monkeypatch.setattr("backupd.targets.directory.FileIO", Failing)
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", lambda file: failing(number)() if _is_file(file) else None)
    if call == "rename":
        monkeypatch.setattr(Path, "rename", failing(number))
    with pytest.raises(TargetError) as failed:
        put(DirectoryTarget("store", tmp_path), b"x")
    assert sentence in failed.value.message
    assert str(tmp_path) in failed.value.message
    assert failed.value.hint
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}"}


def test_object_whose_name_was_not_made_durable_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DirectoryTarget("store", tmp_path)
    put(target, b"x")  # the folders are there
    target.remove(JOB, RUN)
    (tmp_path / JOB / RUN).mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", lambda file: None if _is_file(file) else failing(errno.EIO)())
    with pytest.raises(TargetError):
        put(target, b"x")
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}"}


def test_full_target_is_not_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(TargetError, match="no room left"):
        DirectoryTarget("store", tmp_path).require_usable()
    assert everything(tmp_path) == set()


def test_damaged_manifest_is_told_from_a_missing_one(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path)
    with pytest.raises(TargetError, match="no backup run-1"):
        target.manifest(JOB, RUN)
    put(target, b"x")
    with pytest.raises(TargetError, match="unfinished"):
        target.manifest(JOB, RUN)


def _is_file(descriptor: int) -> bool:
    return not os.path.isdir(f"/proc/self/fd/{descriptor}")  # noqa: PTH112 - Path would resolve nothing more
