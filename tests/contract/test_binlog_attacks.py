"""What an archive of a binlog has to outlive: each test is of one way in which it might lie or lose something."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive_site import Site
from tests.contract.mariadb import mariadb, wait_until
from tests.contract.test_binlog_archive import gaps, require_as_the_server_has_it, write


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with mariadb() as server:
        yield Site(tmp_path, server)


# A server that dies when all that it wrote is archived ends a file with nothing more in it: no empty segment comes.
def test_a_server_that_dies_when_all_is_archived_leaves_no_empty_segment(site: Site) -> None:
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        begun = site.connections()
        site.server.stop(signal.SIGKILL)
        site.server.start()
        wait_until(lambda: site.connections() > begun)
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert require_as_the_server_has_it(site).gtid_end == last
    assert gaps(site) == []
    site.run("binlog", "search", "nightly")
