"""What a proof host found out reaches the database host, and nothing that somebody else put there does."""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.host.run_log import RunLogs
from backupd.notifications import Notifier
from backupd.operations.restore.proofs import _meaning, last_tried, leave_proof_of_host
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.operations.upkeep.proofs_read import read_proofs
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy.signing import Signer
from backupd.policy.trust import Trust
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.targets.names import proof_name
from backupd.vocabulary.errors import TargetAway
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.fakes.target import BELIEVED
from tests.signers import signer
from tests.story.daemon_world import require_answers
from tests.story.world import World

Attack = Callable[[World, Path], object]

HOST = signer()
GOOD = (Check("tables", True, "3", "3"),)


class Told(Notifier):
    """Keeps what people hear of."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def tell(self, notice: Notice) -> None:
        self.notices.append(notice)


@pytest.fixture
def backed_up(world: World) -> World:
    """The runs r1 and r2 have backups of this world."""
    world.back_up("r1")
    world.back_up("r2")
    return world


def drilled(run_id: str = "r1", *, ok: bool = True, at: datetime | None = None) -> Drill:
    checks = GOOD if ok else (Check("restore", False, "every digest as recorded", "data-1.tar.zst: damaged"),)
    return Drill(run_id, ok, checks, 7.5, at or datetime.now(UTC))


def leave(world: World, drill: Drill, *, by: Signer = HOST) -> Path:
    """As the proof host does; the file."""
    before = set((world.backups / drill.run_id).iterdir())
    source = BackupSource(world.target, "nightly", drill.run_id, BELIEVED)
    digest = world.target.manifest("nightly", drill.run_id).digest
    leave_proof_of_host(source, drill, digest=digest, by="proof-0a1b2c3d", server="10.11.6", signer=by)
    (made,) = set((world.backups / drill.run_id).iterdir()) - before
    return made


def read(
    world: World, keys: frozenset[str] = frozenset({HOST.public}), *, later: timedelta = timedelta()
) -> list[Notice]:
    """As after each backup; what people hear of."""
    told = Told()
    with world.catalogue() as catalogue:
        answers = FailureAnswers(RunLogs(world.places.run), "", lambda _job, _activity: None)
        now = datetime.now(UTC) + later
        read_proofs("nightly", [world.target], catalogue, keys, told, answers=answers, now=now)
    require_answers(told.notices)
    return told.notices


def test_a_proof_counts_as_a_drill_here_once_and_the_audit_chain_says_whose_it_was(backed_up: World) -> None:
    drill = drilled()
    file = leave(backed_up, drill)
    assert read(backed_up) == read(backed_up) == []
    assert backed_up.row("r1").drills == (drill,)
    assert backed_up.row("r2").drills == ()
    with backed_up.catalogue() as catalogue:
        assert catalogue.records(["nightly"], at=datetime.now(UTC))["nightly"].proven_at == drill.at
        told = catalogue.audit_entries(limit=1)[0].detail
    assert (told["ok"], told["proof"], told["target"]) == (True, file.name, "vault")
    assert told["by"] == "proof-0a1b2c3d"


def test_a_failed_proof_is_a_drill_that_failed_and_removes_nothing(backed_up: World) -> None:
    leave(backed_up, drilled(ok=False))
    before = sorted(backed_up.vault.rglob("*"))
    (notice,) = read(backed_up)
    assert (notice.kind, notice.job) == (NoticeKind.FAILED, "nightly")
    assert "a proof host's drill of the copy on target vault failed: restore" in notice.text
    assert notice.detail["another good copy"].startswith("yes, ")
    assert "run r2 on vault" in notice.detail["another good copy"], "not the one that failed"
    run = backed_up.row("r1")
    assert run.doubted
    assert run.backup is not None
    assert not run.backup.broken
    assert "a proof host's drill of the copy on target vault failed: restore" in run.attention
    assert sorted(backed_up.vault.rglob("*")) == before
    assert read(backed_up) == []


def test_a_proof_that_failed_in_checks_of_one_s_own_alone_sends_nobody_after_a_new_backup(backed_up: World) -> None:
    own = Check("checks.orders", False, "at least 1", "0", asked="SELECT COUNT(*) FROM shop.orders")
    leave(backed_up, replace(drilled(ok=False), checks=(*GOOD, own)))
    (notice,) = read(backed_up)
    assert "failed: checks.orders" in notice.text
    assert "the backup restores, but its data is not what the proof host's own checks expect" in notice.detail["hint"]
    assert backed_up.row("r1").drills[0].checks[1] == own


def test_a_proof_that_is_read_late_counts_as_of_its_time(backed_up: World) -> None:
    now = datetime.now(UTC) + timedelta(hours=3)
    here = drilled(ok=False, at=now)
    leave(backed_up, drilled(at=now - timedelta(hours=1)))
    with backed_up.catalogue() as catalogue:
        catalogue.record_drill(here)
    assert read(backed_up, later=timedelta(days=1)) == []
    with backed_up.catalogue() as catalogue:
        run = catalogue.run("r1")
        last = catalogue.records(["nightly"], at=now)["nightly"].last_drill
        (cost,) = [one for one in catalogue.costs(limit=5) if one.run_id == "r1"]
    assert (len(run.drills), run.doubted) == (2, True)
    assert last is not None
    assert (last.at, last.ok, cost.drill_ok) == (here.at, False, False)


def test_nobody_is_believed_who_was_not_named(backed_up: World, caplog: pytest.LogCaptureFixture) -> None:
    leave(backed_up, drilled(), by=signer())
    assert read(backed_up) == []
    assert backed_up.row("r1").drills == ()
    (line,) = [record.getMessage() for record in caplog.records if "do not count" in record.getMessage()]
    assert "next to backup r1 on target vault these drill results do not count: proof-" in line
    assert "it is not signed by a trusted key" in line


def test_a_host_that_believes_nobody_reads_nothing(backed_up: World) -> None:
    leave(backed_up, drilled())
    backed_up.at["target.reading"] = lambda: pytest.fail("a proof was read")
    assert read(backed_up, frozenset()) == []
    assert backed_up.row("r1").drills == ()


def test_a_proof_hosts_key_signs_no_manifest(backed_up: World) -> None:
    with backed_up.catalogue() as catalogue:
        assert HOST.public not in catalogue.keys(backed_up.name)
        rebuilt = rebuild(backed_up.target, catalogue, Trust(), proof_keys=frozenset({HOST.public}))
    assert len(rebuilt.failures) + len(rebuilt.known) == 2


def change(world: World, statement: str) -> None:
    """In the catalogue, as another course of events would have it."""
    with direct(world.places.catalogue, busy_timeout_seconds=5) as connection:
        connection.execute(statement)


def edited(key: str, value: object) -> Attack:
    def attack(world: World, file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))

    return attack


def moved_to_the_other_run(world: World, file: Path) -> None:
    shutil.move(file, world.backups / "r2" / file.name)


def kept_for_another_manifest(world: World, file: Path) -> None:
    """The run's backup is taken anew, as far as the catalogue is concerned."""
    change(world, "UPDATE backups SET manifest_digest = printf('%064d', 0) WHERE run_id = 'r1'")


