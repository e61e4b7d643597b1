"""Whoever changes the record of what was done is found out, by the record or by what lies on the targets."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.operations.backup.contents import run_section
from backupd.operations.recorded_copy import copy_on
from backupd.operations.upkeep.audit import AuditResult, check_trail
from backupd.operations.upkeep.rebuild import rebuild
from backupd.targets import Target
from backupd.vocabulary.errors import TargetError, VerificationError
from backupd.vocabulary.records import Check, Drill
from backupd.vocabulary.storage import Manifest
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.world import World

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
JOBS = ("nightly",)


@dataclass
class Site:
    """A catalogue and two targets with three backups, each manifest bound to the chain as a run's is."""

    path: Path
    catalogue: Catalogue
    here: MemoryTarget
    there: MemoryTarget

    def back_up(self, run_id: str) -> None:
        with self.catalogue.open_run("nightly", "db1", run_id=run_id) as run:
            section = run_section(run.so_far())
            manifest = replace(MANIFEST, run_id=run_id, run=section, audit_head=run.audit_head())
            for target in (self.here, self.there):
                target.now = NOW + timedelta(days=int(run_id[1:]))
                with target.writing("nightly", run_id, MANIFEST.objects[0].name) as writer:
                    writer.write(b"12345")
                target.publish(manifest)
            run.complete([copy_on(target, manifest) for target in (self.here, self.there)])

    def look(self, *targets: Target) -> AuditResult:
        return check_trail(self.catalogue.audit_trail(), targets or (self.here, self.there), JOBS)

    def force(self, *statements: str) -> None:
        """As somebody does who can write the file and takes the triggers out first."""
        with direct(self.path, busy_timeout_seconds=1) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            for name in ("no_update", "no_delete", "next_number"):
                connection.execute(f"DROP TRIGGER IF EXISTS audit_{name}")
            for statement in statements:
                assert connection.execute(statement).rowcount != 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    path = tmp_path / "catalogue.db"
    with Catalogue.open(path) as catalogue:
        found = Site(path, catalogue, MemoryTarget("here"), MemoryTarget("there"))
        for run_id in ("r1", "r2", "r3"):
            found.back_up(run_id)
        yield found


def texts(found: AuditResult) -> str:
    return "\n".join(flaw.text for flaw in found.all_flaws)


def test_what_nobody_touched_holds(site: Site) -> None:
    found = site.look()
    found.require_sound()
    assert (found.rows, found.all_flaws) == (6, ())
    assert [(look.target, look.manifests) for look in found.looks] == [("here", 3), ("there", 3)]


def test_an_empty_catalogue_with_empty_targets_holds(tmp_path: Path) -> None:
    with Catalogue.open(tmp_path / "empty.db") as catalogue:
        found = check_trail(catalogue.audit_trail(), (MemoryTarget("here"),), JOBS)
    found.require_sound()
    assert (found.rows, found.head, found.looks[0].manifests) == (0, "", 0)


def test_what_real_runs_leave_on_two_targets_holds(world: World) -> None:
    world.others = [MemoryTarget("other")]
    for run_id in ("r1", "r2"):
        world.back_up(run_id, job=world.job(targets=("vault", "other")))
    with world.catalogue() as catalogue:
        found = check_trail(catalogue.audit_trail(), world.tools.targets, JOBS)
    found.require_sound()
    assert [look.manifests for look in found.looks] == [2, 2]


def test_rows_that_were_cut_off_the_end_are_told_by_the_manifests(site: Site) -> None:
    site.force("DELETE FROM audit WHERE number > 4")
    assert site.catalogue.audit_trail().chain.first_fault is None  # the chain by itself does not know
    found = site.look(site.here)
    assert "the manifest of run r3 on target here was written when the audit chain ended with" in texts(found)
    assert "no row of the audit chain names that run" in texts(found)
    with pytest.raises(VerificationError, match="the audit trail is broken: the manifest of run r3"):
        found.require_sound()


def test_a_chain_that_went_on_after_it_was_cut_is_told_as_well(site: Site) -> None:
    site.force("DELETE FROM audit WHERE number > 4")
    site.catalogue.pin("r1", "a new row 5")
    assert site.catalogue.audit_trail().chain.first_fault is None
    assert "rows were removed or rewritten" in texts(site.look())


def test_a_row_that_was_changed_is_named(site: Site) -> None:
    site.force("UPDATE audit SET subject = 'r9' WHERE number = 4")
    found = site.look(site.here)
    assert found.all_flaws[0].row == 4
    with pytest.raises(VerificationError, match="row 4 of the audit chain is missing or was changed"):
        found.require_sound()


def test_a_run_whose_row_was_taken_out_is_named(site: Site) -> None:
    site.force("DELETE FROM backups WHERE run_id = 'r2'", "DELETE FROM runs WHERE run_id = 'r2'")
    assert "row 3 of the audit chain names run r2, which is not in the catalogue" in texts(site.look())


@pytest.mark.parametrize(("status", "told"), [("failed", True), ("attention", False)])
def test_a_run_that_is_made_another_s_opposite_is_named(site: Site, status: str, told: bool) -> None:
    """What needs attention is good as well: a run may come to that later."""
    site.force(f"UPDATE runs SET status = '{status}' WHERE run_id = 'r2'")
    said = f"has run r2 as success, the catalogue as {status}: its row was changed"
    assert (said in texts(site.look())) is told


