"""`backupd copy` as a person meets it: what it says, and what it ends with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backupd import wiring
from backupd.config import Configuration
from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal
from tests.contract.peers import WebPeer, web_server
from tests.story.world import World


@pytest.fixture
def offsite(world: World) -> Path:
    folder = world.base / "offsite"
    folder.mkdir()
    return folder


@pytest.fixture
def terminal(
    world: World, offsite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """`backupd` on a host that has two backups, and a second target that no job names."""
    real: Callable[[Configuration, str, str], Target] = wiring.target
    terminal = Terminal(world, monkeypatch, capsys)
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(f'{toml}\n[targets.offsite]\ntype = "directory"\npath = "{offsite}"\n')
    for run_id in ("r1", "r2"):
        world.back_up(run_id)
    monkeypatch.setattr(wiring, "target", real)
    world.others = [DirectoryTarget("offsite", offsite, machine=world.name)]  # type: ignore[list-item]
    return terminal


def stored(world: World, offsite: Path) -> set[str]:
    return {path.parent.name for path in (offsite / world.name / "nightly").glob("*/manifest.json")}


def test_a_run_is_copied_and_seen_everywhere(terminal: Terminal, world: World, offsite: Path) -> None:
    ended = terminal.run("copy", "latest", "--from", "vault", "--to", "offsite")
    assert ended.status == ExitStatus.OK
    assert ended.stdout.startswith("copied run r2 from target vault to target offsite: ")
    assert ended.stdout.endswith(f": {offsite}/{world.name}/nightly/r2\n")
    assert "copying r2 to offsite, and reading it back: 100 %" in ended.stderr
    assert stored(world, offsite) == {"r2"}
    assert f"on offsite: {offsite}/{world.name}/nightly/r2 (" in terminal.run("show", "r2").stdout
    verified = terminal.run("verify", "r2", "--target", "offsite")
    assert (verified.status, "on target offsite: all of it read back" in verified.stdout) == (ExitStatus.OK, True)
    again = terminal.run("copy", "r2", "--from", "vault", "--to", "offsite")
    assert (again.status, again.stdout) == (ExitStatus.OK, "run r2 is on target offsite already\n")


def test_missing_copies_all_the_newest_first_and_then_nothing(terminal: Terminal, world: World, offsite: Path) -> None:
    ended = terminal.run("copy", "--missing", "--from", "vault", "--to", "offsite")
    assert ended.status == ExitStatus.OK
    assert [line.split()[2] for line in ended.stdout.splitlines()] == ["r2", "r1"]
    assert stored(world, offsite) == {"r1", "r2"}
    again = terminal.run("copy", "--missing", "--from", "vault", "--to", "offsite", "--job", "nightly")
    assert (again.status, again.stdout) == (ExitStatus.OK, "nothing is missing on target offsite\n")


def test_one_that_is_broken_keeps_no_other_from_being_copied(terminal: Terminal, world: World, offsite: Path) -> None:
    data = world.backups / "r2" / "data-1.tar.zst"
    content = data.read_bytes()
    data.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ended = terminal.run("copy", "--missing", "--from", "vault", "--to", "offsite")
    assert ended.status == ExitStatus.VERIFICATION
    assert "run r2 was not copied: the copy of run r2 on target vault is broken: data-1.tar.zst" in ended.stderr
    assert "error: the copy of run r2 on target vault is broken" in ended.stderr
    assert stored(world, offsite) == {"r1"}


def flip_one_bit_offsite(terminal: Terminal, world: World, offsite: Path, run_id: str) -> None:
    """And let a verification find it."""
    data = offsite / world.name / "nightly" / run_id / "data-1.tar.zst"
    content = data.read_bytes()
    data.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert terminal.run("verify", run_id, "--target", "offsite").status == ExitStatus.VERIFICATION


def test_what_is_there_broken_is_told_until_pruning_and_another_copy_have_mended_it(
    terminal: Terminal, world: World, offsite: Path
) -> None:
    words = ("copy", "--missing", "--from", "vault", "--to", "offsite")
    for each in (("copy", "r1", *words[2:]), words):  # by the storage's clock, too, the second one is newer
        assert terminal.run(*each).status == ExitStatus.OK
    flip_one_bit_offsite(terminal, world, offsite, "r1")
    ended = terminal.run(*words)
    assert (ended.status, ended.stdout) == (ExitStatus.ATTENTION, "")
    assert "attention: 1 backup on target offsite is broken and was not copied again: r1" in ended.stderr
    assert "hint: " in ended.stderr
    assert "`backupd prune`" in ended.stderr
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(f"{toml}\n[jobs.nightly.retention.offsite]\nkeep_last = 5\n")
    assert terminal.run("prune").status == ExitStatus.OK
    assert stored(world, offsite) == {"r1", "r2"}, "it is listed as it should be: only reading tells"
    (offsite / world.name / "nightly" / "r1" / "data-1.tar.zst").unlink()
    assert terminal.run("prune").status == ExitStatus.OK
    assert stored(world, offsite) == {"r2"}
    again = terminal.run(*words)
    assert (again.status, again.stdout.startswith("copied run r1 from")) == (ExitStatus.OK, True), again.stderr
    last = terminal.run(*words)
    assert (last.status, last.stdout) == (ExitStatus.OK, "nothing is missing on target offsite\n")


def test_what_is_broken_on_both_is_not_told_as_if_it_could_be_copied(
    terminal: Terminal, world: World, offsite: Path
) -> None:
    words = ("copy", "--missing", "--from", "vault", "--to", "offsite")
    terminal.run(*words)
    flip_one_bit_offsite(terminal, world, offsite, "r1")
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "vault", "a test has said so")
    ended = terminal.run(*words)
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "nothing is missing on target offsite\n")


def key_in(world: World) -> tuple[Path, str]:
    """A new identity's file, and its recipient."""
    from pyrage import x25519

    identity, path = x25519.Identity.generate(), world.base / "backup.key"
    path.touch(mode=0o600)
    path.write_text(f"{identity}\n")
    return path, str(identity.to_public())


