"""What `history` asks of the configuration: where the catalogue is, and no more."""

import dataclasses
import os
from pathlib import Path

import pytest

from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal
from tests.story.world import World

FAULT = "\n[service]\nmax_runs = 0\n"
FAULT_TOLD = "service.max_runs"


def catalogue_table(terminal: Terminal, table: str) -> None:
    """Puts this in the place of the configuration's own `[catalogue]`."""
    before, _, rest = terminal.configuration.read_text().partition("[catalogue]")
    _, _, after = rest.partition("[paths]")
    terminal.configuration.write_text(f"{before}{table}\n[paths]{after}")


def drop_in(terminal: Terminal, name: str, text: str) -> None:
    folder = terminal.configuration.parent / "conf.d"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


def add_fault(terminal: Terminal) -> None:
    terminal.configuration.write_text(terminal.configuration.read_text() + FAULT)


def elsewhere(path: Path) -> type:
    """The table with another default: this machine's own catalogue may be there."""
    default = dataclasses.field(default=path)
    return dataclasses.make_dataclass("Elsewhere", [("path", Path, default)])


def require_as_checked(terminal: Terminal, *command: str) -> str:
    """What the command says, which is what `config check` says of the same configuration."""
    ended, checked = terminal.run(*command), terminal.run("config", "check")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert (ended.status, ended.stderr) == (checked.status, checked.stderr)
    return ended.stderr


@pytest.mark.parametrize("options", [(), ("nightly",), ("--json",), ("--csv",), ("--probes",), ("--benches",)])
def test_a_fault_elsewhere_keeps_nobody_from_the_history(
    terminal: Terminal, world: World, options: tuple[str, ...]
) -> None:
    world.back_up("r1")
    before = terminal.run("history", *options)
    add_fault(terminal)
    drop_in(terminal, "shop", "[hosts.shop]\nsockett = '/run/shop.sock'\n")
    assert terminal.run("show", "r1").status == ExitStatus.USAGE
    after = terminal.run("history", *options)
    assert (after.status, after.stdout, after.stderr) == (ExitStatus.OK, before.stdout, before.stderr)


def test_the_catalogue_is_named_in_any_of_the_files(terminal: Terminal, world: World) -> None:
    world.back_up("r1")
    catalogue_table(terminal, "")
    drop_in(terminal, "catalogue", f"[catalogue]\npath = '{world.places.catalogue}'\n")
    assert "r1" in terminal.run("history").stdout


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[catalogue]\npath = 'catalogue.sqlite'", '"catalogue.sqlite" is not an absolute path'),
        ("[catalogue]\npath = 5", "catalogue.path: 5 is not an absolute path"),
        ("[catalogue]\npth = '/srv/catalogue.sqlite'", "catalogue.pth: unknown key"),
        ("catalogue = '/srv/catalogue.sqlite'", "catalogue: is not a table"),
        ("[[catalogue]]\npath = '/srv/catalogue.sqlite'", "catalogue: is not a table"),
        ("[catalog]\npath = '/srv/catalogue.sqlite'", "catalog: unknown key"),
    ],
)
def test_a_fault_of_the_catalogue_is_told_with_all_others(terminal: Terminal, table: str, said: str) -> None:
    catalogue_table(terminal, table)
    assert said in require_as_checked(terminal, "history")
    add_fault(terminal)
    told = require_as_checked(terminal, "history")
    assert (said in told, FAULT_TOLD in told) == (True, True)


def test_a_catalogue_that_two_files_name_is_a_fault(terminal: Terminal, world: World) -> None:
    drop_in(terminal, "catalogue", f"[catalogue]\npath = '{world.places.catalogue}'\n")
    assert "catalogue: is in backupd.toml and in conf.d/catalogue.toml" in require_as_checked(terminal, "history")


@pytest.mark.parametrize("text", ["[jobs.x", "catalogue.path = '/srv/\N{DEGREE SIGN}'"])
def test_a_drop_in_that_cannot_be_read_is_told(terminal: Terminal, text: str) -> None:
    drop_in(terminal, "broken", "")
    (terminal.configuration.parent / "conf.d" / "broken.toml").write_bytes(text.encode("latin-1"))
    assert "conf.d/broken.toml is not " in require_as_checked(terminal, "history")


def test_a_file_that_is_named_must_be_there(terminal: Terminal, tmp_path: Path) -> None:
    terminal.configuration = tmp_path / "nowhere.toml"
    assert f"no configuration at {tmp_path / 'nowhere.toml'}" in require_as_checked(terminal, "history")


def test_anybody_s_file_is_not_read(terminal: Terminal) -> None:
    terminal.configuration.chmod(0o666)
    assert "can be changed by anybody" in require_as_checked(terminal, "history")


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_path_it_is_the_default(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, world: World, is_there: bool
) -> None:
    world.back_up("r1")
    monkeypatch.setattr("backupd.config.unchecked.CatalogueConfig", elsewhere(world.places.catalogue))
    monkeypatch.setattr("backupd.operations.context.DEFAULT_PATH", terminal.configuration)
    monkeypatch.setenv("BACKUPD_CONFIG", str(terminal.configuration))
    catalogue_table(terminal, "[catalogue]\n")
    if not is_there:
        terminal.configuration.unlink()
    assert "r1" in terminal.type("history").stdout
    unknown = terminal.type("history", "weekly")
    assert (unknown.status, unknown.stderr.splitlines()[0]) == (ExitStatus.USAGE, "error: no job 'weekly'")


def test_a_job_that_has_runs_or_is_configured_is_known(terminal: Terminal, world: World) -> None:
    assert terminal.run("history", "nightly").stdout == "no run yet\n"
    world.back_up("r1")
    terminal.configuration.write_text(terminal.configuration.read_text().replace("nightly", "weekly"))
    assert "r1" in terminal.run("history", "nightly").stdout
    add_fault(terminal)
    assert "r1" in terminal.run("history", "nightly").stdout


def test_a_job_without_runs_is_looked_for_in_the_whole_configuration(terminal: Terminal) -> None:
    ended = terminal.run("history", "weekly")
    assert ended.status == ExitStatus.USAGE
    assert ended.stderr == "error: no job 'weekly'\nhint: configured jobs: nightly\n"
    add_fault(terminal)
    assert FAULT_TOLD in require_as_checked(terminal, "history", "weekly")


def test_what_can_be_read_once_is_read_once(terminal: Terminal) -> None:
    """A pipe; read again it would be empty, and a configuration without a job."""
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as file:
        file.write(terminal.configuration.read_text())
        file.close()
        ended = terminal.run("history", "weekly", configuration=Path(f"/dev/fd/{reader}"))
    assert (ended.status, ended.stderr.splitlines()[-1]) == (ExitStatus.USAGE, "hint: configured jobs: nightly")
