"""Which moments a person may ask of which backups, before anything is fetched."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.catalogue.audit import Event
from backupd.catalogue.store import Catalogue
from backupd.cli.moments import AskedMoment, archived_job, segments_read, way_to
from backupd.operations.binlog.archive_status import archive_listing
from backupd.policy.moments import Latest, ToTime
from backupd.report.binlog_text import listing_text
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import BEGAN, FIRST, chain_of
from tests.held_archives import plan
from tests.unit.catalogues import catalogue, path
from tests.unit.test_failover import TAKEN
from tests.unit.test_metrics import configured, good

__all__ = ["catalogue", "path"]


def test_another_machine_s_backup_is_not_rolled_forward_by_this_one_s_archive(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    good(catalogue, "r1")
    configuration = configured(tmp_path)
    assert archived_job(configuration, catalogue, "r1", None) == "nightly"
    catalogue.take_identity(replace(catalogue.identity(), name="db2-77c01e9a"), Event.IDENTITY_ADOPTED)
    with pytest.raises(UsageError, match=r"run r1 is of machine .*: this catalogue has no binlog archive of that"):
        archived_job(configuration, catalogue, "r1", None)


def test_where_nothing_is_archived_a_backup_alone_is_not_the_latest_moment() -> None:
    with pytest.raises(UsageError, match="no segment of the binlog is archived there"):
        plan([TAKEN], [], Latest(), now=BEGAN + timedelta(days=1))


def test_segments_are_read_on_a_target_that_the_job_has_left(catalogue: Catalogue, tmp_path: Path) -> None:
    """Of a storage that is being moved from, backups can be restored, and rolled forward."""
    configuration = configured(
        tmp_path,
        targets={name: {"type": "directory", "path": tmp_path / name} for name in ("old", "new")},
        jobs={"nightly": {"host": "db1", "targets": ("new",), "every_seconds": 86400.0}},
    )
    segment = replace(FIRST, machine=catalogue.identity().name)
    catalogue.add_segment(segment, spooled=False)
    catalogue.segment_stored(segment.name, "old", at=BEGAN)
    reader = segments_read(configuration, catalogue, "nightly", target=None, identities=None)
    assert [target.name for target in reader.targets] == ["new", "old"]


def test_what_lies_on_a_target_that_is_not_configured_leads_to_no_moment(catalogue: Catalogue, tmp_path: Path) -> None:
    """It is passed by where another way leads there; what can be had by it alone is not told as such."""
    configuration = configured(
        tmp_path,
        targets={"new": {"type": "directory", "path": tmp_path}},
        jobs={"nightly": {"host": "db1", "targets": ("new",), "binlog": {"spool": tmp_path / "spool"}}},
    )
    chain = chain_of(6, first=replace(FIRST, machine=catalogue.identity().name))
    for segment in chain:
        catalogue.add_segment(segment, spooled=False)
        for target in ("old", "new") if segment is not chain[-1] else ("old",):
            catalogue.segment_stored(segment.name, target, at=segment.received_at)
    for run_id, behind, targets in (("r1", chain[0], ("old", "new")), ("r2", chain[2], ("old",))):
        at = behind.received_at
        backups = tuple(Backup(target, f"{target}/{run_id}", 10, 5, 1, "b" * 64) for target in targets)
        run = RunDetails(run_id, "nightly", "db1", behind.machine, RunStatus.SUCCESS, at, ended_at=at, backups=backups)
        catalogue.import_run(replace(run, position=Position(behind.file, behind.end, behind.gtid_end)))
    assert chain[4].last_at is not None
    way = way_to(*(configuration, catalogue, AskedMoment(ToTime(chain[4].last_at), None)), target=None, identities=None)
    assert (way.run.run_id, [segment.number for segment in way.plan.segments]) == ("r1", [2, 3, 4, 5])
    listing = archive_listing(
        *(configuration.jobs["nightly"], catalogue, configuration.targets), target=None, now=BEGAN + timedelta(days=1)
    )
    assert [(one.backup.run_id, one.until) for one in listing.reach.stretches] == [("r1", chain[4].last_at)]
    assert "no longer configured: old" in listing_text(listing)