def test_copies_for_new_readers_say_so_and_are_restored_with_their_key(terminal: Terminal, world: World) -> None:
    key, recipient = key_in(world)
    words = ("copy", "--missing", "--from", "vault", "--to", "offsite", "--recipients", f"{recipient},{recipient}")
    ended = terminal.run(*words)
    assert ended.status == ExitStatus.OK, ended.stderr
    first = f"copied run r2 from target vault to target offsite, encrypted for {recipient}: "
    assert ended.stdout.splitlines()[0].startswith(first)
    shown = terminal.run("show", "r2").stdout
    assert f"read back and equal, encrypted for {recipient})" in shown
    assert "read back and equal, not encrypted)" in shown
    evidence = terminal.run("report", "--evidence", "--since", "1d", "--json").document
    (copied,) = [row for row in evidence["rows"] if (row["kind"], row["run_id"]) == ("copy", "r2")]
    assert copied["remarks"] == ["from target vault", f"encrypted for {recipient}"]
    assert terminal.run("verify", "r2", "--target", "offsite").status == ExitStatus.OK
    without = terminal.run("restore", "r2", "--target", "offsite", "--to", str(world.base / "none"))
    assert (without.status, f"is encrypted for {recipient}" in without.stderr) == (ExitStatus.USAGE, True)
    to = world.base / "out"
    restored = terminal.run("restore", "r2", "--target", "offsite", "--to", str(to), "--identity", str(key))
    assert restored.status == ExitStatus.OK, restored.stderr
    assert (to / "shop/orders.ibd").read_bytes() == (world.datadir / "shop/orders.ibd").read_bytes()


def test_copies_that_are_there_for_others_need_attention(terminal: Terminal, world: World) -> None:
    _, recipient = key_in(world)
    terminal.run("copy", "r1", "--from", "vault", "--to", "offsite")
    ended = terminal.run("copy", "--missing", "--from", "vault", "--to", "offsite", "--recipients", recipient)
    assert ended.status == ExitStatus.ATTENTION
    assert [line.split()[2] for line in ended.stdout.splitlines()] == ["r2"]
    assert "attention: 1 backup on target offsite is not encrypted for exactly these recipients" in ended.stderr
    again = terminal.run("copy", "r1", "--from", "vault", "--to", "offsite", "--recipients", recipient)
    assert again.status == ExitStatus.REFUSED
    assert "error: run r1 is on target offsite already, not encrypted" in again.stderr