def renamed(world: World, file: Path) -> None:
    file.rename(file.with_name("proof-20990101T000000Z.json"))


def without_a_signature(world: World, file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "signature": None}))


def of_a_newer_backupd(world: World, file: Path) -> None:
    """What its `ok` means there, nobody knows here."""
    body = {**json.loads(file.read_text()), "schema": 2}
    del body["signature"]
    file.write_text(json.dumps({**body, "signature": asdict(HOST.sign(_meaning(body)))}))


def signed_with(key: str, value: object) -> Attack:
    """By the proof host itself."""

    def attack(world: World, file: Path) -> None:
        body = {**json.loads(file.read_text()), key: value}
        del body["signature"]
        file.write_text(json.dumps({**body, "signature": asdict(HOST.sign(_meaning(body)))}))

    return attack


def huge(world: World, file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "x" * (1 << 20)}))


def a_link_to(place: str) -> Attack:
    def attack(world: World, file: Path) -> None:
        file.unlink()
        file.symlink_to(place)

    return attack


def a_pipe(world: World, file: Path) -> None:
    """Who opens it without care waits for ever."""
    file.unlink()
    os.mkfifo(file)


def a_folder(world: World, file: Path) -> None:
    file.unlink()
    file.mkdir()


ATTACKS: dict[str, tuple[Attack, str]] = {
    "edited": (edited("ok", False), "it was changed after it was signed"),
    "told of another target": (edited("target", "bucket"), "it was changed after it was signed"),
    "no signature": (without_a_signature, "it is not signed by a trusted key"),
    "its signature is no object": (edited("signature", [1]), "it cannot be parsed"),
    "its seconds are too many": (edited("seconds", int("9" * 400)), "it cannot be parsed"),
    "its seconds are no number": (edited("seconds", math.nan), "it cannot be parsed"),
    "its answer is neither yes nor no": (edited("ok", "yes"), "it cannot be parsed"),
    "its time has no zone": (edited("at", "2026-01-02T03:04:05"), "it contradicts itself"),
    "its moment has no name": (edited("moment", {"name": 7}), "it cannot be parsed"),
    "its moment has no zone": (edited("moment", {"name": "end", "at": "2026-01-02T03:04:05"}), "it cannot be parsed"),
    "its position is no place": (
        edited("position", {"file": "bin.000001", "offset": -1, "gtid": None}),
        "it was changed after it was signed",
    ),
    "of another job": (signed_with("job", "weekly"), "it is of another backup"),
    "moved to another run": (moved_to_the_other_run, "it is of another backup"),
    "of another manifest": (kept_for_another_manifest, "it is of another manifest than the one on record"),
    "renamed": (renamed, "its name is that of another one"),
    "of a newer backupd": (of_a_newer_backupd, "a newer backupd wrote it"),
    "huge": (huge, "bytes, more than any"),
    "nested": (lambda world, file: file.write_text("[" * 100_000), "it cannot be parsed"),
    "no JSON": (lambda world, file: file.write_bytes(b"\xff\x00"), "it cannot be parsed"),
    "empty": (lambda world, file: file.write_bytes(b""), "it cannot be parsed"),
    "a link to somebody else's file": (a_link_to("/etc/passwd"), "could not read proof-"),
    "a link to a device": (a_link_to("/dev/zero"), "could not read proof-"),
    "a dangling link": (a_link_to("/nowhere"), "could not read proof-"),
    "a pipe": (a_pipe, "could not read proof-"),
    "a folder": (a_folder, ""),
}


