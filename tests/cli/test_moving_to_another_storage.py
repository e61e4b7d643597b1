"""The page "Moving to another storage", walked: nothing is lost on the way, and the old storage ends empty-handed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd import wiring
from backupd.config import Configuration, JobConfig
from backupd.operations.tools import Tools
from backupd.targets import Target
from backupd.vocabulary.errors import ExitStatus
from tests.binlog_segments import BEGAN, FIRST
from tests.cli.terminal import Ended, Terminal
from tests.cli.test_drill_command import Drills
from tests.story.world import World


class Move:
    """A host whose job has two backups on `old`, and a person who edits its configuration."""

    def __init__(self, terminal: Terminal, world: World) -> None:
        self.terminal, self.world = terminal, world
        self.old, self.new = world.base / "old", world.base / "new"
        self.base = terminal.configuration.read_text().partition("[targets.vault]")[0]
        for folder in (self.old, self.new):
            folder.mkdir()

    def configure(self, *targets: str, has: tuple[str, ...] = ("old", "new"), more: str = "") -> None:
        tables = "".join(f'[targets.{name}]\ntype = "directory"\npath = "{self.world.base / name}"\n' for name in has)
        job = f'[jobs.nightly]\nhost = "db1"\ntargets = {list(targets)}\n[jobs.nightly.settle]\nwindows = 1\n'
        text = f"{self.base}{tables}{job}baseline_windows = 1\n{more}".replace("'", '"')
        self.terminal.configuration.write_text(text)

    def type(self, *arguments: str) -> Ended:
        ended = self.terminal.run(*arguments)
        assert ended.status == ExitStatus.OK, ended.stderr
        return ended

    def on(self, folder: Path) -> set[str]:
        return {path.parent.name for path in (folder / self.world.name / "nightly").glob("*/manifest.json")}


@pytest.fixture
def move(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Move:
    real: Callable[[Configuration, str, str], Target] = wiring.target
    terminal = Terminal(world, monkeypatch, capsys)

    def tools(configuration: Configuration, job: JobConfig, machine: str) -> Tools:
        targets = tuple(real(configuration, name, machine) for name in job.targets)
        return replace(world.tools_of(machine), targets=targets)

    monkeypatch.setattr(wiring, "target", real)
    monkeypatch.setattr(wiring, "tools", tools)
    return Move(terminal, world)


@pytest.mark.thorough
def test_all_backups_move_and_the_old_storage_is_pruned_by_the_last_rule_it_had(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    move.configure("old", has=("old",), more="[jobs.nightly.retention]\nkeep_last = 3\n")
    for run_id in ("r1", "r2"):
        move.type("run", "nightly", "--run-id", run_id)

    move.configure("old", "new", more="[jobs.nightly.retention]\nkeep_last = 3\n")
    move.type("config", "check")
    assert "target new: writable" in move.type("check", "nightly").stdout
    move.type("run", "nightly", "--run-id", "r3")
    assert (move.on(move.old), move.on(move.new)) == ({"r1", "r2", "r3"}, {"r3"})

    copied = move.type("copy", "--missing", "--from", "old", "--to", "new")
    assert [line.split()[2] for line in copied.stdout.splitlines()] == ["r2", "r1"]
    assert move.on(move.new) == {"r1", "r2", "r3"}
    verified = move.type("verify", "--job", "nightly", "--target", "new")
    assert verified.stdout.count("on target new: all of it read back") == 3
    monkeypatch.setattr("backupd.operations.restore.drill.drill", drills := Drills())
    move.type("drill", "--target", "new")
    assert drills.of == ["r3"]

    move.configure("new", more="[jobs.nightly.retention]\nkeep_last = 1\n")
    planned = move.type("prune", "--dry-run")
    said = "job nightly does not use target old, which has 3 of its backups; they are pruned by the last rule"
    assert said in planned.stderr
    fates = {tuple(line.split()[1:3]): line.split()[7] for line in planned.stdout.splitlines()[1:]}
    assert [fates["old", run_id] for run_id in ("r1", "r2", "r3")] == ["keep", "keep", "keep"]
    assert "3 backups on old, the newest" in (shown := move.type("status").stdout)
    assert shown.count("not among the job's targets") == 1
    document = move.type("status", "--json").document["jobs"][0]
    assert {one["target"]: one["in_job"] for one in document["stored"]} == {"new": True, "old": False}
    move.type("run", "nightly", "--run-id", "r4")
    assert (move.on(move.old), "r4" in move.on(move.new)) == ({"r1", "r2", "r3"}, True)

    move.configure("new", more="[jobs.nightly.retention.old]\nkeep_last = 1\n")
    assert (
        "target old, which has 3 of its backups; they are pruned by the target's own rule" in move.type("prune").stderr
    )
    assert move.on(move.old) == {"r3"}

    move.configure("new", has=("new",))
    left = move.type("prune")
    assert "they stay, because the configuration no longer has that target" in left.stderr
    assert "on target new: all of it read back" in move.type("verify", "r4").stdout
    assert move.on(move.old) == {"r3"}


def test_a_target_that_got_copies_only_is_never_pruned_without_a_rule(move: Move) -> None:
    move.configure("old", more="[jobs.nightly.retention]\nkeep_last = 1\n")
    move.type("run", "nightly", "--run-id", "r1")
    move.type("copy", "r1", "--from", "old", "--to", "new")
    move.type("run", "nightly", "--run-id", "r2")
    pruned = move.type("prune")
    assert "they stay, because no rule was ever set: see [jobs.nightly.retention.new]" in pruned.stderr
    assert (move.on(move.old), move.on(move.new)) == ({"r2"}, {"r1"})


def test_the_history_gets_new_readers_on_the_way(move: Move) -> None:
    """ "New recipients for old backups": nothing was encrypted, then for a key that was lost to somebody."""
    from pyrage import x25519

    keys = [x25519.Identity.generate() for _ in range(2)]
    lost, new = (str(key.to_public()) for key in keys)
    for name, key in zip(("lost.key", "new.key"), keys, strict=True):
        (move.world.base / name).touch(mode=0o600)
        (move.world.base / name).write_text(f"{key}\n")
    move.configure("old", more=f"[jobs.nightly.encryption]\nrecipients = ['{lost}']\n")
    move.type("run", "nightly", "--run-id", "r1")
    words = ("copy", "--missing", "--from", "old", "--to", "new", "--recipients", new)
    copied = move.type(*words, "--identity", str(move.world.base / "lost.key"))
    assert f"target new, encrypted for {new}: " in copied.stdout
    shown = move.type("show", "r1").stdout
    assert all(f"read back and equal, encrypted for {readers})" in shown for readers in (lost, new))
    restore = ("restore", "r1", "--target", "new", "--to", str(move.world.base / "out"), "--identity")
    assert move.terminal.run(*restore, str(move.world.base / "lost.key")).status == ExitStatus.USAGE
    move.type(*restore, str(move.world.base / "new.key"))
    assert "nothing is missing" in move.type(*words).stdout


def test_it_is_told_that_no_copy_takes_the_binlog_archive_along(move: Move) -> None:
    move.configure("old", has=("old",))
    move.type("run", "nightly", "--run-id", "r1")
    with move.world.catalogue() as catalogue:
        segment = replace(FIRST, machine=catalogue.identity().name)
        catalogue.add_segment(segment, spooled=False)
        catalogue.segment_stored(segment.name, "old", at=BEGAN)
    move.configure("old", "new")
    for _ in range(2):
        ended = move.terminal.run("copy", "--missing", "--from", "old", "--to", "new")
        assert ended.status == ExitStatus.ATTENTION
        said = "the binlog archive of job nightly is not copied: 1 segment is on target old but not on target new"
        assert said in ended.stderr
