"""A configuration in several files: `conf.d/*.toml` beside it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.entering import enter, require_enterable
from tests.unit.config_texts import refusal

MAIN = """
[targets.vault]
type = "directory"
path = "/srv/backups"

[service]
max_runs = 2
"""
SHOP = """
[hosts.shop]
socket = "/run/shop.sock"
user = "backupd"

[jobs.shop]
host = "shop"
targets = ["vault"]
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the configuration and its drop-ins, and says where it is."""

    def files(main: str = MAIN, **texts: str) -> Path:
        folder = tmp_path / "conf.d"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.toml").write_text(text)
        path = tmp_path / "backupd.toml"
        path.write_text(main)
        return path

    return files


def test_each_file_adds_tables_to_one_configuration(write: Write) -> None:
    more = SHOP.replace("shop", "crm")
    configuration = load(write(shop=SHOP, crm=more))
    assert set(configuration.jobs) == {"shop", "crm"}
    assert configuration.jobs["shop"].targets == ("vault",)
    assert configuration.service.max_runs == 2


def test_without_a_folder_there_is_one_file_as_before(tmp_path: Path) -> None:
    path = tmp_path / "backupd.toml"
    path.write_text(MAIN + SHOP)
    assert set(load(path).jobs) == {"shop"}


def test_what_is_no_drop_in_is_not_read(write: Write) -> None:
    path = write(shop=SHOP)
    for name in ("old.toml~", ".hidden.toml", "notes.txt", "shop.toml.dpkg-dist"):
        (path.parent / "conf.d" / name).write_text("not = toml = at all")
    assert set(load(path).jobs) == {"shop"}


def test_a_table_in_two_files_is_a_fault_that_names_both(write: Write) -> None:
    error = refusal(write(first=SHOP, second="[jobs.shop]\nhost = 'shop'\ntargets = ['vault']"))
    assert error.message.endswith("backupd.toml: jobs.shop: is in conf.d/first.toml and in conf.d/second.toml")
    assert error.hint == "keep it in one of them"
    settings = refusal(write(first=SHOP, second="[service]\nmax_runs = 3"))
    assert "service: is in backupd.toml and in conf.d/second.toml" in settings.message


def test_a_fault_begins_with_the_file_that_has_it(write: Write) -> None:
    error = refusal(write(main=MAIN.replace("= 2", "= 0"), shop=SHOP.replace('["vault"]', '["valt"]')))
    assert "\n  conf.d/shop.toml: jobs.shop.targets" in error.message
    assert "\n  service.max_runs" in error.message


def test_a_drop_in_that_is_not_toml_is_named(write: Write) -> None:
    error = refusal(write(shop=SHOP, broken="[jobs.x"))
    assert "conf.d/broken.toml is not TOML" in error.message


@pytest.mark.parametrize("which", ["conf.d", "conf.d/shop.toml"])
def test_what_others_may_change_is_not_read(write: Write, which: str) -> None:
    path = write(shop=SHOP)
    (path.parent / which).chmod(0o777)
    error = refusal(path)
    assert error.message.startswith(f"{path.parent / which} can be changed by others")
    assert "chmod go-w" in error.hint


def test_what_belongs_to_others_is_not_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(shop=SHOP)
    foreign = path.parent / "conf.d" / "shop.toml"
    seen = Path.stat

    def owned(file: Path, **how: bool) -> os.stat_result:
        status = seen(file, **how)
        return os.stat_result((*status[:4], 12345, *status[5:10])) if file == foreign else status

    monkeypatch.setattr(Path, "stat", owned)
    assert refusal(path).message.startswith(f"{foreign} can be changed by others")


def test_a_folder_that_cannot_be_read_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(shop=SHOP)
    monkeypatch.setattr("backupd.config.drop_ins.os.scandir", denied)
    assert refusal(path).message == f"cannot read {path.parent / 'conf.d'}: permission denied"


def test_a_link_that_leads_nowhere_is_a_fault_as_any_other(write: Write) -> None:
    path = write(shop=SHOP)
    link = path.parent / "conf.d" / "gone.toml"
    link.symlink_to("/srv/shared/gone.toml")
    assert refusal(path).message == f"cannot read {link}: no such file or directory"


def test_a_recommendation_is_entered_into_the_file_that_has_the_job(write: Write) -> None:
    path = write(shop=SHOP)
    require_enterable(path, "shop", ["chunk_size"])
    enter(path, "shop", {"chunk_size": "64KiB"})
    assert path.read_text() == MAIN
    assert load(path).jobs["shop"].snapshot.chunk_size == 64 << 10
