"""`backupd binlog verify`, and what `catalogue rebuild`, `prune` and `recover` do with a binlog archive, as typed."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd import wiring
from backupd.catalogue.store import Catalogue
from backupd.operations.binlog import storing
from backupd.operations.binlog.spool import BinlogSpool
from backupd.operations.binlog.storing import SegmentStore
from backupd.operations.ownership import ownership_of
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.binlogs import BinlogSegment
from backupd.vocabulary.errors import CatalogueError, ExitStatus
from tests.binlog_segments import FIRST, lay_segments, sealed_chain
from tests.cli.terminal import Terminal
from tests.contract.mariadb import wait_until
from tests.fakes.target import MACHINE
from tests.story.test_recover import die_at
from tests.story.world import World
from tests.unit.test_segment_verifying import new_identities

_TARGET = wiring.target  # the real one


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on a host whose job has four segments in the vault."""
    vault = DirectoryTarget("vault", world.vault, machine=MACHINE)
    terminal = Terminal(world, monkeypatch, capsys)
    monkeypatch.setattr(wiring, "target", lambda configuration, name, machine: vault.of_machine(machine))
    with world.catalogue() as catalogue:
        ownership = ownership_of(catalogue, world.tools)
        ownership.take(vault)
        chain = sealed_chain(4, ownership.signer(), first=replace(FIRST, machine=MACHINE))
        lay_segments(vault, chain)
        for one in chain:
            catalogue.add_segment(one.segment, spooled=False)
            catalogue.segment_stored(one.segment.name, "vault", at=datetime.now(UTC))
    return terminal


def folder(terminal: Terminal) -> Path:
    return terminal.world.vault / MACHINE / "nightly" / "binlog"


def files(terminal: Terminal) -> list[Path]:
    return sorted(folder(terminal).iterdir())


def test_a_whole_archive_is_said_to_be_so(terminal: Terminal) -> None:
    ended = terminal.run("binlog", "verify", "nightly")
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")
    assert ended.stdout.startswith("target vault: 4 segments recorded, 0 lost; 4 read back (")
    (told,) = terminal.run("binlog", "verify", "nightly", "--json").document["targets"]
    assert (told["recorded"], told["read"], told["lost"]) == (4, 4, [])


def test_a_changed_segment_is_named_with_status_9_and_found_again_where_it_was_restored(terminal: Terminal) -> None:
    victim = files(terminal)[1]
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ended = terminal.run("binlog", "verify", "nightly", "--sample", "100%")
    assert ended.status == ExitStatus.VERIFICATION
    assert victim.name in ended.stderr
    assert "take one now" in ended.stderr
    again = terminal.run("binlog", "verify", "nightly")
    assert (again.status, "3 segments recorded" in again.stdout) == (ExitStatus.OK, True)
    assert "comes number 3" in again.stderr
    assert f"`backupd catalogue rebuild --target vault` adds them): {victim.name}" in again.stderr
    victim.write_bytes(content)
    rebuilt = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert "binlog of job nightly: 1 segment new, 3 already known" in rebuilt.stdout
    assert "4 segments recorded" in terminal.run("binlog", "verify", "nightly").stdout


