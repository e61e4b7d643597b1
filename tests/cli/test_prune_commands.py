"""`backupd prune`, `pin`, `unpin` and `catalogue rebuild` as a person meets them, on backups in a folder."""

import os
import re
import shutil
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backupd import wiring
from backupd.config import JobConfig
from backupd.host.claims import Claims
from backupd.operations.ownership import ownership_of
from backupd.operations.recorded_copy import copy_on
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import ExitStatus, TargetError, VerificationError
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.storage import Backup
from tests.cli.terminal import Terminal
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import MACHINE
from tests.story.world import World

NOW = datetime.now(UTC)


@pytest.fixture
def vault(world: World) -> DirectoryTarget:
    return DirectoryTarget("vault", world.vault, machine=MACHINE)


@pytest.fixture
def terminal(
    world: World, vault: DirectoryTarget, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """`backupd` on a host whose job keeps two backups, and has three."""
    terminal = Terminal(world, monkeypatch, capsys)
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(f"{toml}\n[jobs.nightly.retention]\nkeep_last = 2\n")
    monkeypatch.setattr(wiring, "target", lambda configuration, name, machine: vault)
    with world.catalogue() as catalogue:
        ownership_of(catalogue, world.tools).take(vault)
        for number in (1, 2, 3):
            catalogue.import_run(store(world, vault, f"r{number}", age=timedelta(days=4 - number)))
    return terminal


def store(world: World, vault: DirectoryTarget, run_id: str, *, age: timedelta) -> RunDetails:
    """A backup in the folder, and what the catalogue is to know of it."""
    with vault.writing("nightly", run_id, "data-1.tar.zst") as writer:
        writer.write(b"12345")
    manifest = replace(MANIFEST, run_id=run_id)
    vault.publish(manifest)
    os.utime(world.backups / run_id / "manifest.json", 2 * ((NOW - age).timestamp(),))
    backups = (copy_on(vault, manifest),)
    return RunDetails(run_id, "nightly", "db1", MACHINE, RunStatus.SUCCESS, NOW - age, backups=backups)


def lying(world: World) -> set[str]:
    return {path.name for path in (world.backups).iterdir()}


def test_a_dry_run_prints_the_plan_with_its_reasons_and_removes_nothing(terminal: Terminal, world: World) -> None:
    ended = terminal.run("prune", "nightly", "--dry-run")
    assert ended.status == ExitStatus.OK
    rows = [re.split(r" {2,}", line) for line in ended.stdout.splitlines()]
    assert rows[0] == ["JOB", "TARGET", "RUN", "STORED (UTC)", "SIZE", "FATE", "REASON"]
    assert [[row[2], *row[4:]] for row in rows[1:]] == [
        ["r3", "5 B", "keep", "last good one, last 1 of 2"],
        ["r2", "5 B", "keep", "last 2 of 2"],
        ["r1", "5 B", "remove", "expired: not among the last 2"],
    ]
    assert lying(world) == {"r1", "r2", "r3"}


def test_without_it_what_was_planned_is_done(terminal: Terminal, world: World) -> None:
    ended = terminal.run("prune")
    assert (ended.status, "removed  expired: not among the last 2" in ended.stdout) == (ExitStatus.OK, True)
    assert lying(world) == {"r2", "r3"}
    history = terminal.run("history").stdout.splitlines()
    assert re.split(r" {2,}", history[-1])[0::9] == ["r1", "removed"]


def test_a_stop_signal_ends_it_before_the_next_job(
    terminal: Terminal, world: World, vault: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = terminal.configuration.read_text()
    job = toml[toml.index("[jobs.nightly]") :]
    terminal.configuration.write_text(toml + job.replace("jobs.nightly", "jobs.weekly"))
    asked: list[str | None] = []

    def backups(job: str | None = None) -> list[Backup]:
        asked.append(job)
        os.kill(os.getpid(), signal.SIGINT)
        return []

    monkeypatch.setattr(vault, "backups", backups)
    assert terminal.run("prune").status == ExitStatus.CANCELLED
    assert (asked, lying(world)) == (["nightly"], {"r1", "r2", "r3"})


def test_the_worst_of_what_went_wrong_is_the_exit_status(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = terminal.configuration.read_text()
    job = toml[toml.index("[jobs.nightly]") :]
    terminal.configuration.write_text(toml + job.replace("jobs.nightly", "jobs.weekly"))
    errors = {"nightly": TargetError("away"), "weekly": VerificationError("a proof is forged")}

    def failing(job: JobConfig, *_: object, **__: object) -> None:
        raise errors[job.name]

    monkeypatch.setattr("backupd.operations.upkeep.prune.prune", failing)
    ended = terminal.run("prune")
    assert (ended.status, "error: a proof is forged\nnote: away\n" in ended.stderr) == (ExitStatus.VERIFICATION, True)


def test_json_has_every_backup_with_its_reason(terminal: Terminal) -> None:
    document = terminal.run("prune", "--json").document
    assert (document["schema"], document["dry_run"], document["vanished"], document["failures"]) == (1, False, [], [])
    assert [(one["run_id"], one["keep"], one["removed"]) for one in document["backups"]] == [
        ("r3", True, False), ("r2", True, False), ("r1", False, True)
    ]  # fmt: skip
    assert set(document["backups"][0]) == {
        "job", "target", "run_id", "at", "bytes_stored", "keep", "reason", "removed"
    }  # fmt: skip


def test_a_pinned_backup_stays_until_it_is_unpinned(terminal: Terminal, world: World) -> None:
    ended = terminal.run("pin", "r1", "--note", "before the merger")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "run r1 is pinned: before the merger\n")
    assert "pinned: before the merger" in terminal.run("prune").stdout
    assert "before the merger" in terminal.run("history").stdout
    assert "before the merger, since " in terminal.run("show", "r1").stdout
    assert lying(world) == {"r1", "r2", "r3"}
    assert terminal.run("unpin", "r1").stdout == "run r1 is no longer pinned\n"
    assert terminal.run("unpin", "r1").stdout == "run r1 was not pinned\n"
    terminal.run("prune")
    assert lying(world) == {"r2", "r3"}


def test_what_is_being_removed_cannot_be_pinned_any_more(terminal: Terminal, world: World) -> None:
    with Claims(world.places.run).removing("r1"):
        ended = terminal.run("pin", "r1", "--note", "before the merger")
    assert (ended.status, ended.stdout) == (ExitStatus.BUSY, "")
    assert "error: backup r1 is held by `backupd prune` of backup r1" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pin", "r1"], "--note"),
        (["pin", "r9", "--note", "why"], "error: no run r9"),
        (["unpin", "r"], "error: more than one run begins with r"),
        (["catalogue", "rebuild"], "--target"),
    ],
)
def test_what_cannot_be_pinned_or_rebuilt_is_status_2(terminal: Terminal, arguments: list[str], sentence: str) -> None:
    ended = terminal.run(*arguments)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert sentence in ended.stderr