@pytest.mark.parametrize(("attack", "why"), ATTACKS.values(), ids=list(ATTACKS))
def test_what_was_tampered_with_is_ignored_in_one_line_and_keeps_no_other_from_counting(
    backed_up: World, caplog: pytest.LogCaptureFixture, attack: Attack, why: str
) -> None:
    attack(backed_up, leave(backed_up, drilled()))
    later = drilled("r2", at=datetime.now(UTC) + timedelta(seconds=1))
    leave(backed_up, later)
    assert read(backed_up, later=timedelta(minutes=1)) == []
    assert backed_up.row("r1").drills == ()
    assert backed_up.row("r2").drills == (later,)
    lines = [record.getMessage() for record in caplog.records if "do not count" in record.getMessage()]
    assert [why in line for line in lines] == ([True] if why else [])


@pytest.mark.parametrize("position", [7, {"file": 7, "offset": 1}, {"file": "a.1", "offset": "1"}, {"file": "a.1"}])
def test_a_position_that_is_none_leaves_the_rest_of_a_proof_as_it_is(backed_up: World, position: object) -> None:
    drill = drilled()
    signed_with("position", position)(backed_up, leave(backed_up, drill))
    assert read(backed_up) == []
    assert backed_up.row("r1").drills == (drill,)


def test_an_undecided_proof_is_told_in_the_log_with_its_limit(
    backed_up: World, caplog: pytest.LogCaptureFixture
) -> None:
    leave(backed_up, replace(drilled(ok=False), checks=GOOD, undecided="no answer within 5 min"))
    with caplog.at_level("INFO"):
        read(backed_up)
    said = "says of run r1 on target vault: undecided: no answer within 5 min"
    assert [one for one in caplog.messages if one.endswith(said)]


