"""The second before the accident: a backup, the binlog archive behind it, and files that are at exactly that moment.

All of it is real: the server, its client program that receives, the commands as a person types them.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.vocabulary.servers import Flavour
from tests.archive_site import started_on
from tests.contract.mariadb import mariadb
from tests.moments.drawn import drawn
from tests.moments.history import BACKUPS, Ground, History, lived
from tests.moments.restoring import differences
from tests.share import seeded

SEED = 17

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with mariadb("--gtid-strict-mode=1", "--binlog-format=ROW") as server:
        ground = Ground(Flavour.MARIADB, "mariadb-binlog", started_on)
        yield lived(tmp_path_factory.mktemp("site"), server, ground, seed=SEED)


@pytest.mark.timeout(1500)  # a hundred of them
def test_moments_drawn_by_a_seed_are_as_a_witness_has_them(history: History, tmp_path: Path) -> None:
    assert differences(history, drawn(history, seeded(100, usual=5), seed=SEED), tmp_path) == []


def test_what_was_restored_and_where_it_stands_is_told(history: History, tmp_path: Path) -> None:
    gtid = history.changes["drop"]
    before = history.record.log[history.number(gtid) - 1]
    said = history.site.run("restore", "--to", str(tmp_path / "to"), "--before-gtid", gtid).stdout
    assert f"restored run {BACKUPS[1]} and its binlog up to the moment before GTID {gtid}: " in said
    assert f"position: {before.place}, GTID {before.gtid}, last commit {before.at:%Y-%m-%d %H:%M:%S} UTC" in said


@pytest.mark.parametrize(
    ("moment", "sentence"),
    [
        (("--to-time", "2020-01-01"), "the oldest good backup is of"),
        (("--to-time", "2100-01-01"), "it is in the future"),
        (("--to-gtid", "0-7-999999"), "it is in no segment of the archive"),
        (("--before-gtid", "nonsense"), "'nonsense' is not the GTID of a transaction"),
        (("--to-time", "2026-10-25 02:30 Europe/Berlin"), "was shown twice, as the clocks were put back"),
        (("--to-position", "bin.000001"), "is not a binlog position"),
        (("--to-latest", "--to-time", "2026-01-01"), "two moments cannot be restored at once"),
    ],
)
def test_a_moment_that_cannot_be_reached_is_refused_and_nothing_is_made(
    history: History, tmp_path: Path, moment: tuple[str, ...], sentence: str
) -> None:
    refused = history.site.run("restore", "--to", str(tmp_path / "to"), *moment, expect=2)
    assert sentence in refused.stderr
    assert "hint: " in refused.stderr
    assert not os.path.lexists(tmp_path / "to")


def test_a_job_that_left_the_configuration_is_named_with_a_hint(history: History, tmp_path: Path) -> None:
    site = history.site
    without = tmp_path / "backupd.toml"
    text = site.configuration.read_text()
    without.write_text(text.replace("[jobs.nightly", "[jobs.daily"))
    words = ["--config", str(without), "restore", BACKUPS[0], "--to", str(tmp_path / "to"), "--to-latest"]
    refused = subprocess.run([*site.command()[:4], *words], capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused.stderr
    assert "no job 'nightly'" in refused.stderr
    assert "hint: " in refused.stderr


def test_of_mariadbs_gtids_the_whole_counts_and_not_the_number_alone(history: History, tmp_path: Path) -> None:
    domain, server_id, number = history.changes["drop"].split("-")
    other = f"{domain}-{int(server_id) + 2}-{number}"
    refused = history.site.run("restore", "--to", str(tmp_path / "to"), "--before-gtid", other, expect=2)
    assert "no transaction in the archive has this GTID" in refused.stderr
    assert not os.path.lexists(tmp_path / "to")
