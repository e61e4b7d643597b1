"""A job's binlog archive lies among its backups, and whoever looks for backups neither counts nor removes any of it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, RetentionConfig
from backupd.host.claims import Claims
from backupd.operations.ownership import Ownership
from backupd.operations.restore.proof_host import provable
from backupd.operations.upkeep.audit import check_trail
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.targets.directory import DirectoryTarget
from backupd.targets.names import BINLOG, is_backups, is_segments, segment_of
from backupd.vocabulary.binlogs import segment_name
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.selectors import RESERVED
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import BELIEVED, MACHINE

NOW = datetime.now(UTC)
JOB = JobConfig(name="nightly", host="db1", targets=("here",), retention=RetentionConfig(keep_last=1))
CHAIN = "20261125T234000Z-1f2e3d4c"
NAMES = [segment_name(CHAIN, number) for number in (1, 2)]
UNFINISHED = f".{segment_name(CHAIN, 3)}.0123456789abcdef.partial"


@pytest.fixture
def target(tmp_path: Path) -> DirectoryTarget:
    """The backups r1 and r2, what a dead run left, and an archive that is being written to."""
    folder = tmp_path / "store"
    folder.mkdir()
    found = DirectoryTarget("here", folder, machine=MACHINE)
    for run_id in ("r1", "r2", "dead"):
        with found.writing("nightly", run_id, MANIFEST.objects[0].name) as writer:
            writer.write(b"12345")
    for run_id in ("r1", "r2"):
        found.publish(replace(MANIFEST, run_id=run_id))
    for name in NAMES:
        with found.writing("nightly", BINLOG, name) as writer:
            writer.write(b"events")
    (folder / MACHINE / "nightly" / UNFINISHED).write_bytes(b"half")
    (folder / MACHINE / "nightly" / BINLOG / "note.txt").write_bytes(b"a person's")
    return found


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(tmp_path / "catalogue.db", machine=lambda: Machine("db1")) as opened:
        yield opened


def archive(target: DirectoryTarget) -> set[str]:
    folder = target.folder / MACHINE / "nightly"
    return {path.name for path in (*(folder / BINLOG).iterdir(), *folder.glob(".*"))}


WHOLE = {*NAMES, UNFINISHED, "note.txt"}


def test_no_backup_and_no_run_is_called_so() -> None:
    assert not is_backups(BINLOG)
    assert BINLOG in RESERVED
    assert all(map(is_segments, NAMES))
    assert segment_of(UNFINISHED) == segment_name(CHAIN, 3)
    assert segment_of(NAMES[0]) is None


def test_a_rebuilt_catalogue_has_the_backups_and_nothing_of_the_archive(
    target: DirectoryTarget, catalogue: Catalogue
) -> None:
    found = rebuild(target, catalogue, BELIEVED)
    assert (set(found.imported), found.unfinished, found.failures) == ({"r1", "r2"}, ("dead",), ())
    assert archive(target) == WHOLE


def test_retention_removes_every_backup_beside_it_and_leaves_it(
    target: DirectoryTarget, catalogue: Catalogue, tmp_path: Path
) -> None:
    ownership = Ownership(catalogue, Machine("db1"), Claims(tmp_path / "run"), renewal_seconds=60, clock=lambda: 1000.0)
    rebuild(target, catalogue, BELIEVED)
    ownership.adopt(target)
    done = prune(JOB, (target,), catalogue, ownership=ownership, now=NOW + timedelta(days=400))
    assert {fate.decision.backup_id for fate in done.fates} == {"r1", "r2", "dead"}
    assert len(done.removed) >= 1
    for run_id in ("r1", "r2", "dead"):
        target.remove("nightly", run_id)
    assert target.backups() == []
    assert archive(target) == WHOLE


def test_an_audit_and_a_proof_host_see_the_backups_alone(target: DirectoryTarget, catalogue: Catalogue) -> None:
    rebuild(target, catalogue, BELIEVED)
    found = check_trail(catalogue.audit_trail(), (target,), ("nightly",))
    assert [look.errors for look in found.looks] == [()]
    assert BINLOG not in "".join(flaw.text for flaw in found.all_flaws)
    assert {copy.run_id for copy in provable(target, frozenset())} == {"r1", "r2"}