def test_verify_of_a_job_reads_its_archive_as_well_and_what_is_lost_there_is_an_alarm(terminal: Terminal) -> None:
    terminal.world.back_up("r1")
    ended = terminal.run("verify", "--job", "nightly")
    assert (ended.status, "target vault: 4 segments recorded, 0 lost; 4 read back" in ended.stdout) == (0, True)
    files(terminal)[1].unlink()
    ended = terminal.run("verify", "--job", "nightly", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    assert [len(target["lost"]) for target in ended.document["binlog"]] == [1]
    assert [run["run_id"] for run in ended.document["runs"]] == ["r1"]
    with terminal.world.catalogue() as catalogue:
        (gap,) = catalogue.archive_gaps("nightly")
    assert gap.reason == f"lost on every target: 1 segment from {files(terminal)[0].name[:-8]}2.binlog on"


def test_a_million_segments_are_counted_once(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    stored_segments = Catalogue.stored_segments

    def counting(catalogue: Catalogue, job: str) -> dict[str, tuple[int, int]]:
        counted.append(job)
        return stored_segments(catalogue, job)

    terminal.world.back_up("r1")
    monkeypatch.setattr(Catalogue, "stored_segments", counting)
    assert terminal.run("verify", "--job", "nightly").status == ExitStatus.OK
    assert counted == ["nightly"]


def test_what_lies_on_a_target_that_the_job_has_left_is_read_as_well(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.world.back_up("r1")
    monkeypatch.setattr(wiring, "target", _TARGET)
    (terminal.world.base / "new").mkdir()
    text = terminal.configuration.read_text()
    new = f'[targets.new]\ntype = "directory"\npath = "{terminal.world.base / "new"}"\n'
    terminal.configuration.write_text(text.replace('targets = ["vault"]', 'targets = ["new"]') + new)
    files(terminal)[1].unlink()
    ended = terminal.run("verify", "--job", "nightly", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    assert [(one["target"], len(one["lost"])) for one in ended.document["binlog"]] == [("vault", 1)]
    files(terminal)[1].unlink()
    ended = terminal.run("binlog", "verify", "nightly")
    assert (ended.status, "target vault has lost 1 segments" in ended.stderr) == (ExitStatus.VERIFICATION, True)


# The next receiver would write another segment of its name, which is not stored where a changed one lies.
def test_a_chain_whose_last_segment_is_lost_goes_on_as_another_one(terminal: Terminal) -> None:
    victim = files(terminal)[-1]
    victim.write_bytes(victim.read_bytes()[:-1])
    terminal.run("binlog", "verify", "nightly")
    with terminal.world.catalogue() as catalogue:
        (gap,) = catalogue.archive_gaps("nightly")
    assert (gap.chain, gap.reason) == (FIRST.chain, "its last segment was lost on every target")


# The recipients have changed in the middle: the new key does not open what was archived before.
def test_a_key_that_opens_a_part_is_told_which_and_one_that_opens_nothing_is_none(
    terminal: Terminal, tmp_path: Path
) -> None:
    now, before = new_identities(tmp_path / "now"), new_identities(tmp_path / "before")
    vault = DirectoryTarget("vault", terminal.world.vault, machine=MACHINE)
    plain = files(terminal)
    with terminal.world.catalogue() as catalogue:
        signer = ownership_of(catalogue, terminal.world.tools).signer()
        catalogue.segments_removed("nightly", "vault", [one.name for one in plain], because="they are in no one's way")
        for number, one in enumerate((before, now)):
            first = replace(FIRST, machine=MACHINE, chain=f"2026112{number}T050000Z-0123abcd")
            (stored,) = sealed_chain(1, signer, first=first, recipients=one.recipients)
            lay_segments(vault, [stored])
            catalogue.add_segment(stored.segment, spooled=False)
            catalogue.segment_stored(stored.segment.name, "vault", at=datetime.now(UTC))
    ended = terminal.run("binlog", "verify", "nightly", "--identity", str(tmp_path / "now"))
    assert ended.status == ExitStatus.OK
    assert "1 of 2 segments were compared as they are stored" in ended.stderr
    new_identities(tmp_path / "other")
    ended = terminal.run("binlog", "verify", "nightly", "--identity", str(tmp_path / "other"))
    assert (ended.status, "opens a segment" in ended.stderr) == (ExitStatus.USAGE, True)


# It has the machine's ids, key and catalogue: what it archived before it was told apart is of its own data.
def test_what_a_clone_archived_is_not_entered_as_this_machine_s_own(terminal: Terminal) -> None:
    vault = DirectoryTarget("vault", terminal.world.vault, machine=MACHINE)
    first = replace(FIRST, machine=MACHINE, chain="20261121T040000Z-0123abcd", received_at=datetime.now(UTC))
    with terminal.world.catalogue() as catalogue:
        lay_segments(vault, sealed_chain(1, ownership_of(catalogue, terminal.world.tools).signer(), first=first))
    ended = terminal.run("catalogue", "rebuild", "--target", "vault")
    assert (ended.status, "by another catalogue" in ended.stderr) == (ExitStatus.VERIFICATION, True)
    assert "4 segments recorded" in terminal.run("binlog", "verify", "nightly").stdout
    ended = terminal.run("catalogue", "rebuild", "--target", "vault", "--set-back")
    assert "binlog of job nightly: 1 segment new, 4 already known" in ended.stdout


# A catalogue that is locked for a moment ended the thread, and with it the receiver.
def test_a_sender_outlives_a_catalogue_that_does_not_answer_once(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = Catalogue.lacking_segments

    def lacking(self: Catalogue, job: str, target: str) -> list[BinlogSegment]:
        asked.append(target)
        if len(asked) == 1:
            raise CatalogueError("the catalogue is locked")
        return original(self, job, target)

    monkeypatch.setattr(Catalogue, "lacking_segments", lacking)
    monkeypatch.setattr(storing, "_FIRST_WAIT_SECONDS", 0.01)
    spool = BinlogSpool(tmp_path, "nightly")
    spool.open()
    with terminal.world.catalogue() as catalogue:
        ownership = ownership_of(catalogue, terminal.world.tools)
        first = replace(FIRST, machine=MACHINE, chain="20261121T040000Z-0123abcd")
        (one,) = sealed_chain(1, ownership.signer(), first=first)
        spool.keep(one.segment.name, b"", one.content)
        catalogue.add_segment(one.segment)
        vault = DirectoryTarget("vault", terminal.world.vault, machine=MACHINE)
        with SegmentStore("nightly", [vault], catalogue, spool, ownership).storing() as senders:
            wait_until(lambda: one.segment.name in vault.segments("nightly"))
            senders.require_working()


def test_a_stranger_s_entry_is_told_escaped_and_let_be(terminal: Terminal) -> None:
    (folder(terminal) / "note\x1b[31m\nerror: forged").write_text("a person's")
    for command in (("binlog", "verify", "nightly"), ("catalogue", "rebuild", "--target", "vault")):
        ended = terminal.run(*command)
        assert ended.status == ExitStatus.OK
        assert "not backupd's" in ended.stderr
        assert "\x1b" not in ended.stderr
        assert "\nerror: forged" not in ended.stderr
    assert len(files(terminal)) == 5


def test_a_damaged_description_keeps_a_rebuild_from_being_whole(terminal: Terminal) -> None:
    with terminal.world.catalogue() as catalogue:
        names = [segment.name for segment in catalogue.segments("nightly")]
        catalogue.segments_removed("nightly", "vault", names, because="for this test")
        catalogue.forget_segments(names)
    files(terminal)[0].write_bytes(b"{}\n")
    ended = terminal.run("catalogue", "rebuild", "--target", "vault", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    (archive,) = ended.document["archives"]
    assert (archive["imported"], [one["segment"] for one in archive["failures"]]) == (3, names[:1])


def test_recovery_leaves_segments_and_what_waits_in_the_spool_alone(terminal: Terminal) -> None:
    """A live receiver writes there, whatever run has died; another machine's segments are none of ours either way."""
    world = terminal.world
    spool = BinlogSpool(world.spool, "nightly")  # the folder that runs spool into as well
    spool.open()
    spool.received.mkdir()
    (spool.received / "bin.000007").write_bytes(b"being received")
    spool.keep(files(terminal)[3].name, b"{}\n", b"waits")
    die_at(world, "target.writing")

    def left() -> set[Path]:
        return {path for place in (folder(terminal), world.spool / "nightly") for path in place.rglob("*")}

    before = left()
    ended = terminal.run("recover")
    assert "r1" in ended.stdout + ended.stderr
    assert left() == before
    assert len(before) == 7
