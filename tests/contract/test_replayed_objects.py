"""A restore to a moment has what the log made beside rows: events that run, triggers, views, routines, accounts."""

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.cli.moments import AskedMoment, found_moment
from backupd.host.signals import cancellable
from backupd.mysql.binlog.applying import ApplyingProgress
from backupd.mysql.binlog.source import binlog_source
from backupd.operations import context
from backupd.operations.restore.moment.to_moment import restore_to_moment
from backupd.policy.moments import Latest
from backupd.vocabulary.errors import Cancelled
from backupd.vocabulary.servers import Flavour
from tests.archive_site import Site, started_on
from tests.contract.mariadb import mariadb, wait_until
from tests.replayed_objects import made_before, made_later, objects_of, statuses_of

pytestmark = pytest.mark.thorough

BY_THE_LOG = ("a purge`s", "changed_off", "made_off", "renamed", "turned_off", "turned_on")


@dataclass(frozen=True)
class Source:
    site: Site
    objects: Mapping[str, object]
    statuses: Mapping[str, str]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    with mariadb("--binlog-format=ROW") as server:
        site = Site(tmp_path_factory.mktemp("site"), server)
        with server.session() as root:
            made_before(root)
        site.back_up()
        with site.archiving(), server.session() as root:
            made_later(root)
            executed = binlog_source(root).gtid
            wait_until(lambda: site.stored(executed))
            found = Source(site, objects_of(root, Flavour.MARIADB), statuses_of(root))
        yield found


def test_everything_is_as_the_source_had_it(source: Source, tmp_path: Path) -> None:
    assert source.statuses["a purge`s"] == source.statuses["turned_on"] == source.statuses["renamed"] == "ENABLED"
    source.site.run("restore", "--to", str(tmp_path / "to"), "--to-latest")
    with started_on(tmp_path / "to") as server, server.session() as root:
        assert objects_of(root, Flavour.MARIADB) == source.objects


def test_an_interrupted_restore_goes_on_with_the_events_as_they_were_there(source: Source, tmp_path: Path) -> None:
    def interrupt(progress: ApplyingProgress) -> None:
        if progress.done > progress.of // 3:
            os.kill(os.getpid(), signal.SIGTERM)

    configuration, to = context.configuration(source.site.configuration), tmp_path / "to"
    with context.catalogue(configuration) as catalogue, cancellable(), pytest.raises(Cancelled):
        found = found_moment(
            *(configuration, catalogue, AskedMoment(Latest(), run_id=None)),
            to=to,
            target=None,
            identities=None,
            applied=interrupt,
        )
        restore_to_moment(found.forward, found.manifest, found.sources, to=to)
    assert "continuing the interrupted restore" in source.site.run("restore", "--to", str(to), "--to-latest").stderr
    with started_on(to) as server, server.session() as root:
        assert objects_of(root, Flavour.MARIADB) == source.objects


def test_a_replica_leaves_its_sources_events_to_it_whether_the_log_says_anything_of_them(
    source: Source, tmp_path: Path
) -> None:
    source.site.run("clone", "--to", str(tmp_path / "clone"), "--as-replica", "--to-latest")
    with started_on(tmp_path / "clone", "--server-id=8") as replica, replica.session() as root:
        found = statuses_of(root)
    ran = [name for name, status in source.statuses.items() if status == "ENABLED"]
    assert found == {**source.statuses, **dict.fromkeys((*ran, *BY_THE_LOG), "SLAVESIDE_DISABLED")}
