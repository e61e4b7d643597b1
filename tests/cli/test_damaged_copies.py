"""A copy that a drill or a restore finds damaged is broken from then on, also where another one gives what it lost."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd import wiring
from backupd.catalogue.store import Catalogue
from backupd.cli import moments
from backupd.config import load
from backupd.mysql.scratch import ScratchServer
from backupd.operations.restore import drill
from backupd.policy.moments import ToPosition
from backupd.targets import BackupSource, Target
from backupd.targets.names import is_proof
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import CatalogueError, ExitStatus, TargetError, UsageError, VerificationError
from backupd.vocabulary.records import Check
from backupd.vocabulary.storage import Manifest
from tests.cli.terminal import Terminal
from tests.cli.test_clone_command import Replica, serve_copies
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.stored import damaged
from tests.story.world import World

FRAME = "data-1.tar.zst, frame 1 of 1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host whose job has a second target, and whose run `r1` has a backup on both."""
    made = World(tmp_path, others=[MemoryTarget(name="offsite")])
    made.back_up()
    return made


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on that host, on which a server starts on whatever was restored."""
    made = Terminal(world, monkeypatch, capsys)
    made.configuration.write_text(
        made.configuration.read_text().replace('targets = ["vault"]', 'targets = ["vault", "offsite"]')
        + f'\n[targets.offsite]\ntype = "directory"\npath = "{world.vault}"\n'
    )
    targets: dict[str, Target] = {"vault": world.target, "offsite": world.others[0]}
    monkeypatch.setattr(wiring, "target", lambda configuration, name, machine: targets[name].of_machine(machine))
    monkeypatch.setattr(ScratchServer, "require_startable", lambda _server: "10.11.6")
    answer = (Check("tables", ok=True, expected="3", found="3"),)
    monkeypatch.setattr(drill, "_ask_the_server", lambda _copy, _telling: (answer, None))
    return made


def flip(world: World) -> None:
    path = world.backups / "r1" / "data-1.tar.zst"
    path.write_bytes(damaged(path.read_bytes()))


def broken(world: World) -> dict[str, str]:
    return {backup.target: backup.broken for backup in world.row().backups if backup.broken}


def with_proof(world: World) -> list[str]:
    return [
        target.name for target in (world.target, *world.others) if any(map(is_proof, target.objects("nightly", "r1")))
    ]


def test_a_drill_that_finds_a_copy_damaged_proves_the_other_alone_once_that_gave_it_all(
    terminal: Terminal, world: World
) -> None:
    flip(world)
    ended = terminal.run("drill", "r1")
    assert (ended.status, "proven in" in ended.stdout) == (ExitStatus.ATTENTION, True)
    assert f"attention: the copy of run r1 on target vault is broken: {FRAME}" in ended.stderr
    assert broken(world)["vault"].startswith(FRAME)
    assert with_proof(world) == [], "the index was the damaged one's"
    with world.catalogue() as catalogue:
        entries = {entry.event: entry.detail for entry in catalogue.audit_entries(limit=None)}
        assert any("on target vault is broken" in text for text in catalogue.run("r1").attention)
    assert (entries["drilled"]["ok"], entries["drilled"]["targets"]) == (True, ["offsite"])
    assert entries["found-broken"]["target"] == "vault"
    again = terminal.run("drill", "r1")
    assert (again.status, with_proof(world)) == (ExitStatus.OK, ["offsite"])


def test_a_good_drill_leaves_no_proof_beside_a_copy_that_it_has_not_read(terminal: Terminal, world: World) -> None:
    assert terminal.run("drill", "r1").status == ExitStatus.OK
    assert with_proof(world) == ["vault"]
    assert terminal.run("drill", "r1", "--target", "offsite").status == ExitStatus.OK
    assert with_proof(world) == ["vault", "offsite"]


def test_a_drill_that_fails_for_damage_is_told_beside_the_damaged_copy(terminal: Terminal, world: World) -> None:
    flip(world)
    assert terminal.run("drill", "r1", "--target", "vault").status == ExitStatus.VERIFICATION
    assert broken(world).keys() == {"vault"}
    assert with_proof(world) == ["vault"]
    with world.catalogue() as catalogue:
        (drilled,) = [entry.detail for entry in catalogue.audit_entries(limit=None) if entry.event == "drilled"]
    assert (drilled["ok"], drilled["targets"]) == (False, ["vault"])


def test_a_target_that_does_not_give_its_copy_is_not_broken_and_there_is_no_proof_of_either(
    terminal: Terminal, world: World
) -> None:
    (world.backups / "r1" / "data-1.tar.zst").unlink()
    assert terminal.run("drill", "r1").status == ExitStatus.OK
    assert (broken(world), with_proof(world)) == ({}, [])


def lose(world: World) -> None:
    (world.backups / "r1" / "manifest.json").write_text("{")


@pytest.mark.parametrize("damage", [flip, lose])
def test_a_restore_that_finds_a_copy_damaged_needs_attention(
    terminal: Terminal, world: World, damage: Callable[[World], None]
) -> None:
    damage(world)
    to = world.base / "restored"
    ended = terminal.run("restore", "r1", "--to", str(to))
    assert (ended.status, to.is_dir()) == (ExitStatus.ATTENTION, True)
    assert "attention: the copy of run r1 on target vault is broken: " in ended.stderr
    assert broken(world).keys() == {"vault"}
    with world.catalogue() as catalogue:
        restored = catalogue.audit_entries(limit=1)[0].detail
    assert (restored["outcome"], len(restored["attentions"])) == ("attention", 1)


def test_copies_that_are_each_damaged_elsewhere_are_restored_together_as_often_as_need_be(
    terminal: Terminal, world: World
) -> None:
    """`verify` has read one of them; the first restore finds the other one broken, and the second one both."""
    flip(world)
    offsite = world.others[0]
    (key,) = [key for key in offsite.stored if key[-1] == "index.jsonl.zst"]
    offsite.stored[key] = damaged(offsite.stored[key])
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "offsite", "index.jsonl.zst differs")
    for again in range(2):
        ended = terminal.run("restore", "r1", "--to", str(world.base / f"restored-{again}"))
        assert ended.status == ExitStatus.ATTENTION, ended.stderr
        assert broken(world).keys() == {"vault", "offsite"}
    assert "warning: the copy on target offsite is broken: " in ended.stderr


def test_copies_that_are_all_broken_lead_to_a_moment_too_where_the_run_is_named(
    terminal: Terminal, world: World
) -> None:
    """As the run is where an interrupted restore to a moment is continued."""
    terminal.configuration.write_text(f"{terminal.configuration.read_text()}\n[jobs.nightly.binlog]\n")
    configuration = load(terminal.configuration)
    with world.catalogue() as catalogue:
        position = catalogue.run("r1").position
        assert position is not None
        assert position.binlog_file is not None
        assert position.binlog_offset is not None
        own = ToPosition(BinlogPlace(position.binlog_file, position.binlog_offset))

        def way(run_id: str | None, target: str | None = None) -> list[str]:
            asked = moments.AskedMoment(own, run_id, job="nightly")
            found = moments.way_to(configuration, catalogue, asked, target=target, identities=None)
            return [copy.target.name for copy in found.copies]

        catalogue.found_broken("r1", "offsite", "index.jsonl.zst differs")
        assert way(None) == ["vault", "offsite"]
        catalogue.found_broken("r1", "vault", "frame 7 differs")
        assert (way("r1"), way("r1", "offsite")) == (["vault", "offsite"], ["offsite"])
        with pytest.raises(UsageError, match="there is no good backup"):
            way(None)
        catalogue.removed("r1", "offsite", because="it was to be")
        with pytest.raises(UsageError, match="all copies of run r1 are broken") as refused:
            way("r1")
        assert "--target vault" in refused.value.hint
        catalogue.removed("r1", "vault", because="it was to be")
        with pytest.raises(UsageError, match="there is no good backup"):
            way("r1")


def test_a_broken_copy_is_asked_after_the_others(terminal: Terminal, world: World) -> None:
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "vault", "frame 7 differs")
    flip(world)
    ended = terminal.run("restore", "r1", "--to", str(world.base / "restored"))
    assert (ended.status, FRAME in ended.stderr) == (ExitStatus.OK, False)


@pytest.mark.parametrize("damage", [flip, lose])
def test_a_clone_that_finds_a_copy_damaged_needs_attention(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch, damage: Callable[[World], None]
) -> None:
    serve_copies(monkeypatch, Replica())
    damage(world)
    ended = terminal.run("clone", "r1", "--to", str(world.base / "clone"), "--as-replica")
    assert (ended.status, "cloned run r1" in ended.stdout) == (ExitStatus.ATTENTION, True)
    assert broken(world).keys() == {"vault"}
    assert ended.stderr.count("attention: the copy of run r1 on target vault is broken: ") == 1
    with world.catalogue() as catalogue:
        events = [entry.event for entry in catalogue.audit_entries(limit=None)]
    assert events.count("found-broken") == 1


def lose_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy has a manifest: nothing can even be begun."""

    def lost(*_asked: object) -> Manifest:
        raise VerificationError("manifest.json cannot be parsed")

    lose(world)
    monkeypatch.setattr(MemoryTarget, "manifest", lost)


