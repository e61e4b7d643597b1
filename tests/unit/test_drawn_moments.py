"""A moment is drawn among those that the keys which are here lead to."""

from dataclasses import replace
from pathlib import Path

import pytest

from backupd.archive.encryption import Identities
from backupd.catalogue.store import Catalogue
from backupd.cli.drawn_moments import Drawn
from backupd.cli.moments import AskedMoment, WayToMoment, way_to
from backupd.vocabulary.errors import NoKey
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import FIRST, chain_of
from tests.unit.catalogues import catalogue, path
from tests.unit.test_metrics import configured

__all__ = ["catalogue", "path"]

FORMER, PRESENT = "age1former", "age1present"
OURS = Identities("key.txt", (PRESENT,), ())
SEEDS = range(12)


@pytest.fixture
def rotated(catalogue: Catalogue) -> Catalogue:
    """Two backups for the former key, and one for the present one; the archive went over to that two segments later."""
    chain = chain_of(12, first=replace(FIRST, machine=catalogue.identity().name))
    for number, segment in enumerate(chain, 1):
        catalogue.add_segment(replace(segment, recipients=(FORMER if number <= 8 else PRESENT,)), spooled=False)
        catalogue.segment_stored(segment.name, "disk", at=segment.received_at)
    for run_id, behind, key in (("r1", chain[0], FORMER), ("r2", chain[3], FORMER), ("r3", chain[8], PRESENT)):
        at = behind.received_at
        backup = Backup("disk", f"disk/{run_id}", 10, 5, 1, "b" * 64, manifest_digest="c" * 64, recipients=(key,))
        run = RunDetails(
            run_id, "nightly", "db1", behind.machine, RunStatus.SUCCESS, at, ended_at=at, backups=(backup,)
        )
        catalogue.import_run(replace(run, position=Position(behind.file, behind.end, behind.gtid_end)))
    return catalogue


def drawn(catalogue: Catalogue, folder: Path, seed: int, identities: Identities | None = OURS) -> WayToMoment:
    configuration = configured(
        folder,
        targets={"disk": {"type": "directory", "path": folder}},
        jobs={"nightly": {"host": "db1", "targets": ("disk",), "binlog": {"spool": folder / "spool"}}},
    )
    return way_to(configuration, catalogue, AskedMoment(Drawn(seed), None), target=None, identities=identities)


def test_none_is_drawn_from_before_a_rotation_whose_key_is_gone(rotated: Catalogue, tmp_path: Path) -> None:
    found = [drawn(rotated, tmp_path, seed) for seed in SEEDS]
    assert {way.run.run_id for way in found} == {"r3"}
    assert {segment.recipients for way in found for segment in way.plan.segments} == {(PRESENT,)}


def test_with_both_keys_all_moments_are_drawn(rotated: Catalogue, tmp_path: Path) -> None:
    both = Identities("keys.txt", (FORMER, PRESENT), ())
    assert {drawn(rotated, tmp_path, seed, both).run.run_id for seed in SEEDS} == {"r1", "r2", "r3"}


def test_segments_for_the_former_key_behind_a_backup_for_the_new_one_are_not_drawn(
    rotated: Catalogue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive went over to the new key a little later than the backups; the seed that is told draws it again."""
    (segment,) = [one for one in rotated.segments("nightly") if one.number == 3]
    at = segment.received_at
    backup = Backup("disk", "disk/r0", 10, 5, 1, "b" * 64, manifest_digest="c" * 64, recipients=(PRESENT,))
    run = RunDetails("r0", "nightly", "db1", segment.machine, RunStatus.SUCCESS, at, ended_at=at, backups=(backup,))
    rotated.import_run(replace(run, position=Position(segment.file, segment.end, segment.gtid_end)))
    for seed in SEEDS:
        capsys.readouterr()
        way = drawn(rotated, tmp_path, seed)
        assert {one.recipients for one in way.plan.segments} == {(PRESENT,)}
        told = capsys.readouterr().err.partition("drawn with seed ")[2].partition(":")[0]
        assert drawn(rotated, tmp_path, int(told)).plan.end == way.plan.end


def test_where_nothing_can_be_opened_that_is_said_of_the_newest_backup(rotated: Catalogue, tmp_path: Path) -> None:
    stranger = Identities("other.txt", ("age1other",), ())
    with pytest.raises(NoKey, match=r"none of the identities in other.txt can read run r3 \(the newest backup of job"):
        drawn(rotated, tmp_path, 1, stranger)
    with pytest.raises(NoKey, match=r"run r3 \(the newest backup of job nightly\) is encrypted for age1present"):
        drawn(rotated, tmp_path, 1, None)


def test_a_backup_that_is_being_removed_leads_to_no_drawn_moment(rotated: Catalogue, tmp_path: Path) -> None:
    both = Identities("keys.txt", (FORMER, PRESENT), ())
    rotated.removing("r1", "disk", because="expired")
    assert {drawn(rotated, tmp_path, seed, both).run.run_id for seed in SEEDS} == {"r2", "r3"}