def test_a_run_without_a_backup_cannot_be_pinned(terminal: Terminal) -> None:
    terminal.run("prune")
    ended = terminal.run("pin", "r1", "--note", "too late")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "error: run r1 has no backup to pin" in ended.stderr


def test_a_target_that_is_not_there_is_status_8_and_changes_no_row(terminal: Terminal, world: World) -> None:
    world.vault.rename(world.base / "unmounted")
    ended = terminal.run("prune")
    assert (ended.status, ended.stdout) == (ExitStatus.TARGET, "")
    assert "error: pruning job nightly is incomplete: target vault: " in ended.stderr
    assert "removed" not in terminal.run("history").stdout


def test_a_job_that_has_no_backup_yet_says_so(terminal: Terminal, world: World, vault: DirectoryTarget) -> None:
    for run_id in lying(world):
        vault.remove("nightly", run_id)
    shutil.rmtree(world.vault)
    world.vault.mkdir()
    world.places.catalogue.unlink()
    assert (ended := terminal.run("prune")).stdout == "no backup yet\n"
    assert ended.status == ExitStatus.OK


def test_backups_of_a_job_that_has_another_name_by_now_stay_and_are_told(terminal: Terminal, world: World) -> None:
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(toml.replace("[jobs.nightly", "[jobs.daily"))
    ended = terminal.run("prune")
    assert (ended.status, lying(world)) == (ExitStatus.OK, {"r1", "r2", "r3"})
    assert "attention: the configuration has no job nightly: its 3 backups on target vault stay" in ended.stderr
    assert "attention" not in terminal.run("prune", "daily").stderr


def test_what_somebody_else_removed_is_told(terminal: Terminal, vault: DirectoryTarget) -> None:
    vault.remove("nightly", "r3")
    assert "warning: backup r3 of job nightly is no longer on target vault" in terminal.run("prune").stderr


def test_a_lost_catalogue_is_rebuilt_from_the_target(terminal: Terminal, world: World) -> None:
    world.places.catalogue.unlink()
    nothing = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert (nothing.status, nothing.stdout) == (ExitStatus.VERIFICATION, "0 new, 0 already known\n")
    assert "r1: run r1 is not signed: its origin is unknown" in nothing.stderr
    ended = terminal.run("catalogue", "rebuild", "--target", "vault", "--unsigned")
    assert "warning: --unsigned: the origin of these backups cannot be verified" in ended.stderr
    assert (ended.status, ended.stdout.splitlines()[-1]) == (ExitStatus.OK, "3 new, 0 already known")
    assert (
        "attention: pins are not stored on targets: `backupd prune --dry-run` shows which of these backups the next run"
        in ended.stderr
    )
    again = terminal.run("catalogue", "rebuild", "--target", "vault", "--json")
    assert (again.document["known"], again.stderr) == (["r1", "r2", "r3"], "")
    assert len(terminal.run("history").stdout.splitlines()) == 4


@pytest.mark.parametrize("asked", ["backups", "objects"])
def test_what_is_pruned_while_a_catalogue_is_rebuilt_is_not_entered_as_there(
    terminal: Terminal, world: World, vault: DirectoryTarget, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Once the target has been listed, or the manifest of the first one read."""
    ask = getattr(vault, asked)

    def answered_slowly(*about: str | None) -> object:
        found = ask(*about)
        monkeypatch.setattr(vault, asked, ask)
        terminal.run("prune")
        return found

    monkeypatch.setattr(vault, asked, answered_slowly)
    ended = terminal.run("catalogue", "rebuild", "--target", "vault", "--unsigned")
    assert (ended.status, world.row("r1").backup is not None) == (ExitStatus.OK, "r1" in lying(world))


def test_a_damaged_manifest_is_status_9_after_the_others_were_read(terminal: Terminal, world: World) -> None:
    world.places.catalogue.unlink()
    (world.backups / "r2" / "manifest.json").write_text("{")
    ended = terminal.run("catalogue", "rebuild", "--target", "vault", "--unsigned")
    assert (ended.status, ended.stdout.splitlines()[-1]) == (ExitStatus.VERIFICATION, "2 new, 0 already known")
    assert "error: not all backups could be added as good ones: r2: " in ended.stderr
