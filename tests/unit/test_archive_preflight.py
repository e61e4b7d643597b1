"""What `backupd check` tells of a job's archive: what stands in its way, with a hint, and never a refusal."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import BinlogConfig, Configuration, HostConfig
from backupd.mysql.binlog.source import BinlogSource, ServerBinlog
from backupd.operations.binlog import archive_preflight
from backupd.vocabulary.binlogs import BinlogPlace, SegmentOrigin
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import Flavour
from tests.fakes.server import FACTS
from tests.story.daemon_world import job

WEEK = 7 * 86400
SOURCE = BinlogSource(
    origin=SegmentOrigin(Flavour.MARIADB, "10.11.19-MariaDB", 7, ""),
    format="ROW",
    end=BinlogPlace("bin.000007", 4711),
    gtid="0-7-1",
    gtid_state="0-7-1",
    files=(ServerBinlog("bin.000007", 4711),),
    expire_seconds=WEEK,
    encrypted=False,
    own_writes=False,
)


def told(source: BinlogSource) -> dict[str, Finding]:
    return {one.name: one for one in archive_preflight.of_log(source)}


def test_a_log_that_can_be_archived_has_nothing_against_it() -> None:
    found = told(SOURCE)
    assert set(found) == {"binlog archive", "binlog format", "binlog expiry"}
    assert {one.level for one in found.values()} == {Level.OK}
    assert found["binlog expiry"].detail == "kept for 7d"
    assert told(replace(SOURCE, expire_seconds=None))["binlog expiry"].detail == "kept indefinitely"


@pytest.mark.parametrize(
    ("change", "name", "says", "hint"),
    [
        (lambda one: replace(one, end=None, files=()), "binlog archive", "binlog is off", "log_bin"),
        (lambda one: replace(one, format="STATEMENT"), "binlog format", "STATEMENT", "binlog_format = ROW"),
        (lambda one: replace(one, expire_seconds=86399), "binlog expiry", "kept for 86399s", "binlog_expire_logs"),
    ],
)
def test_what_is_wrong_with_a_log_is_a_warning_with_a_hint(
    change: Callable[[BinlogSource], BinlogSource], name: str, says: str, hint: str
) -> None:
    found = told(change(SOURCE))[name]
    assert (found.level, says in found.detail, hint in found.hint) == (Level.WARNING, True, True)


def test_a_day_is_long_enough_and_statements_among_rows_are_no_fault() -> None:
    found = told(replace(SOURCE, expire_seconds=86400, format="MIXED"))
    assert {one.level for one in found.values()} == {Level.OK}


@pytest.mark.parametrize(("own", "level"), [(7, Level.WARNING), (8, Level.OK)])
def test_the_servers_own_id_is_no_receivers(own: int, level: Level) -> None:
    assert archive_preflight.of_receiver_id(SOURCE, own).level is level


@pytest.mark.parametrize(("lacks", "level"), [(True, Level.WARNING), (False, Level.OK)])
def test_an_account_without_the_privilege_is_told_which(lacks: bool, level: Level) -> None:
    found = archive_preflight.of_account("db1", lacks=lacks)
    assert (found.level, "GRANT REPLICATION SLAVE ON *.*" in found.hint) == (level, lacks)


def test_a_client_program_that_is_missing_or_older_is_a_warning(tmp_path: Path) -> None:
    missing = archive_preflight.of_client(BinlogConfig(client=tmp_path / "none"), FACTS)
    assert (missing.level, "no installed client can receive" in missing.detail) == (Level.WARNING, True)
    older = tmp_path / "mariadb-binlog"
    older.write_text("#!/bin/sh\necho 'mariadb-binlog from 11.4.2-MariaDB, client 3.5 for Linux'\n")
    older.chmod(0o755)
    for series, level in (((11, 8, 1), Level.WARNING), ((11, 4, 9), Level.OK)):
        facts = replace(FACTS, version=".".join(map(str, series)), version_number=series)
        assert archive_preflight.of_client(BinlogConfig(client=older), facts).level is level


def test_a_server_that_does_not_answer_is_told_and_a_job_without_an_archive_is_not_asked(tmp_path: Path) -> None:
    host = HostConfig(name="db1", socket=tmp_path / "none.sock", user="backupd")
    archived, plain = replace(job("nightly"), binlog=BinlogConfig()), job("nightly")
    configuration = Configuration(hosts={"db1": host}, jobs={"nightly": archived})
    (found,) = archive_preflight.examine(configuration, archived, "db1-0a1b2c3d")
    assert (found.name, found.level) == ("binlog archive", Level.WARNING)
    assert list(archive_preflight.examine(configuration, plain, "db1-0a1b2c3d")) == []
