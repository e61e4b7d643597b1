"""Whoever owns the storage puts something of his own in a backup's place: nobody takes it."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.config import RetentionConfig
from backupd.operations.ownership import ownership_of, signer_of
from backupd.operations.restore.drill import drill
from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.next_copy import agreed
from backupd.operations.restore.proofs import leave_proof, proofs_of
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.audit import check_trail
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy import manifest as manifests
from backupd.policy.signing import new_signer_at
from backupd.policy.trust import Known, Trust
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.targets.names import proof_name
from backupd.vocabulary.errors import Refused, Untrusted, VerificationError
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.storage import Manifest
from tests.signers import signer
from tests.story.world import World

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
MANIFEST = "manifest.json"


@pytest.fixture
def backed_up(world: World) -> World:
    """The runs r1 and r2 have backups of this world."""
    world.back_up("r1")
    world.back_up("r2")
    return world


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Catalogue]:
    """The catalogue of another host, which knows nothing."""
    (tmp_path / "elsewhere").mkdir()
    with Catalogue.open(tmp_path / "elsewhere" / "catalogue.db") as opened:
        yield opened


def source(world: World, run_id: str = "r1") -> BackupSource:
    """As the commands make it, of what the catalogue recorded."""
    with world.catalogue() as catalogue:
        (backup,) = catalogue.run(run_id).backups
        return BackupSource(world.target, "nightly", run_id, catalogue.trust(world.target.machine, backup))


def there(world: World, run_id: str = "r1") -> Manifest:
    return world.target.manifest("nightly", run_id)


def put(world: World, text: str, run_id: str = "r1") -> None:
    (world.backups / run_id / MANIFEST).write_text(text)


def sealed(body: dict[str, Any]) -> str:
    """With a digest that is right: anybody can make one."""
    body = {key: value for key, value in body.items() if key != "digest"}
    return json.dumps({**body, "digest": manifests._digest(body)})


def refused(world: World, to: Path, match: str, run_id: str = "r1") -> None:
    """By all that read a backup, and nothing of it has been written."""
    asked = source(world, run_id)
    with pytest.raises(VerificationError, match=match):
        verify_backup(asked)
    with pytest.raises(VerificationError, match=match):
        restore([asked], to=to)
    with pytest.raises(VerificationError, match=match):
        restore([asked], to=to, tables=())
    with pytest.raises(VerificationError, match=match):
        drill([asked], world.tools)
    with pytest.raises(VerificationError, match=match):
        agreed([asked], None)
    assert not to.exists()
    assert world.left() == []


def test_a_run_signs_its_manifest_and_its_catalogue_keeps_what_it_has_signed(backed_up: World, tmp_path: Path) -> None:
    manifest = there(backed_up)
    assert manifest.signature is not None
    with backed_up.catalogue() as catalogue:
        (backup,) = catalogue.run("r1").backups
        assert catalogue.keys(manifest.machine) == {manifest.signature.key}
        assert [(one.event, one.subject) for one in catalogue.audit_entries()].count(
            ("key-known", manifest.machine)
        ) == 1
        chain = catalogue.audit_trail().chain
        assert chain.manifests == {(run_id, "vault"): there(backed_up, run_id).digest for run_id in ("r1", "r2")}
    assert (backup.manifest_digest, backup.recipients) == (manifest.digest, ())
    assert verify_backup(source(backed_up)).whole
    assert restore([source(backed_up)], to=tmp_path / "to") == manifest


def test_a_manifest_that_was_written_anew_is_not_the_one_that_was_recorded(backed_up: World, tmp_path: Path) -> None:
    for signature in (None, signer()):
        forged = replace(there(backed_up), volume="vg/evil", signature=None)
        put(backed_up, manifests.to_text(forged if signature is None else manifests.signed(forged, signature)))
        refused(backed_up, tmp_path / "to", "is not the one on record: its digest is")


def test_not_even_the_machines_own_key_makes_another_backup_of_it(backed_up: World, tmp_path: Path) -> None:
    """What is signed with it may be one that was never published, or was taken back."""
    with backed_up.catalogue() as catalogue:
        own = signer_of(catalogue, backed_up.tools.machine)
    put(backed_up, manifests.to_text(manifests.signed(replace(there(backed_up), lsn=1), own)))
    refused(backed_up, tmp_path / "to", "is not the one on record")


def test_an_older_backup_does_not_pass_for_a_newer_one(backed_up: World, tmp_path: Path) -> None:
    shutil.rmtree(backed_up.backups / "r2")
    shutil.copytree(backed_up.backups / "r1", backed_up.backups / "r2")
    refused(backed_up, tmp_path / "to", "is that of run r1", run_id="r2")
    put(backed_up, sealed({**json.loads((backed_up.backups / "r1" / MANIFEST).read_text()), "run_id": "r2"}), "r2")
    refused(backed_up, tmp_path / "to", "changed after it was signed", run_id="r2")
    put(backed_up, manifests.to_text(replace(there(backed_up), run_id="r2", signature=None)), "r2")
    refused(backed_up, tmp_path / "to", "is not the one on record", run_id="r2")


def test_a_plain_backup_does_not_pass_for_an_encrypted_one(backed_up: World, tmp_path: Path) -> None:
    with backed_up.catalogue() as catalogue:
        (backup,) = catalogue.run("r1").backups
    trust = Trust(frozenset(), replace(backup, recipients=("age1x",)))
    with pytest.raises(
        Untrusted, match="was recorded as encrypted for age1x, but the copy on target vault is not encrypted"
    ):
        restore([BackupSource(backed_up.target, "nightly", "r1", trust)], to=tmp_path / "to")
    half = replace(there(backed_up), recipients=("age1x",), signature=None)
    put(backed_up, manifests.to_text(half))
    with pytest.raises(Untrusted, match=r"is marked as encrypted, and its data-1\.tar\.zst is not"):
        restore([BackupSource(backed_up.target, "nightly", "r1", Trust(unsigned=True))], to=tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_replaced_backup_holds_nothing_up_when_retention_decides(backed_up: World) -> None:
    """It counts for nothing, and the good one stays."""
    put(backed_up, manifests.to_text(replace(there(backed_up, "r2"), lsn=1, signature=None)), "r2")
    job = backed_up.job(retention=RetentionConfig(keep_last=1))
    with backed_up.catalogue() as catalogue:
        found = prune(job, [backed_up.target], catalogue, ownership=ownership_of(catalogue, backed_up.tools))
    fates = {fate.decision.backup_id: fate.decision for fate in found.fates}
    assert fates["r1"].keep
    assert fates["r2"].keep
    assert "is not the one on record" in fates["r2"].reason


# --- backups that were recorded before there were signatures ---------------------------------------------------------


def of_old(world: World, **changes: Any) -> None:
    """The backup r1 and its row are as an earlier backupd left them; the row then as told."""
    body = json.loads(manifests.to_text(replace(there(world), signature=None)))
    del body["signature"]
    body["schema"] = {"major": 1, "minor": 1}
    put(world, sealed(body))
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        for column, value in {"manifest_digest": "", "recipients": "[]", **changes}.items():
            connection.execute(f"UPDATE backups SET {column} = ? WHERE run_id = 'r1'", (value,))


def test_what_an_earlier_backupd_recorded_is_taken_with_a_warning(
    backed_up: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_old(backed_up)
    with caplog.at_level(logging.WARNING):
        assert verify_backup(source(backed_up)).whole
    assert "run r1 was recorded before backups were signed" in caplog.text
    restore([source(backed_up)], to=tmp_path / "to")
    assert (tmp_path / "to").is_dir()


@pytest.mark.parametrize(
    ("column", "what"),
    [("sha256", "first object"), ("bytes_read", "bytes read"), ("bytes_stored", "stored bytes"), ("files", "files")],
)
def test_but_only_where_it_agrees_with_all_that_was_recorded(
    backed_up: World, tmp_path: Path, column: str, what: str
) -> None:
    of_old(backed_up, **{column: 7})
    refused(backed_up, tmp_path / "to", f"is not the one on record: {what}: expected 7")


# --- without the catalogue -------------------------------------------------------------------------------------------


def test_a_catalogue_is_rebuilt_of_what_a_known_key_has_signed(backed_up: World, elsewhere: Catalogue) -> None:
    machine, signature = backed_up.target.machine, there(backed_up).signature
    assert signature is not None
    found = rebuild(backed_up.target, elsewhere, elsewhere.trust(machine))
    assert found.imported == ()
    key = re.escape(signature.key[:20])
    with pytest.raises(Untrusted, match=rf"r1 is signed by {key}\S+, which is not a known key of .*machine {machine}"):
        found.require_complete()
    elsewhere.know_key(signature.key, "another-00000000", Known.TRUSTED)
    assert rebuild(backed_up.target, elsewhere, elsewhere.trust(machine)).imported == ()
    elsewhere.know_key(signature.key, machine, Known.TRUSTED)
    assert rebuild(backed_up.target, elsewhere, elsewhere.trust(machine)).imported == ("r1", "r2")
    (backup,) = elsewhere.run("r1").backups
    assert backup.manifest_digest == there(backed_up).digest
    check_trail(elsewhere.audit_trail(), [backed_up.target], ["nightly"]).require_sound()


def test_what_nobody_signed_enters_only_where_a_person_says_so_and_is_recorded_then(
    backed_up: World, elsewhere: Catalogue
) -> None:
    machine = backed_up.target.machine
    put(backed_up, manifests.to_text(replace(there(backed_up), signature=None)))
    found = rebuild(backed_up.target, elsewhere, elsewhere.trust(machine))
    assert found.imported == ()
    with pytest.raises(Untrusted, match="run r1 is not signed: its origin is unknown"):
        found.require_complete()
    assert set(rebuild(backed_up.target, elsewhere, Trust(unsigned=True)).imported) == {"r1", "r2"}
    (backup,) = elsewhere.run("r1").backups
    asked = BackupSource(backed_up.target, "nightly", "r1", elsewhere.trust(machine, backup))
    assert verify_backup(asked).whole
    put(backed_up, manifests.to_text(replace(there(backed_up), signature=None, lsn=1)))
    with pytest.raises(Untrusted, match="is not the one on record"):
        verify_backup(asked)


def test_no_copy_enters_of_another_backup_than_was_recorded_of_its_run(backed_up: World, tmp_path: Path) -> None:
    machine = backed_up.target.machine
    shutil.copytree(backed_up.vault, tmp_path / "second")
    second = DirectoryTarget("second", tmp_path / "second", machine=machine)
    for run_id, lsn in (("r1", 1), ("r2", None)):
        path = tmp_path / "second" / machine / "nightly" / run_id / MANIFEST
        if lsn is not None:
            path.write_text(manifests.to_text(replace(there(backed_up, run_id), lsn=lsn, signature=None)))
    with backed_up.catalogue() as catalogue:
        found = rebuild(second, catalogue, Trust(unsigned=True))
        assert found.imported == ("r2",)
        assert [run_id for run_id, _ in found.failures] == ["r1"]
        assert len(catalogue.run("r1").backups) == 1


def test_no_backup_of_another_job_enters_as_a_copy_of_a_known_run(backed_up: World, tmp_path: Path) -> None:
    machine = backed_up.target.machine
    with backed_up.catalogue() as catalogue:
        before = catalogue.run("r1")
        of_another = replace(before, job="weekly", backups=(replace(before.backups[0], target="second"),))
        for other in (of_another, replace(of_another, job="nightly", machine="another-00000000")):
            with pytest.raises(Untrusted, match=f"has another run r1, of job nightly of machine {machine}"):
                catalogue.import_run(other)
        assert catalogue.run("r1") == before
    assert machine == before.machine


def test_only_drills_that_a_known_key_has_signed_count(backed_up: World) -> None:
    machine = backed_up.target.machine
    with backed_up.catalogue() as catalogue:
        ownership = ownership_of(catalogue, backed_up.tools)
        asked = source(backed_up)
        result = Drill("r1", True, (Check("tables", True, "3", "3"),), 7.5, NOW)
        asked.was_read.set()
        assert leave_proof([asked], result, ownership, host="db1") == ()
        trust = catalogue.trust(machine)
    folder = backed_up.backups / "r1"
    (left,) = folder.glob("proof-*.json")
    assert proofs_of(asked) == (result,)
    assert proofs_of(replace(asked, trust=Trust(frozenset({signer().public})))) == ()
    shutil.copy(left, backed_up.backups / "r2" / left.name)
    assert proofs_of(BackupSource(backed_up.target, "nightly", "r2", trust)) == ()
    body = json.loads(left.read_text())
    for forged in ({**body, "ok": False}, {key: value for key, value in body.items() if key != "signature"}):
        left.write_text(json.dumps(forged))
        assert proofs_of(asked) == ()
    left.write_text(json.dumps(dict(reversed(body.items()))))
    assert proofs_of(asked) == (result,)


@pytest.mark.parametrize("host", ["the same", "another that knows the key", "another that knows nothing"])
def test_whoever_can_write_there_proves_no_backup_that_is_signed_or_known(
    backed_up: World, elsewhere: Catalogue, host: str
) -> None:
    """Not even where a person has said that what is not signed is believed: only the machine's own word counts."""
    machine = backed_up.target.machine
    with backed_up.catalogue() as known:
        ours = leave_drill(backed_up, known, NOW)
        forge_drill(backed_up, at=NOW + timedelta(hours=1))
        if host == "another that knows the key":
            for key in known.trust(machine).keys:
                elsewhere.know_key(key, machine, Known.TRUSTED)
        catalogue = known if host == "the same" else elsewhere
        trust = replace(catalogue.trust(machine), unsigned=True)
        rebuild(backed_up.target, catalogue, trust).require_complete()
        assert catalogue.run("r1").drills == (ours,)
        rebuild(backed_up.target, catalogue, trust).require_complete()
        later = leave_drill(backed_up, known, NOW + timedelta(hours=2))
        assert rebuild(backed_up.target, catalogue, trust).imported == ("r1",)
        assert catalogue.run("r1").drills == (ours, later)


