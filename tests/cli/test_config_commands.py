"""`backupd config init|check|show`: what they print, and what stands on the disk afterwards."""

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backupd.cli.config import app
from backupd.cli.invocation import Invocation
from backupd.config import load
from backupd.vocabulary.errors import ConfigurationError, UsageError
from tests.unit.config_texts import MINIMAL

EXAMPLE = Path(__file__).parents[2] / "configs" / "backupd.toml"


def run(*arguments: str, config: Path | None = None) -> Result:
    return CliRunner().invoke(app, arguments, obj=Invocation(config=config))


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_check_warns_of_retries_where_a_timer_starts_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.cli.timers.ENABLED", tmp_path)
    file = tmp_path / "backupd.toml"
    file.write_text(
        EXAMPLE.read_text().replace("[jobs.nightly.schedules.backup]", "[jobs.nightly.schedules.backup]\nretries = 2")
    )
    assert "warning" not in run("check", config=file).stdout
    (tmp_path / "backupd-run@nightly.timer").symlink_to("/usr/lib/systemd/system/backupd-run@.timer")
    result = run("check", config=file)
    assert result.exit_code == 0
    assert "warning: jobs.nightly.schedules.backup.retries: backupd-run@nightly.timer is enabled" in result.stdout


def test_check_warns_of_a_server_whose_binlog_two_jobs_archive(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    once = EXAMPLE.read_text() + "\n[jobs.nightly.binlog]\n"
    file.write_text(once)
    assert "archive its binlog" not in run("check", config=file).stdout
    file.write_text(f'{once}[jobs.hourly]\nhost = "db1"\ntargets = ["vault"]\n[jobs.hourly.binlog]\n')
    result = run("check", config=file)
    assert result.exit_code == 0
    assert (
        "warning: hosts.db1: jobs nightly, hourly each archive its binlog: the server sends everything 2 times"
        in result.stdout
    )


def test_check_warns_of_what_a_blackout_always_keeps_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    nightly = "\n[jobs.nightly.schedules.check]\ncron = '0 12 * * *'\nstart_within = '1h'\nblackout = "
    file.write_text(f"{MINIMAL}{nightly}['Sat-Sun 08:00-18:00']\n")
    told = run("check", config=file).stdout
    assert "schedules.check.blackout: 2 of 7 times of a week are always missed, such as Sat 12:00" in told
    file.write_text(f"{MINIMAL}{nightly}['Sat-Sun 12:00-13:00']\n")
    assert "always missed" not in run("check", config=file).stdout


def test_check_warns_of_a_digest_that_nobody_gets(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    digest = EXAMPLE.read_text().replace('#digest = "', 'digest = "').replace('# digest = "', 'digest = "')
    told = '[notifications.chat]\ntype = "webhook"\nurl = "https://chat.example.com"\n'
    for more, warned in (("", True), (told, False), (f'{told}on = ["failed"]\n', True)):
        file.write_text(f"{digest}\n{more}")
        assert ("warning: service.digest: nobody is told" in run("check", config=file).stdout) == warned


def test_check_warns_of_the_example_until_it_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(EXAMPLE.read_text() + "# a note\n")
    warned = run("check", config=file)
    assert (warned.exit_code, "warning: this is the example as it was shipped" in warned.stdout) == (0, True)
    file.write_text(EXAMPLE.read_text().replace('path = "/srv/backups"', 'path = "/srv/elsewhere"'))
    assert "warning" not in run("check", config=file).stdout


def test_the_example_puts_no_load_on_a_server_before_somebody_has_said_when() -> None:
    schedules = load(EXAMPLE).jobs["nightly"].schedules
    assert {activity.value for activity, _ in schedules.items()} == {"backup", "check", "verify", "prune"}


def test_schema_prints_what_editors_read() -> None:
    printed = json.loads(run("schema").stdout)
    assert printed["$schema"].startswith("https://json-schema.org/")
    assert set(printed["properties"]) >= {"hosts", "targets", "jobs"}


@pytest.mark.usefixtures("generous_umask")
def test_init_writes_the_example_which_loads_and_which_others_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "backupd.toml"
    result = run("init", "--path", str(file))
    assert result.exit_code == 0
    assert str(file) in result.stdout
    assert file.read_bytes() == EXAMPLE.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.parent.stat().st_mode & 0o777 == 0o750
    assert load(file).jobs


def test_init_writes_where_the_configuration_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("init", config=tmp_path / "by-option.toml").exit_code == 0
    monkeypatch.setenv("BACKUPD_CONFIG", str(tmp_path / "by-variable.toml"))
    assert run("init").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"by-option.toml", "by-variable.toml"}


def test_init_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text("mine")
    result = run("init", config=file)
    assert isinstance(result.exception, UsageError)
    assert "already exists" in result.exception.message
    assert "--path" in result.exception.hint
    assert file.read_text() == "mine"
    assert result.stdout == ""


def test_init_does_not_follow_a_dangling_link(tmp_path: Path) -> None:
    link = tmp_path / "backupd.toml"
    link.symlink_to(tmp_path / "elsewhere")
    assert isinstance(run("init", config=link).exception, UsageError)
    assert not (tmp_path / "elsewhere").exists()


def test_init_into_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    result = run("init", "--path", str(tmp_path / "a" / "b" / "backupd.toml"))
    assert isinstance(result.exception, UsageError)
    assert "no such file or directory" in result.exception.message


def test_check_counts_what_there_is() -> None:
    result = run("check", config=EXAMPLE)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"{EXAMPLE}: ok, 1 host, 1 job, 3 targets"


def test_check_says_who_sees_the_pages_by_default(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    text, key = EXAMPLE.read_text(), '# token_file = "/etc/backupd/token"'
    assert key in text
    file.write_text(text)
    said = " ".join(run("check", config=file).stdout.split())
    assert "pages of `backupd serve`: not served, because service.token_file is not set" in said
    file.write_text(text.replace(key, key.removeprefix("# ")))
    assert "pages" not in run("check", config=file).stdout


def test_check_raises_every_fault_and_prints_no_result(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text("[jbos.nightly]\n[catalogue]\npath = 3\n")
    result = run("check", config=file)
    assert isinstance(result.exception, ConfigurationError)
    assert "3 faults" in result.exception.message
    assert result.stdout == ""


def test_show_prints_toml_with_the_defaults_filled_in() -> None:
    result = run("show", config=EXAMPLE)
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["jobs"]["nightly"]["snapshot"]["chunk_size"] == "auto"


def test_show_as_json_is_one_document_of_schema_1() -> None:
    document = json.loads(run("show", "--json", config=EXAMPLE).stdout)
    assert (document["schema"], document["path"]) == (1, str(EXAMPLE))
    assert document["jobs"]["nightly"]["snapshot"]["chunk_size"] == "auto"


@pytest.mark.parametrize("arguments", [["show"], ["show", "--json"]])
def test_show_reads_no_secret(tmp_path: Path, arguments: list[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    file = tmp_path / "backupd.toml"
    file.write_text(
        EXAMPLE.read_text().replace('# password_file = "/etc/backupd/db1.password"', f'password_file = "{secret}"')
    )
    result = run(*arguments, config=file)
    assert result.exit_code == 0
    assert str(secret) in result.stdout
    assert "hunter2" not in result.output