@pytest.mark.parametrize("how", [["clone", "r1", "--as-replica"], ["restore", "r1"], ["drill", "r1"]], ids=" ".join)
def test_damage_that_is_found_before_anything_is_begun_is_on_record(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    lose_all(world, monkeypatch)
    place = [] if how[0] == "drill" else ["--to", str(world.base / "to")]
    ended = terminal.run(*how, *place)
    assert ended.status == ExitStatus.VERIFICATION
    assert broken(world).keys() == {"vault", "offsite"}


def test_so_is_what_one_copy_lost_where_the_next_one_s_manifest_has_the_clone_refused(
    terminal: Terminal, world: World
) -> None:
    lose(world)
    password = world.base / "password"
    password.write_text("x" * 1000)
    password.chmod(0o600)
    words = ["--as-replica", "--source", "db1", "--source-user", "repl", "--source-password-file", str(password)]
    ended = terminal.run("clone", "r1", "--to", str(world.base / "to"), *words)
    assert (ended.status, "the source's password is too long" in ended.stderr) == (ExitStatus.USAGE, True)
    assert broken(world).keys() == {"vault"}
    assert ended.stderr.count("attention: the copy of run r1 on target vault is broken: ") == 1


@pytest.mark.parametrize("how", [["clone", "--as-replica"], ["restore"]], ids=" ".join)
def test_so_is_what_is_found_on_the_way_to_a_moment(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    def way(*_asked: object, **_more: object) -> SimpleNamespace:
        targets: list[Target] = [world.target, *world.others]
        copies = [BackupSource(target, "nightly", "r1", BELIEVED) for target in targets]
        return SimpleNamespace(run=world.row(), plan=SimpleNamespace(segments=()), copies=copies)

    monkeypatch.setattr(moments, "way_to", way)
    lose_all(world, monkeypatch)
    ended = terminal.run(*how, "--to-latest", "--to", str(world.base / "to"))
    assert ended.status == ExitStatus.VERIFICATION
    assert broken(world).keys() == {"vault", "offsite"}


def test_a_restore_that_ends_without_a_result_records_damage_all_the_same(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(world)

    def away(*_asked: object, **_more: object) -> None:
        raise TargetError("target offsite does not answer")

    monkeypatch.setattr(MemoryTarget, "reading", away)
    assert terminal.run("restore", "r1", "--to", str(world.base / "restored")).status == ExitStatus.TARGET
    assert broken(world).keys() == {"vault"}


def test_a_catalogue_that_cannot_be_written_keeps_nobody_from_what_another_copy_gives(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Catalogue, *_told: object, **_more: object) -> None:
        raise CatalogueError("database or disk is full", hint="free some room")

    monkeypatch.setattr(Catalogue, "found_broken", full)
    flip(world)
    ended = terminal.run("restore", "r1", "--to", str(world.base / "restored"))
    assert ended.status == ExitStatus.ATTENTION
    assert "attention: this could not be recorded in the audit trail (found-broken): database or disk" in ended.stderr
    assert "attention: the copy of run r1 on target vault is broken: " in ended.stderr