def test_nor_does_he_prove_a_known_one_that_was_not_signed(backed_up: World, elsewhere: Catalogue) -> None:
    put(backed_up, manifests.to_text(replace(there(backed_up), signature=None)))
    assert "r1" in rebuild(backed_up.target, elsewhere, Trust(unsigned=True)).imported
    forge_drill(backed_up, at=NOW)
    assert "r1" in rebuild(backed_up.target, elsewhere, Trust(unsigned=True)).known
    assert elsewhere.run("r1").drills == ()


def leave_drill(world: World, catalogue: Catalogue, at: datetime) -> Drill:
    """The machine's own, beside the first run's backup."""
    asked = BackupSource(world.target, "nightly", "r1", Trust())
    asked.was_read.set()
    result = Drill("r1", True, (Check("tables", True, "3", "3"),), 7.5, at)
    assert leave_proof([asked], result, ownership_of(catalogue, world.tools), host="db1") == ()
    return result


def forge_drill(world: World, *, at: datetime) -> None:
    """Anybody's who can write there."""
    check = {"name": "tables", "ok": True, "expected": "3", "found": "3"}
    body = {"schema": 1, "run_id": "r1", "ok": True, "checks": [check], "seconds": 1.0, "at": at.isoformat()}
    (world.backups / "r1" / proof_name(at)).write_text(json.dumps(body))


