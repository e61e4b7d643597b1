"""`backupd identity`: which machine a catalogue belongs to, and what another machine may do with it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from backupd import wiring
from backupd.operations.ownership import signer_of
from backupd.policy.signing import KEY_FILE
from backupd.vocabulary.errors import ExitStatus, TargetError
from backupd.vocabulary.records import HoldingKind
from backupd.wiring import target as real_target
from tests.cli.terminal import Terminal
from tests.story.test_identity import clone
from tests.story.test_recover import die_at
from tests.story.world import World


def cloned(world: World) -> None:
    """The machine is another from now on: its catalogue came with the disk."""
    world.machine = replace(world.machine, marks={"machine-id": "a clone's"})


def test_show_tells_the_machine_s_name_and_that_it_is_this_one(terminal: Terminal, world: World) -> None:
    with world.catalogue() as catalogue:
        name = catalogue.identity().name
    shown = terminal.run("identity", "show")
    assert name in shown.stdout
    assert "this machine, by its machine-id" in shown.stdout
    assert world.public_key in shown.stdout
    document = terminal.run("identity", "show", "--json").document
    assert document["public_key"] == world.public_key
    assert (document["name"], document["this_machine"], document["bound_to"]) == (name, True, ["machine-id"])


@pytest.mark.parametrize(
    "command",
    [
        ("run", "nightly"), ("prune",), ("prune", "--dry-run"), ("recover",), ("verify", "r1"), ("drill", "r1"),
        ("pin", "r1", "--note", "mine"), ("unpin", "r1"), ("cancel", "r1"), ("probe", "nightly"),
        ("catalogue", "rebuild", "--target", "vault"),
    ],
)  # fmt: skip
def test_with_a_copied_catalogue_nothing_is_changed_by(
    terminal: Terminal, world: World, command: tuple[str, ...]
) -> None:
    world.back_up()
    before = world.stored(), world.row(), world.host.lvs
    cloned(world)
    ended = terminal.run(*command)
    assert ended.status == ExitStatus.REFUSED
    assert "was the catalogue copied, or this machine cloned?" in ended.stderr
    assert "`backupd identity new`" in ended.stderr
    assert (world.stored(), world.row(), world.host.lvs) == before


@pytest.mark.parametrize("command", [("history",), ("show", "r1"), ("identity", "show"), ("audit", "list")])
def test_with_a_copied_catalogue_one_can_still_read(terminal: Terminal, world: World, command: tuple[str, ...]) -> None:
    world.back_up()
    cloned(world)
    assert terminal.run(*command).status == ExitStatus.OK


def test_with_a_copied_catalogue_one_can_still_restore(terminal: Terminal, world: World) -> None:
    world.back_up()
    cloned(world)
    assert terminal.run("restore", "r1", "--to", str(world.base / "restored")).status == ExitStatus.OK
    assert (world.base / "restored" / "ibdata1").exists()


def test_a_clone_gets_a_name_of_its_own_and_the_original_s_backups_stay(terminal: Terminal, world: World) -> None:
    world.back_up("r1")
    before = world.name
    stored = world.target.location("nightly", "r1")
    cloned(world)
    assert terminal.run("identity", "new").status == ExitStatus.USAGE, (
        "confirmation is needed, and stdin is not a terminal"
    )
    world.machine = replace(world.machine, host="db2")
    ended = terminal.run("identity", "new", "--yes")
    assert ended.status == ExitStatus.OK
    with world.catalogue() as catalogue:
        identity = catalogue.identity()
        assert catalogue.on_target("nightly", "vault") == {}
        assert [entry.event for entry in catalogue.audit_entries(limit=2)] == ["key-known", "identity-new"]
        (key,) = catalogue.keys(identity.name)
        assert key not in catalogue.keys(before)
    assert key in ended.stdout
    assert identity.name.startswith("db2-")
    assert terminal.run("prune").status == ExitStatus.OK
    assert (Path(stored) / "manifest.json").exists()
    assert world.row("r1").backup is not None
    assert terminal.run("restore", "r1", "--to", str(world.base / "restored")).status == ExitStatus.OK


def test_a_clone_is_told_how_to_remove_the_snapshot_that_came_with_its_disk(terminal: Terminal, world: World) -> None:
    """The image was taken in the middle of a copy. By its tag the snapshot is the other machine's."""
    world.make_orders_large()
    die_at(world, "in mid-copy")
    cloned(world)
    ended = terminal.run("identity", "new", "--yes")
    assert "To remove it here: lvremove labvg/backupd-r1\n" in ended.stderr
    with world.catalogue() as catalogue:
        left = [holding.kind for _, holding in catalogue.holdings()]
    assert not {HoldingKind.SNAPSHOT, HoldingKind.PARTIAL} & set(left)
    assert terminal.run("recover").status == ExitStatus.OK
    assert set(world.host.lvs) == {"backupd-r1"}
    ended = terminal.run("run", "nightly", "--run-id", "r2")
    assert ended.status == ExitStatus.REFUSED
    assert "for another machine's, or one that nobody needs: lvremove VG/LV" in ended.stderr


