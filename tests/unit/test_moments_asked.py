"""Which moments a person may ask of which backups, before anything is fetched."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backupd.catalogue.audit import Event
from backupd.catalogue.store import Catalogue
from backupd.cli.moments import archived_job, segments_read
from backupd.policy.moments import Latest
from backupd.vocabulary.errors import UsageError
from tests.binlog_segments import BEGAN, FIRST
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
