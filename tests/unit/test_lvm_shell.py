"""A warm shell, tried with a program that talks as LVM's does: no prompt, no status, complaints about what it lacks."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.lvm.shell import LvmShell, lvm_shell, meaningful
from backupd.vocabulary.errors import CommandError, SnapshotError

LIKE_LVM = """#!/bin/sh
while read -r word rest; do
    case $word in
        say) echo "  $rest" ;;
        slowly) sleep 0.3; echo done > "$rest"; echo "  said at the end" ;;
        once-told) until [ -e "$rest.go-on" ]; do sleep 0.01; done; echo done > "$rest"; echo "  said at the end" ;;
        die) echo "  Segmentation fault"; exit 139 ;;
        *) echo "  No such command '$word'.  Try 'help'." ;;
    esac
done
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched first for programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def like_lvm(programs: Path) -> None:
    program = programs / "lvm"
    program.write_text(LIKE_LVM)
    program.chmod(0o755)


def until(answer: Callable[[], str | None]) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        said = answer()
        if said is not None:
            return said
    raise AssertionError("no answer")


def let_go(effect: Path) -> None:
    """The command `once-told` that is to have this effect goes on now."""
    effect.with_name(f"{effect.name}.go-on").touch()


def _fail_after_sending(command: str) -> None:
    with lvm_shell(None) as shell:
        shell.send(command)
        raise ZeroDivisionError


def ask(shell: LvmShell, command: str) -> str:
    shell.send(command)
    return until(shell.reply)


@pytest.mark.usefixtures("like_lvm")
def test_reply_is_what_this_command_said_and_no_other() -> None:
    with lvm_shell(None) as shell:
        assert meaningful(ask(shell, "say one")) == "one"
        assert meaningful(ask(shell, "say two")) == "two"
        assert meaningful(ask(shell, "lvcrate")) == ""


@pytest.mark.usefixtures("like_lvm")
def test_there_is_no_reply_before_the_command_has_ended(tmp_path: Path) -> None:
    effect = tmp_path / "effect"
    with lvm_shell(None) as shell:
        shell.send(f"once-told {effect}")
        assert shell.reply() is None
        let_go(effect)
        assert meaningful(until(shell.reply)) == "said at the end"
        assert effect.exists()


@pytest.mark.usefixtures("like_lvm")
def test_end_of_the_block_waits_for_a_command_that_is_under_way(tmp_path: Path) -> None:
    with lvm_shell(None) as shell:
        shell.send(f"slowly {tmp_path / 'effect'}")
    assert (tmp_path / "effect").read_text() == "done\n"
    (tmp_path / "effect").unlink()
    with pytest.raises(ZeroDivisionError):
        _fail_after_sending(f"slowly {tmp_path / 'effect'}")
    assert (tmp_path / "effect").read_text() == "done\n"


@pytest.mark.usefixtures("like_lvm")
def test_whoever_waits_for_its_end_can_do_something_else_meanwhile(tmp_path: Path) -> None:
    effect, seen = tmp_path / "effect", []

    def look() -> None:
        seen.append(effect.exists())
        let_go(effect)

    with lvm_shell(None) as shell:
        shell.send(f"once-told {effect}")
        shell.end(look)
        assert effect.read_text() == "done\n"
    assert seen[0] is False


@pytest.mark.usefixtures("like_lvm")
def test_whoever_waits_for_its_end_no_longer_leaves_that_to_the_block(tmp_path: Path) -> None:
    effect = tmp_path / "effect"

    def fail() -> None:
        raise ZeroDivisionError

    with lvm_shell(None) as shell:
        shell.send(f"once-told {effect}")
        with pytest.raises(ZeroDivisionError):
            shell.end(fail)
        assert not effect.exists()
        let_go(effect)
    assert effect.read_text() == "done\n"


@pytest.mark.usefixtures("like_lvm")
def test_one_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = tmp_path / "effect"
    monkeypatch.setattr("backupd.host.process._PARTING_SECONDS", 0.2)
    with lvm_shell(None) as shell:
        shell.send(f"once-told {effect}")
        shell.end(lambda: None)
        monkeypatch.setattr("backupd.host.process._PARTING_SECONDS", 120.0)  # that a second wait would take
        began = time.monotonic()
    assert time.monotonic() - began < 60
    assert not effect.exists()
    let_go(effect)
    assert until(lambda: effect.read_text() if effect.exists() else None) in ("", "done\n")


@pytest.mark.usefixtures("like_lvm")
def test_shell_that_died_is_an_error_with_its_last_words() -> None:
    with lvm_shell(None) as shell:
        with pytest.raises(SnapshotError, match="ended in mid-command: Segmentation fault") as told:
            ask(shell, "die")
        assert "dmesg" in told.value.hint
        with pytest.raises(SnapshotError, match="has ended") as told:
            shell.send("say one")
        assert "dmesg" in told.value.hint


def test_missing_lvm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.host.process._environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(CommandError, match="not found: lvm"), lvm_shell(None) as shell:
        ask(shell, "say one")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            '\n  Logical volume "s" created.\n  WARNING: This metadata update is NOT backed up.\n',
            'Logical volume "s" created.',
        ),
        (
            "'.  Try 'help'.\n  Can't get lock for vg.\n  Cannot process vg\n",
            "Can't get lock for vg.; Cannot process vg",
        ),
        ("  TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.\n", ""),
    ],
)
def test_noise_is_left_out_of_what_people_see(said: str, words: str) -> None:
    assert meaningful(said) == words