def test_a_machine_on_new_hardware_goes_on_with_its_identity(terminal: Terminal, world: World) -> None:
    world.back_up("r1")
    cloned(world)
    assert terminal.run("identity", "adopt", "--yes").status == ExitStatus.OK
    assert "last written by this catalogue: record" in terminal.run("identity", "show").stdout
    assert terminal.run("run", "nightly", "--run-id", "r2").status == ExitStatus.OK


def test_check_tells_whose_the_catalogue_is_and_whether_somebody_else_writes_there(
    terminal: Terminal, world: World
) -> None:
    world.back_up("r1")
    first, *others = terminal.run("check", "nightly").stdout.splitlines()
    assert first == f"ok       identity: {world.name}, this machine by its machine-id"
    assert {line.split()[0] for line in others} == {"ok"}
    before = world.stored()
    cloned(world)
    ended = terminal.run("check", "nightly")
    assert ended.status == ExitStatus.REFUSED
    assert f"refused  identity: this catalogue belongs to another machine, {world.name}: was" in ended.stdout
    assert terminal.run("identity", "adopt", "--yes").status == ExitStatus.OK
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    elsewhere = terminal.run("check", "nightly")
    assert (elsewhere.status, "refused  target vault: " in elsewhere.stdout) == (ExitStatus.REFUSED, True)
    assert world.stored() == before


def test_check_warns_where_a_clone_could_not_be_told(terminal: Terminal, world: World) -> None:
    world.machine = replace(world.machine, marks={})
    ended = terminal.run("check", "nightly")
    assert ended.status == ExitStatus.OK
    assert f"warning  identity: {world.name}, not bound to any id" in ended.stdout


def test_after_a_lost_catalogue_a_machine_s_name_is_taken_over_and_its_backups_are_known_again(
    terminal: Terminal, world: World
) -> None:
    world.back_up("r1")
    old = world.name
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    world.machine = replace(world.machine, host="reinstalled")
    assert old not in terminal.run("identity", "show").stdout
    unknown = terminal.run("identity", "adopt", "db9-00000000", "--yes")
    assert (unknown.status, f"machines on the targets: {old}" in unknown.stderr) == (ExitStatus.USAGE, True)
    assert terminal.run("identity", "adopt", old, "--yes").status == ExitStatus.OK
    assert terminal.run("catalogue", "rebuild", "--target", "vault").status == ExitStatus.OK
    with world.catalogue() as catalogue:
        assert set(catalogue.on_target("nightly", "vault")) == {"r1"}


