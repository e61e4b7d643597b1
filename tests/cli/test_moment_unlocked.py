"""A moment behind a backup that was taken without a lock: real server, archive and commands."""

from pathlib import Path

import pytest

from tests.archive_site import Site, started_on
from tests.contract.mariadb import mariadb
from tests.moments import unlocked


@pytest.mark.thorough
def test_a_moment_behind_a_backup_without_a_lock_is_reached_exactly_once_a_drill_has_found_its_place(
    tmp_path: Path,
) -> None:
    # MyISAM and Aria tables, which such a backup may not have, are those of the tests; nobody writes to them here.
    with mariadb("--gtid-strict-mode=1") as server:
        site = Site(tmp_path, server)
        unlocked.is_reached(site, started_on, lambda source: source.gtid, tmp_path / "to")