def test_drills_that_were_taken_out_are_counted(site: Site) -> None:
    for hour in (1, 2):
        drill = Drill("r2", False, (Check("t", False, "1", "2"),), 1.0, NOW + timedelta(hours=hour))
        site.catalogue.record_drill(drill)
    site.look().require_sound()
    site.force("DELETE FROM drills WHERE id = (SELECT min(id) FROM drills)")
    assert "the audit chain has 2 failed drills of run r2, the catalogue 1" in texts(site.look())


def test_removed_backups_keep_their_rows_and_one_that_was_taken_out_is_named(site: Site) -> None:
    for target in (site.here, site.there):
        target.remove("nightly", "r1")
        site.catalogue.removed("r1", target.name, because="older than 45d")
    site.look().require_sound()
    assert {backup.removed_because for backup in site.catalogue.run("r1").backups} == {"older than 45d"}
    site.force("DELETE FROM backups WHERE run_id = 'r1' AND target = 'there'")
    assert "row 2 of the audit chain has run r1's backup on target there" in texts(site.look())


def test_a_digest_that_was_changed_in_the_catalogue_is_named(site: Site) -> None:
    site.force("UPDATE backups SET sha256 = 'ff' WHERE run_id = 'r2' AND target = 'here'")
    found = site.look()
    assert [(flaw.row, flaw.run_id, flaw.target) for flaw in found.all_flaws] == [(4, "r2", "here")]


def test_a_manifest_of_other_objects_than_the_chain_tells_of_is_named(site: Site) -> None:
    manifest = site.here.manifest("nightly", "r2")
    other = replace(manifest, objects=(replace(manifest.objects[0], stored_sha256="ff" * 32),))
    site.here.remove("nightly", "r2")
    site.here.publish(other)
    assert "differs from the one in row 4 of the audit chain" in texts(site.look(site.here))


@pytest.mark.parametrize(("taken_from", "row"), [("r1", 1), ("r3", 5)])
def test_a_manifest_with_the_head_of_another_time_is_named(site: Site, taken_from: str, row: int) -> None:
    head = site.here.manifest("nightly", taken_from).audit_head
    manifest = replace(site.here.manifest("nightly", "r2"), audit_head=head)
    site.here.remove("nightly", "r2")
    site.here.publish(manifest)
    assert f"was written at row {row} of the audit chain, but its run is between rows 3 and 4" in texts(site.look())


def test_a_manifest_that_was_changed_or_put_in_anothers_place_is_named(site: Site) -> None:
    first, second = (("nightly", run_id, "manifest.json") for run_id in ("r1", "r2"))
    site.here.stored[first] = site.here.stored[first].replace(b'"db1"', b'"db2"')
    site.here.stored[second] = site.here.stored["nightly", "r3", "manifest.json"]
    found = site.look(site.here)
    assert "run r1 on target here: the manifest was changed after it was written" in texts(found)
    assert "run r2 on target here: its manifest is that of run r3" in texts(found)


def test_a_backup_whose_run_nobody_told_of_is_named_but_not_another_hosts(site: Site) -> None:
    for job, run_id in (("nightly", "stray"), ("hers", "r7")):
        site.here.publish(replace(MANIFEST, job=job, run_id=run_id, audit_head=site.catalogue.audit_head()))
    found = site.look(site.here)
    assert [flaw.run_id for flaw in found.all_flaws] == ["stray"]


def test_backups_that_a_rebuilt_catalogue_took_in_are_bound_to_the_chain_that_was_lost(
    site: Site, tmp_path: Path
) -> None:
    with Catalogue.open(tmp_path / "new.db") as catalogue:
        for target in (site.here, site.there):
            rebuild(target, catalogue, BELIEVED).require_complete()
        found = check_trail(catalogue.audit_trail(), (site.here, site.there), JOBS)
    found.require_sound()
    assert [(look.manifests, look.foreign) for look in found.looks] == [(0, 3), (0, 3)]


def test_an_older_copy_of_the_catalogue_is_told_by_newer_manifests(site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "older.db"
    with direct(site.path, busy_timeout_seconds=1) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    site.back_up("r4")
    with Catalogue.open(copy) as older:
        found = check_trail(older.audit_trail(), (site.here,), JOBS)
    assert {flaw.run_id for flaw in found.all_flaws} == {"r4"}


def test_a_target_that_cannot_be_read_is_the_targets_fault_and_the_others_are_read(site: Site) -> None:
    site.here.calls, site.here.fail_at_call = 0, 1
    found = site.look()
    assert [(look.target, look.manifests, len(look.errors)) for look in found.looks] == [
        ("here", 0, 1),
        ("there", 3, 0),
    ]
    with pytest.raises(TargetError, match="not all manifests could be read: here: target here failed"):
        found.require_sound()
    site.force("UPDATE audit SET subject = 'r9' WHERE number = 4")
    with pytest.raises(VerificationError):
        site.look().require_sound()


def test_a_backup_that_is_removed_while_it_is_looked_at_is_no_fault(site: Site) -> None:
    class Pruned(MemoryTarget):
        def manifest(self, job: str, backup_id: str) -> Manifest:
            self.remove(job, "r2")
            return super().manifest(job, backup_id)

    pruned = Pruned("here", stored=dict(site.here.stored), at=dict(site.here.at))
    found = site.look(pruned)
    found.require_sound()
    assert found.looks[0].manifests == 2