def test_a_spare_machine_that_takes_over_a_lost_one_s_name_has_what_that_backed_up_meanwhile(
    terminal: Terminal, world: World
) -> None:
    """Its own catalogue may be years old by then."""
    lost, old = world.machine, world.name
    spare = replace(lost, host="spare", marks={"machine-id": "the spare's"})
    folder, aside = world.places.catalogue.parent, world.base / "the spare's"

    def files() -> list[Path]:
        return [*folder.glob("catalogue.sqlite*"), *folder.glob(KEY_FILE)]

    for file in files():
        file.unlink()
    world.machine = spare
    with world.catalogue() as catalogue:
        signer_of(catalogue, spare)
    aside.mkdir()
    for file in files():
        file.rename(aside / file.name)
    world.machine = lost
    world.back_up("r1")
    public = world.public_key
    for file in files():
        file.unlink()
    for file in aside.iterdir():
        file.rename(folder / file.name)
    world.machine = spare
    assert terminal.run("identity", "adopt", old, "--yes").status == ExitStatus.OK
    rebuilt = terminal.run("catalogue", "rebuild", "--target", "vault", "--trust", public)
    assert (rebuilt.status, "run r1: added" in rebuilt.stdout) == (ExitStatus.OK, True), rebuilt.stderr


def test_after_a_lost_catalogue_a_dead_run_s_snapshot_goes_once_its_machine_s_name_is_taken_over(
    terminal: Terminal, world: World
) -> None:
    """1e: until then nobody can tell it from another host's."""
    world.back_up("r1")
    die_at(world, "target.writing", "r2")
    before = world.name
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    world.machine = replace(world.machine, host="reinstalled")
    assert terminal.run("recover").status == 0
    assert set(world.host.lvs) == {"backupd-r2"}
    assert terminal.run("identity", "adopt", before, "--yes").status == 0
    ended = terminal.run("recover")
    assert ended.status == 0
    assert "snapshot labvg/backupd-r2" in ended.stdout
    assert (world.host.lvs, world.host.mounted) == ({}, {})


def test_another_machine_s_backups_can_be_entered_to_restore_from_and_are_never_pruned(
    terminal: Terminal, world: World
) -> None:
    world.back_up("r1")
    other = world.name
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    public = world.public_key
    world.places.catalogue.with_name("signing.key").unlink()
    world.machine = replace(world.machine, host="db2", marks={"machine-id": "db2"})
    empty = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert f"no backups of this machine (db2-{world.name[-8:]}), but has backups of {other}: to restore" in empty.stderr
    mistyped = terminal.run("catalogue", "rebuild", "--target", "vault", "--from", "db1-00000000")
    assert (mistyped.status, f"hint: machines on the targets: {other}" in mistyped.stderr) == (ExitStatus.USAGE, True)
    rebuild = ("catalogue", "rebuild", "--target", "vault", "--from", other)
    refused = terminal.run(*rebuild)
    assert (refused.status, public in refused.stderr) == (ExitStatus.VERIFICATION, True)
    assert terminal.run(*rebuild, "--trust", public[:-4]).status == ExitStatus.USAGE
    assert terminal.run(*rebuild, "--trust", public).status == ExitStatus.OK
    assert terminal.run("prune").status == ExitStatus.OK
    assert world.row("r1").backup is not None
    assert (world.vault / other / "nightly" / "r1" / "manifest.json").exists()
    assert terminal.run("restore", "r1", "--to", str(world.base / "restored")).status == ExitStatus.OK


