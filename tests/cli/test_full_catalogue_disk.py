"""The disk of the catalogue fills up at every write of a command: a sentence, nothing lost, and all well afterwards.

Whatever a command could not write, what was acknowledged before stays, the host is as it was, and once there is room
again the same command, or `recover`, sets all right.
"""

import shutil
from collections.abc import Iterator
from itertools import count

import pytest

from backupd.operations.restore import drill
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import GOOD, Check, RunStatus
from tests.cli.terminal import Ended, Terminal
from tests.full_disk import no_room_from_write
from tests.story.test_recover import die_at
from tests.story.world import World

pytestmark = pytest.mark.exhaustive

FULL = "no space left"
GOOD_CHECKS = (Check("tables", ok=True, expected="3", found="3"),)


@pytest.fixture
def terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A host that has two backups and keeps one, and whose drills ask no server."""
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(f"{toml}\n[jobs.nightly.retention]\nkeep_last = 4\n")
    monkeypatch.setattr(drill, "_ask_the_server", lambda _copy, _telling: (GOOD_CHECKS, None))
    for run_id in ("old", "new"):
        assert terminal.run("run", "nightly", "--run-id", run_id).status == ExitStatus.OK
    return terminal


def with_full_disk(terminal: Terminal, *arguments: str) -> Iterator[tuple[int, Ended]]:
    """The command with a disk that is full from its first write on, then from its second, until none is left."""
    for number in count(1):
        with no_room_from_write(number) as writes:
            ended = terminal.run(*arguments)
        if writes.ended < number:
            assert ended.status == ExitStatus.OK, ended.stderr
            assert number > 1, "it writes nothing"
            return
        yield number, ended
    raise AssertionError("for ever")


def require_a_sentence(ended: Ended) -> None:
    """The full disk is told, with what to do, and as no bug."""
    assert FULL in ended.stderr
    assert "free space on its file system" in ended.stderr
    assert ended.status in (ExitStatus.CATALOGUE, ExitStatus.ATTENTION, ExitStatus.CLEANUP), ended.stderr
    assert "Traceback" not in ended.stderr


def require_all_well(terminal: Terminal) -> None:
    """There is room again: `recover` sets all right, and the record agrees with itself and with what is stored."""
    recovered = terminal.run("recover")
    assert recovered.status == ExitStatus.OK, recovered.stderr
    assert terminal.world.left() == []
    assert terminal.run("catalogue", "check").status == ExitStatus.OK
    audited = terminal.run("audit", "verify")
    assert audited.status == ExitStatus.OK, audited.stdout + audited.stderr


def stored(world: World) -> set[str]:
    """Runs that have a finished backup in the vault."""
    return {manifest.parent.name for manifest in world.backups.glob("*/manifest.json")}


def test_a_run_loses_no_backup_and_leaves_nothing(terminal: Terminal) -> None:
    world = terminal.world
    for number in count(1):
        run_id = f"r{number}"
        with no_room_from_write(number) as writes:
            ended = terminal.run("run", "nightly", "--run-id", run_id)
        assert not world.database.locked
        assert (world.host.lvs, world.host.mounted) == ({}, {})
        if writes.ended < number:
            break
        require_a_sentence(ended)
        require_all_well(terminal)
        assert terminal.run("prune").status == ExitStatus.OK  # what one has removed and could not record
        with world.catalogue() as catalogue:
            known = {run.run_id: run for run in catalogue.runs(limit=None)}
        assert {"old", "new"} <= known.keys()
        assert known["old"].status is known["new"].status is RunStatus.SUCCESS
        there = {
            run.run_id for run in known.values() if run.status in GOOD and any(one.is_there for one in run.backups)
        }
        assert stored(world) == there, number
        if ended.status == ExitStatus.OK:
            assert run_id in there
    assert number > 10
    assert ended.status == ExitStatus.OK


@pytest.mark.parametrize("command", ["verify", "drill", "pin"])
def test_a_command_about_a_backup_says_so_and_changes_nothing_that_was_known(terminal: Terminal, command: str) -> None:
    note = ("--note", "keep it") if command == "pin" else ()
    for _, ended in with_full_disk(terminal, command, "new", *note):
        require_a_sentence(ended)
        require_all_well(terminal)
        for run_id in ("old", "new"):
            assert terminal.run("show", run_id, "--json").document["status"] == "success"
        assert stored(terminal.world) == {"old", "new"}


def test_a_pruning_removes_nothing_that_stays_in_the_record(terminal: Terminal) -> None:
    toml = terminal.configuration.read_text()
    terminal.configuration.write_text(toml.replace("keep_last = 4", "keep_last = 1"))
    for _, ended in with_full_disk(terminal, "prune"):
        require_a_sentence(ended)
        assert "new" in stored(terminal.world)
        require_all_well(terminal)
    with terminal.world.catalogue() as catalogue:
        assert [one.is_there for one in catalogue.backups_of("old")] == [False]
        assert [one.is_there for one in catalogue.backups_of("new")] == [True]


def test_a_recovery_is_taken_up_where_it_was(terminal: Terminal) -> None:
    die_at(terminal.world, "in mid-copy", "dead")
    for _, ended in with_full_disk(terminal, "recover"):
        assert FULL in ended.stderr
    require_all_well(terminal)


def test_a_catalogue_is_rebuilt_after_all(terminal: Terminal) -> None:
    world = terminal.world
    kept = world.base / "kept.sqlite"
    shutil.copy(world.places.catalogue, kept)
    for number in count(1):
        world.places.catalogue.unlink()
        with no_room_from_write(number) as writes:
            ended = terminal.run("catalogue", "rebuild", "--target", "vault")
        if writes.ended < number:
            break
        assert FULL in ended.stderr
        again = terminal.run("catalogue", "rebuild", "--target", "vault")
        assert again.status == ExitStatus.OK, again.stderr
        with world.catalogue() as catalogue:
            assert {run.run_id for run in catalogue.runs()} == {"old", "new"}
    assert ended.status == ExitStatus.OK


def test_a_restore_goes_on_though_its_end_cannot_be_recorded(terminal: Terminal) -> None:
    """A person who needs the data is kept from it by no record; that there is none is told."""
    to = terminal.world.base / "restored"
    for number in (1, 2):
        with no_room_from_write(number):
            ended = terminal.run("restore", "new", "--to", str(to / str(number)))
        assert FULL in ended.stderr
        assert (to / str(number) / "ibdata1").is_file()