@pytest.mark.parametrize(
    ("recipients", "said"),
    [
        ("age1x", 'error: --recipients: "age1x" is not an age recipient'),
        ("AGE-SECRET-KEY-1QQQ", "error: --recipients: is a secret key"),
        ("", 'error: --recipients: "" is not an age recipient'),
    ],
)
def test_what_is_no_recipient_is_refused_and_a_secret_is_never_shown(
    terminal: Terminal, recipients: str, said: str
) -> None:
    ended = terminal.run("copy", "r1", "--from", "vault", "--to", "offsite", "--recipients", recipients)
    assert (ended.status, said in ended.stderr) == (ExitStatus.USAGE, True), ended.stderr
    assert "QQQ" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["r1", "--from", "vault", "--to", "vault"], "error: --from and --to are both vault"),
        (["r1", "--from", "vault", "--to", "nowhere"], "error: no target 'nowhere'"),
        (["r1", "--from", "nowhere", "--to", "offsite"], "error: no target 'nowhere'"),
        (["r1", "--from", "offsite", "--to", "vault"], "error: run r1 has no copy on target offsite"),
        (["r9", "--from", "vault", "--to", "offsite"], "error: no run"),
        (["--from", "vault", "--to", "offsite"], "error: name a run, or --missing"),
        (["r1", "--missing", "--from", "vault", "--to", "offsite"], "error: name a run, or --missing"),
        (["r1", "--job", "nightly", "--from", "vault", "--to", "offsite"], "error: --job needs --missing"),
        (["--missing", "--job", "weekly", "--from", "vault", "--to", "offsite"], "error: no job 'weekly'"),
    ],
)
def test_what_makes_no_sense_is_said(terminal: Terminal, arguments: list[str], said: str) -> None:
    ended = terminal.run("copy", *arguments)
    assert (ended.status, said in ended.stderr) == (ExitStatus.USAGE, True), ended.stderr
    assert "hint: " in ended.stderr


def test_a_bucket_must_be_told_to_take_what_is_plain(terminal: Terminal) -> None:
    toml = terminal.configuration.read_text()
    s3 = '[targets.bucket]\ntype = "s3"\nbucket = "b"\nendpoint = "https://127.0.0.1:1"\nregion = "x"\n'
    terminal.configuration.write_text(toml + s3)
    ended = terminal.run("copy", "r1", "--from", "vault", "--to", "bucket")
    assert ended.status == ExitStatus.REFUSED
    assert "error: run r1 is not encrypted, and target bucket is not on this machine" in ended.stderr


def test_what_lies_beside_a_copy_is_told_and_notified(
    terminal: Terminal, offsite: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = DirectoryTarget.publish

    def beside_a_note(self: DirectoryTarget, *args: Any, **keys: Any) -> None:
        (Path(self.location("nightly", "r1")) / "Thumbs.db").write_text("a thumb")
        publish(self, *args, **keys)

    monkeypatch.setattr(DirectoryTarget, "publish", beside_a_note)
    with web_server(WebPeer()) as peer:
        with terminal.configuration.open("a") as file:
            file.write(f'\n[notifications.all]\ntype = "webhook"\nurl = "http://127.0.0.1:{peer.port}/"\n')
        ended = terminal.run("copy", "r1", "--from", "vault", "--to", "offsite")
    assert (ended.status, "Thumbs.db" in ended.stderr) == (ExitStatus.ATTENTION, True)
    ((_, _, body),) = peer.requests
    found = json.loads(body)
    assert (found["kind"], found["subject"], found["backed_up"]) == ("attention", "copy r1", False)
    assert "run r1 of job nightly needs attention after its copy: beside" in found["text"]