@pytest.mark.parametrize(
    ("days", "why"), [(2, "it is dated in the future"), (-2, "it is older than the backup")], ids=["future", "past"]
)
def test_a_proof_of_an_impossible_time_is_ignored_in_one_line(
    backed_up: World, caplog: pytest.LogCaptureFixture, days: int, why: str
) -> None:
    leave(backed_up, drilled(at=datetime.now(UTC) + timedelta(days=days)))
    assert read(backed_up) == []
    assert backed_up.row("r1").drills == ()
    (line,) = [record.getMessage() for record in caplog.records if "do not count" in record.getMessage()]
    assert why in line


def test_the_proof_of_one_copy_is_none_of_another(backed_up: World, caplog: pytest.LogCaptureFixture) -> None:
    """The same bytes on another target: they may be damaged there."""
    leave(backed_up, drilled())
    backed_up.vault_target._name = "offsite"
    change(backed_up, "UPDATE backups SET target = 'offsite'")
    assert read(backed_up) == []
    assert backed_up.row("r1").drills == ()
    assert "it is of the copy on target 'vault'" in caplog.text


def test_a_target_that_is_away_is_left_to_the_next_time(backed_up: World, caplog: pytest.LogCaptureFixture) -> None:
    drill = drilled()
    leave(backed_up, drill)

    def away() -> None:
        raise TargetAway("target vault does not answer")

    backed_up.at["target.reading"] = away
    assert read(backed_up) == []
    assert "the proofs on target vault were not read: target vault does not answer" in caplog.text
    del backed_up.at["target.reading"]
    read(backed_up)
    assert backed_up.row("r1").drills == (drill,)


def test_proofs_survive_the_loss_of_the_catalogue(backed_up: World, tmp_path: Path) -> None:
    drill = drilled()
    leave(backed_up, drill)
    leave(backed_up, drilled("r2"), by=signer())
    with backed_up.catalogue() as catalogue:
        trust = catalogue.trust(backed_up.name)
    with Catalogue.open(tmp_path / "empty.sqlite") as empty:
        rebuild(backed_up.target, empty, trust, proof_keys=frozenset({HOST.public})).require_complete()
        assert empty.run("r1").drills == (drill,)
        assert empty.run("r2").drills == ()


def test_of_many_proofs_only_the_newest_that_counts_is_read(backed_up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for days in range(9):
        leave(backed_up, drilled(at=now - timedelta(days=days)))
    leave(backed_up, drilled(at=now + timedelta(days=1)))
    read_names: list[str] = []
    reading = DirectoryTarget.reading

    def told(self: DirectoryTarget, job: str, run_id: str, name: str, **how: object) -> object:
        read_names.append(name)
        return reading(self, job, run_id, name, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectoryTarget, "reading", told)
    source = BackupSource(backed_up.target, "nightly", "r1", Trust())
    assert last_tried(source, frozenset({HOST.public})) == now
    assert read_names == [proof_name(now + timedelta(days=1)), proof_name(now)]


def test_a_proof_that_took_longer_than_restore_within_is_told_and_its_run_needs_attention(backed_up: World) -> None:
    leave(backed_up, drilled())
    told = Told()
    with backed_up.catalogue() as catalogue:
        answers = FailureAnswers(RunLogs(backed_up.places.run), "", lambda _job, _activity: None)
        keys = frozenset({HOST.public})
        read_proofs("nightly", [backed_up.target], catalogue, keys, told, answers=answers, within_seconds=5.0)
    (notice,) = told.notices
    assert (notice.kind, notice.subject) == (NoticeKind.ATTENTION, "drill r1")
    assert any("7.5 s instead of 5.0 s" in text for text in backed_up.row("r1").attention)
