"""The second before the accident: a backup, the binlog archive behind it, and files that are at exactly that moment.

All of it is real: the server, its client program that receives, the commands as a person types them.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.archive_site import Moment, Rows, Site, rows_of
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.hostile.backups import RUN

pytestmark = pytest.mark.thorough


@contextmanager
def started_on(datadir: Path) -> Iterator[MariadbServer]:
    """A server on restored files, as a person would start one."""
    folder = datadir.parent / "started"
    folder.mkdir()
    server = MariadbServer(folder, "--skip-slave-start")
    server.datadir = datadir
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, Moment], str]]:
    """A backup, work over a rotation and a crash of the server, and a table that somebody drops; the drop's GTID."""
    base = tmp_path_factory.mktemp("site")
    with mariadb("--gtid-strict-mode=1", "--binlog-format=ROW") as server:
        site = Site(base, server)
        site.back_up()
        moments: dict[str, Moment] = {}
        with site.archiving():
            with server.session() as root:
                for number in range(30):
                    root.execute(f"INSERT INTO t.innodb (v) VALUES ('after the backup {number}')")
                    root.execute("UPDATE t.myisam SET v = CONCAT(v, 'x') LIMIT 1")
            moments["busy"] = site.moment()
            with server.session() as root:
                root.execute("FLUSH BINARY LOGS")
                place = site.stored_to_the_end(root)  # a segment ends there, without a transaction
                moments["a new binlog"] = replace(moments["busy"], place=place)
                root.execute("CREATE TABLE t.more (id INT PRIMARY KEY, v TEXT)")
                root.execute("INSERT INTO t.more VALUES (1, 'one')")
            server.stop(signal.SIGKILL)
            server.start()
            with server.session() as root:
                root.execute("INSERT INTO t.more VALUES (2, 'after the crash')")
            moments["before the accident"] = site.moment()
            with server.session() as root:
                root.execute("DROP TABLE t.innodb")
                drop = root.value("SELECT @@global.gtid_binlog_pos") or ""
                root.execute("INSERT INTO t.more VALUES (3, 'after the accident')")
            moments["at the end"] = site.moment()
            wait_until(lambda: site.stored(moments["at the end"].gtid))
        yield site, moments, drop


History = tuple[Site, dict[str, Moment], str]


def restored(history: History, tmp_path: Path, *moment: str) -> tuple[Rows, str, str]:
    """The rows of a server on what was restored, its GTID, and what was said."""
    site, _, _ = history
    done = site.run("restore", "--to", str(tmp_path / "to"), *moment)
    with started_on(tmp_path / "to") as server, server.session() as root:
        return rows_of(root), root.value("SELECT @@global.gtid_slave_pos") or "", done.stdout


def test_before_the_accident_every_row_is_back(history: History, tmp_path: Path) -> None:
    _, moments, drop = history
    rows, gtid, said = restored(history, tmp_path, "--before-gtid", drop)
    expected = moments["before the accident"]
    assert (rows, gtid) == (expected.rows, expected.gtid)
    assert f"restored run {RUN} and its binlog up to the moment before GTID {drop}" in said
    assert f"it stands at {expected.place.replace(':', ', ')}" in said or expected.place in said


@pytest.mark.parametrize("name", ["busy", "before the accident", "at the end"])
def test_each_kind_of_moment_is_reached_exactly(history: History, tmp_path: Path, name: str) -> None:
    _, moments, _ = history
    expected = moments[name]
    asked = {
        "busy": ("--to-gtid", expected.gtid),
        "before the accident": ("--to-time", expected.at.isoformat()),
        "at the end": ("--latest",),
    }[name]
    rows, gtid, _ = restored(history, tmp_path, *asked)
    assert (rows, gtid) == (expected.rows, expected.gtid)


# A place that no transaction ends at: where a new binlog begins, as SHOW MASTER STATUS tells it after a FLUSH.
@pytest.mark.parametrize("name", ["busy", "a new binlog"])
def test_a_place_in_the_log_is_reached_exactly(history: History, tmp_path: Path, name: str) -> None:
    _, moments, _ = history
    rows, gtid, _ = restored(history, tmp_path, "--to-position", moments[name].place)
    assert (rows, gtid) == (moments[name].rows, moments[name].gtid)


@pytest.mark.parametrize(
    ("moment", "sentence"),
    [
        (("--to-time", "2020-01-01"), "the oldest good backup is of"),
        (("--to-time", "2100-01-01"), "it is in the future"),
        (("--to-gtid", "0-7-999999"), "it is in no segment of the archive"),
        (("--before-gtid", "nonsense"), "'nonsense' is not the GTID of a transaction"),
        (("--before-gtid", "0-9-25"), "no transaction in the archive has this GTID"),  # 0-7-25 is there
        (("--to-time", "2026-10-25 02:30 Europe/Berlin"), "was shown twice, as the clocks were put back"),
        (("--to-position", "bin.000001"), "is not a place in a binlog"),
        (("--latest", "--to-time", "2026-01-01"), "two moments cannot be restored at once"),
    ],
)
def test_a_moment_that_cannot_be_reached_is_refused_and_nothing_is_made(
    history: History, tmp_path: Path, moment: tuple[str, ...], sentence: str
) -> None:
    site, _, _ = history
    refused = site.run("restore", "--to", str(tmp_path / "to"), *moment, expect=2)
    assert sentence in refused.stderr
    assert "hint: " in refused.stderr
    assert not os.path.lexists(tmp_path / "to")


def test_a_job_that_left_the_configuration_is_named_with_a_hint(history: History, tmp_path: Path) -> None:
    site, _, _ = history
    without = tmp_path / "backupd.toml"
    text = site.configuration.read_text()
    without.write_text(text.replace("[jobs.nightly", "[jobs.daily"))
    words = ["--config", str(without), "restore", RUN, "--to", str(tmp_path / "to"), "--latest"]
    refused = subprocess.run([*site.command()[:4], *words], capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused.stderr
    assert "no job 'nightly'" in refused.stderr
    assert "hint: " in refused.stderr