# --- the audit chain -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["", "0" * 64])
def test_a_manifest_that_names_no_head_of_the_chain_is_named(backed_up: World, head: str) -> None:
    put(backed_up, manifests.to_text(replace(there(backed_up), audit_head=head, signature=None)))
    with backed_up.catalogue() as catalogue:
        found = check_trail(catalogue.audit_trail(), [backed_up.target], ["nightly"])
    told = "\n".join(flaw.text for flaw in found.all_flaws)
    assert "and no row has that digest" in told
    assert "the manifest of run r1 on target vault is not the one on record" in told


def test_a_recorded_digest_that_was_changed_in_the_catalogue_is_named(backed_up: World) -> None:
    with direct(backed_up.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE backups SET manifest_digest = 'ff' WHERE run_id = 'r1'")
    with backed_up.catalogue() as catalogue:
        found = check_trail(catalogue.audit_trail(), [backed_up.target], ["nightly"])
    assert [(flaw.run_id, flaw.target) for flaw in found.all_flaws] == [("r1", "vault")]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_that_others_can_read_refuses_the_run_before_anything_is_touched(world: World) -> None:
    world.back_up("r1")
    with world.catalogue() as catalogue:
        catalogue.key_file.chmod(0o644)
    with pytest.raises(Refused, match="can be read or written by others"):
        world.back_up("r2")
    assert [path.name for path in world.backups.iterdir()] == ["r1"]


def test_a_machine_with_a_new_key_still_takes_what_it_signed_with_the_old_one(backed_up: World) -> None:
    with backed_up.catalogue() as catalogue:
        new_signer_at(catalogue.key_file)
    backed_up.back_up("r3")
    assert all(verify_backup(source(backed_up, run_id)).whole for run_id in ("r1", "r2", "r3"))
    with backed_up.catalogue() as catalogue:
        assert len(catalogue.keys(backed_up.target.machine)) == 2
