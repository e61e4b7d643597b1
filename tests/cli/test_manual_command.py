"""`backupd manual` and `backupd completion`: what groff makes of the page, and what a shell completes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from backupd.cli.main import app
from backupd.cli.manual import page
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal
from tests.story.world import World


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(World(tmp_path), monkeypatch, capsys)


@pytest.fixture(scope="module")
def rendered() -> str:
    """The page as `man` shows it on a wide terminal, without its bold and italic."""
    argv = ["groff", "-man", "-ww", "-Tutf8", "-P-c", "-P-bou", "-rLL=200n"]
    text = "\n".join(page(tree()))
    groff = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=20, check=False)
    assert (groff.returncode, groff.stderr) == (0, "")
    return groff.stdout


def tree() -> TyperGroup:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return root


def commands(group: TyperGroup, *path: str) -> dict[str, bool]:
    """The full name of each command, and whether it is hidden."""
    found: dict[str, bool] = {}
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            found |= commands(command, *path, name)
        else:
            found[" ".join((*path, name))] = command.hidden
    return found


def test_the_page_is_what_the_command_prints(terminal: Terminal) -> None:
    ended = terminal.run("manual")
    assert ended.status == 0
    assert ended.stdout == "\n".join(page(tree())) + "\n"
    assert ended.stdout.isascii()


def test_the_page_has_every_command_and_nothing_that_is_hidden(rendered: str) -> None:
    found = set(re.findall(r"^   backupd ([a-z -]+[a-z])", rendered, re.MULTILINE))
    assert found == {
        name
        for name, hidden in commands(
            tree(),
        ).items()
        if not hidden
    }
    assert "--inside" not in rendered


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (("run",), "run [OPTIONS] {JOB}"),
        (("check",), "check [OPTIONS] {JOB}"),
        (("history",), "history [OPTIONS] [JOB]"),
        (("volumes",), "volumes [OPTIONS] [VG|VG/LV]"),
    ],
)
def test_what_stands_for_an_argument_is_written_as_in_the_manual(
    terminal: Terminal, rendered: str, command: tuple[str, ...], usage: str
) -> None:
    assert f"Usage: backupd {usage}\n" in terminal.type(*command, "--help").stdout
    manual = usage.replace("[OPTIONS] ", "").translate(str.maketrans("", "", "{}"))
    assert f"backupd {manual}\n" in rendered


def test_the_page_has_each_option_with_its_value_and_default(rendered: str) -> None:
    text = " ".join(rendered.split())
    assert "--limit LIMIT How many to list, newest first. By default 50." in text
    assert "-q, --quiet Print only warnings and errors on stderr." in text
    assert "--note NOTE Reason, shown with the run or job from now on. Required." in text
    assert "By default ." not in text


def test_the_page_has_every_exit_status_the_environment_and_the_files(rendered: str) -> None:
    text = " ".join(rendered.split())
    for status in ExitStatus:
        assert f" {status.value} {status.meaning} " in text
    for word in ("BACKUPD_CONFIG", "BACKUPD_IDENTITY", "/etc/backupd/backupd.toml", "lvm(8)"):
        assert word in text


def test_hyphens_of_options_can_be_copied(rendered: str) -> None:
    assert not re.search("\N{HYPHEN}", rendered)


# --- completion -------------------------------------------------------------------------------------------------------


def test_bash_completes_a_command(terminal: Terminal, tmp_path: Path) -> None:
    script = tmp_path / "backupd.bash"
    script.write_text(terminal.run("completion", "bash").stdout)
    asks = '. "$0"; complete -p backupd; COMP_WORDS=(backupd hist); COMP_CWORD=1; _backupd_completion backupd'
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = ["bash", "--norc", "-euc", f'{asks}; echo "${{COMPREPLY[@]}}"', str(script)]
    bash = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=30, check=False)
    assert bash.stdout.splitlines() == ["complete -o default -F _backupd_completion backupd", "history"], bash.stderr


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "backupd schedule pa"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "backupd schedule pa", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_what_the_scripts_of_other_shells_ask_for_is_answered(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, shell: str, environment: dict[str, str]
) -> None:
    script = terminal.run("completion", shell).stdout
    for variable in environment:
        assert variable in script
    assert f"_BACKUPD_COMPLETE=complete_{shell}" in script
    for variable, value in {**environment, "_BACKUPD_COMPLETE": f"complete_{shell}"}.items():
        monkeypatch.setenv(variable, value)
    answer = terminal.type()
    assert answer.status == 0
    assert "pause" in answer.stdout
    assert "resume" not in answer.stdout


def test_another_shell_is_refused(terminal: Terminal) -> None:
    assert terminal.run("completion", "tcsh").status == ExitStatus.USAGE
