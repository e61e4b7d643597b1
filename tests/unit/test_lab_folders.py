"""A lab's temporary folder is its own, for everybody who looks, from the first moment to the last."""

import shutil
from pathlib import Path

import pytest

from backupd.lab import room, run


def test_a_folder_that_its_lab_is_removing_is_not_taken_for_a_dead_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "places", lambda: [room.LabFolder(tmp_path, 1 << 30, in_memory=True, executable=True)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remove = shutil.rmtree
    meanwhile: list[str] = []

    def beside_a_clean(folder: Path, *, ignore_errors: bool = False) -> None:
        if not meanwhile:
            meanwhile.append("begun")
            meanwhile.extend(run.clean())
        remove(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr("backupd.lab.run.shutil.rmtree", beside_a_clean)
    with run._temporary_folder(tmp_path) as folder:
        assert run.clean() == []
    assert meanwhile == ["begun"]
    assert not folder.exists()
