"""What an archive of a binlog has to outlive: each test is of one way in which it might lie or lose something."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
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


# What waits in the spool and is lost with it is on no target: the archive does not pretend that it is, and says so.
def waiting(site: Site) -> int:
    """Segments that are recorded to wait in the spool."""
    (told,) = json.loads(site.run("binlog", "status", "nightly", "--json").stdout)["jobs"]
    return int(told["spool"]["segments"])


def test_segments_that_are_lost_with_the_spool_are_a_gap_that_is_told(site: Site) -> None:
    with site.archiving():
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        away = site.vault.with_name("away")
        site.vault.rename(away)
        write(site.server)
        spool = site.base / "spool" / "nightly"
        # A file alone is not enough: what is not recorded yet when the receiver ends is received again, without a gap.
        wait_until(lambda: waiting(site) > 0)
    for path in spool.glob("*.binlog"):
        path.unlink()
    away.rename(site.vault)
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert gaps(site)


# A process that died between telling that a target has a segment and taking it from the spool leaves it there for ever.
def test_what_every_target_has_leaves_the_spool_though_a_process_died_before_that(site: Site) -> None:
    with site.archiving():
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        spool = site.base / "spool" / "nightly"
        wait_until(lambda: not list(spool.glob("*.binlog")))
    newest = max(site.vault.glob("*/nightly/binlog/*.binlog"))
    (spool / newest.name).write_bytes(newest.read_bytes())
    with closing(sqlite3.connect(site.base / "state" / "catalogue.sqlite")) as connection:
        connection.execute("UPDATE binlog_segments SET spooled = 1 WHERE id = (SELECT max(id) FROM binlog_segments)")
        connection.commit()
    with site.archiving():
        wait_until(lambda: not list(spool.glob("*.binlog")))


# A catalogue that was lost and rebuilt: where no target has more of the chain, it goes on behind what it has.
def test_the_archive_of_a_rebuilt_catalogue_goes_on_where_it_ended(site: Site) -> None:
    site.back_up()
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    write(site.server)
    (manifest,) = site.vault.glob("*/nightly/*/manifest.json")
    for path in (site.base / "state").glob("catalogue.sqlite*"):
        path.unlink()
    site.run("identity", "adopt", manifest.parents[2].name, "--yes")
    site.run("catalogue", "rebuild", "--target", "vault")
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert require_as_the_server_has_it(site).gtid_end == last
    assert gaps(site) == []


# A new identity (a clone's, or that of a lost catalogue) while the archive is at work: what would be kept under the old
# name is in the way of the next start, until a person removes it.
def test_an_archive_whose_machine_has_another_identity_starts_again_by_itself(site: Site) -> None:
    with site.archiving() as receiver:
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        site.run("identity", "new", "--yes")
        write(site.server)
        assert receiver.wait(60) == 2
    assert "was started as" in (site.base / "receiver.log").read_text()
    name = site.run("identity", "show").stdout.split()[1]
    with site.archiving():
        write(site.server)
        wait_until(lambda: any((site.vault / name / "nightly" / "binlog").glob("*.binlog")))
    assert waiting(site) == 0