def test_where_nobody_may_list_the_machines_of_a_target_one_s_folder_is_read_all_the_same(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder to drop things into is as good as another."""

    def refuse(_target: object) -> NoReturn:
        raise TargetError("permission denied", hint="let backupd list it")

    world.back_up("r1")
    other, public = world.name, world.public_key
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    world.places.catalogue.with_name("signing.key").unlink()
    world.machine = replace(world.machine, host="db2", marks={"machine-id": "db2"})
    monkeypatch.setattr(type(world.target), "machines", refuse)
    rebuild = ("catalogue", "rebuild", "--target", "vault")
    assert terminal.run(*rebuild).status == ExitStatus.OK, "there is nothing of this machine"
    assert terminal.run(*rebuild, "--from", other, "--trust", public).status == ExitStatus.OK
    assert terminal.run("restore", "r1", "--to", str(world.base / "restored")).status == ExitStatus.OK


def test_show_tells_where_another_machine_wrote_last(terminal: Terminal, world: World) -> None:
    world.back_up("r1")
    record = world.target.owner()
    assert record is not None
    by = replace(record, number=record.number + 1, incarnation="0" * 32, host="the-clone")
    assert world.target.succeed(by)
    (target,) = terminal.run("identity", "show", "--json").document["targets"]
    assert (target["ours"], target["host"], target["number"]) == (False, "the-clone", by.number)
    assert "ANOTHER MACHINE" in terminal.run("identity", "show").stdout
    ended = terminal.run("run", "nightly")
    assert ended.status == ExitStatus.REFUSED
    assert "by host the-clone; was this one cloned?" in ended.stderr


@pytest.fixture
def vault_and_offsite(terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The configuration has two targets; the world's job writes to the first only."""
    (world.base / "offsite").mkdir()
    more = f'[targets.offsite]\ntype = "directory"\npath = "{world.base}/offsite"\n'
    terminal.configuration.write_text(terminal.configuration.read_text() + more)
    monkeypatch.setattr(wiring, "target", real_target)
    return terminal


def owned_by(terminal: Terminal) -> dict[str, int | None]:
    """By target: the number of its last owner record."""
    return {one["target"]: one["number"] for one in terminal.run("identity", "show", "--json").document["targets"]}


def test_a_target_that_is_down_keeps_no_other_from_being_taken_over(vault_and_offsite: Terminal, world: World) -> None:
    world.back_up("r1")
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    world.machine = replace(world.machine, host="reinstalled")
    name = world.target.machine
    (world.base / "offsite").rename(world.base / "down")
    ended = vault_and_offsite.run("identity", "adopt", name, "--yes")
    assert ended.status == ExitStatus.TARGET
    assert "target vault: taken over" in ended.stderr
    assert "target offsite: NOT taken over: target offsite" in ended.stderr
    assert "`backupd identity adopt --target T`" in ended.stderr
    assert owned_by(vault_and_offsite) == {"vault": 2, "offsite": None}
    (world.base / "down").rename(world.base / "offsite")
    ended = vault_and_offsite.run("identity", "adopt", "--target", "offsite", "--yes")
    assert (ended.status, "target vault" in ended.stderr) == (ExitStatus.OK, False)
    assert owned_by(vault_and_offsite) == {"vault": 2, "offsite": 1}


def test_a_target_that_the_configuration_does_not_have_is_not_taken_over(
    vault_and_offsite: Terminal, world: World
) -> None:
    ended = vault_and_offsite.run("identity", "adopt", "--target", "nowhere", "--yes")
    assert (ended.status, "no target 'nowhere'" in ended.stderr) == (ExitStatus.USAGE, True)
    with world.catalogue() as catalogue:
        assert catalogue.audit_entries(limit=1) == []


def test_what_a_clone_took_under_this_machine_s_name_is_not_entered_as_its_own(
    terminal: Terminal, world: World, tmp_path: Path
) -> None:
    """It has the machine's ids and key; its data is its own by then."""
    world.back_up("r1")
    other = clone(world, tmp_path / "clone")
    shutil.copy(world.places.catalogue.with_name(KEY_FILE), other.places.catalogue.with_name(KEY_FILE))
    other.back_up("r2")
    assert terminal.run("run", "nightly", "--run-id", "r3").status == ExitStatus.REFUSED
    assert terminal.run("identity", "adopt", "--yes").status == ExitStatus.OK
    ended = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert (ended.status, "by another catalogue" in ended.stderr) == (ExitStatus.VERIFICATION, True)
    with world.catalogue() as catalogue:
        assert set(catalogue.on_target("nightly", "vault")) == {"r1"}
    assert terminal.run("catalogue", "rebuild", "--target", "vault", "--set-back").status == ExitStatus.OK
