"""Whose the configuration may be: it names programs that backupd runs."""

import grp
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.fleet_reading import InventoryHosts, load_fleet
from backupd.config.own_files import require_rereadable
from backupd.vocabulary.errors import ConfigurationError
from tests.unit.config_texts import MINIMAL, refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "backupd.toml").write_text(MINIMAL)
    return folder / "backupd.toml"


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_file_that_anybody_may_change_is_not_read(path: Path, mode: int) -> None:
    path.chmod(mode)
    error = refusal(path)
    assert error.message.startswith(f"{path} can be changed by others")
    assert "chmod go-w" in error.hint


def test_nor_is_a_fleets(path: Path) -> None:
    path.write_text("hosts.db1 = {}")
    assert load_fleet(path, lambda _: InventoryHosts()).configuration.hosts
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="can be changed by others"):
        load_fleet(path, lambda _: InventoryHosts())


def test_nor_is_one_that_anybody_may_replace(path: Path) -> None:
    path.parent.chmod(0o777)
    assert refusal(path).message.startswith(f"{path.parent} can be changed by others")
    path.parent.chmod(0o1777)  # as /tmp: nobody else removes or renames what is ours
    assert load(path).jobs


def test_nor_is_one_to_which_a_link_leads(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "backupd.toml"
    link.symlink_to(path)
    assert load(link).jobs
    path.parent.chmod(0o777)
    assert refusal(link).message.startswith(f"{path.parent} can be changed by others")


def test_a_group_of_one_counts_as_its_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o664)
    path.parent.chmod(0o775)
    seen, name = grp.getgrgid, path.owner()

    def group(*members: str, called: str = name) -> Callable[[int], grp.struct_group]:
        return lambda number: grp.struct_group((called, "x", number, list(members)))

    monkeypatch.setattr(grp, "getgrgid", group())
    assert load(path).jobs
    for others in (group("mallory"), group(called="staff")):
        monkeypatch.setattr(grp, "getgrgid", others)
        assert "can be changed by others" in refusal(path).message
    monkeypatch.setattr(grp, "getgrgid", seen)


def test_what_belongs_to_somebody_else_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = os.fstat

    def owned(descriptor: int) -> os.stat_result:
        status = seen(descriptor)
        return os.stat_result((*status[:4], 12345, *status[5:10]))

    monkeypatch.setattr("backupd.config.own_files.os.fstat", owned)
    assert refusal(path).message.startswith(f"{path} can be changed by others")


def test_a_pipe_is_read_whole_by_who_needs_it_once_and_refused_to_who_reads_it_again(path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, MINIMAL.encode())
        os.close(writing)
        pipe = Path(f"/dev/fd/{reading}")
        assert load(pipe).jobs
        with pytest.raises(ConfigurationError, match="is not a regular file") as refused:
            require_rereadable(pipe)
        assert "read again" in refused.value.hint
    finally:
        os.close(reading)
    require_rereadable(path)
