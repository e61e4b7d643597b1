"""By which `old_mode` a log's DDL is applied: the recorded one, and where there is none, that is told."""

from dataclasses import replace

import pytest

from backupd.operations.restore.moment.moment_copy import doubt_of_log
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.log_modes import (
    DECIDING,
    MISFITS,
    OF_ENGINES,
    definition_doubt,
    misfit_doubt,
    mode_doubt,
    statement_doubt,
)
from backupd.policy.moments import Latest
from backupd.policy.roll_forward import EndCondition, RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace, ChangeKind, TableChange
from backupd.vocabulary.servers import Flavour
from tests.binlog_segments import FIRST
from tests.story.stored import manifest
from tests.unit.test_log_to_moment import AT
from tests.unit.test_log_zone import ALTERED, DROPPED, facts, segment

UNKNOWN = replace(facts(), flavour=Flavour.MARIADB, version_number=(10, 11, 19))
BY_STATEMENT = TableChange("shop", "orders", ChangeKind.UPDATE)


def test_a_mode_that_was_not_recorded_is_told_where_the_log_has_ddl() -> None:
    other = replace(ALTERED, kind=ChangeKind.OTHER)
    for log in ([segment(), segment("", ALTERED)], [segment("", other)], [replace(segment(), all_changes=False)]):
        assert "old_mode was not recorded" in mode_doubt(UNKNOWN, log)


@pytest.mark.parametrize("mode", ["", "UTF8_IS_UTF8MB3"])
def test_a_recorded_mode_is_no_doubt(mode: str) -> None:
    assert mode_doubt(replace(UNKNOWN, settings={"old_mode": mode}), [segment("", ALTERED)]) == ""


def test_no_mode_is_no_doubt_where_nothing_can_mean_it() -> None:
    assert mode_doubt(UNKNOWN, [segment(), segment("", DROPPED)]) == ""
    assert mode_doubt(replace(UNKNOWN, version_number=(10, 5, 29)), [segment("", ALTERED)]) == ""
    assert mode_doubt(replace(UNKNOWN, flavour=Flavour.MYSQL), [segment("", ALTERED)]) == ""


def test_settings_that_were_not_recorded_are_told_where_the_log_changes_rows_by_statements() -> None:
    log = [segment(), segment("", BY_STATEMENT)]
    earlier = replace(UNKNOWN, settings={"div_precision_increment": "4"})  # by a backupd that recorded fewer
    assert "max_sort_length" in statement_doubt(UNKNOWN, log)
    assert "max_sort_length" in statement_doubt(earlier, log)
    assert statement_doubt(replace(UNKNOWN, settings={"max_sort_length": "1024"}), log) == ""
    assert statement_doubt(UNKNOWN, [segment("", replace(BY_STATEMENT, rows=3), ALTERED)]) == ""


@pytest.mark.parametrize("flavour", list(Flavour))
def test_settings_that_were_not_recorded_are_told_where_the_log_has_ddl(flavour: Flavour) -> None:
    server = replace(UNKNOWN, flavour=flavour)
    for log in ([segment("", ALTERED)], [replace(segment(), all_changes=False)]):
        assert "innodb_default_row_format" in definition_doubt(server, log)
        assert definition_doubt(replace(server, settings={"max_sort_length": "1024"}), log) == ""
    assert definition_doubt(server, [segment("", DROPPED, BY_STATEMENT)]) == ""


@pytest.mark.parametrize("name", OF_ENGINES)
def test_a_setting_that_gives_tables_another_engine_is_told_where_the_log_has_ddl_and_is_not_applied(name: str) -> None:
    server = replace(UNKNOWN, settings={"max_sort_length": "1024", name: "MyISAM"})
    assert name not in DECIDING
    assert f"the server had {name}, which no copy has" in definition_doubt(server, [segment("", ALTERED)])
    assert definition_doubt(server, [segment("", DROPPED, BY_STATEMENT)]) == ""
    assert definition_doubt(replace(server, settings={**server.settings, name: ""}), [segment("", ALTERED)]) == ""


def test_a_setting_that_was_not_understood_is_told_where_the_log_has_statements() -> None:
    server = replace(UNKNOWN, settings={"max_sort_length": "1024", MISFITS: "old_passwords,thread_stack"})
    for log in ([segment("", ALTERED)], [segment("", BY_STATEMENT)], [replace(segment(), all_changes=False)]):
        assert "old_passwords,thread_stack" in misfit_doubt(server, log)
    assert misfit_doubt(server, [segment("", replace(BY_STATEMENT, rows=3), DROPPED)]) == ""
    assert misfit_doubt(UNKNOWN, [segment("", ALTERED)]) == ""


@pytest.mark.parametrize(
    ("settings", "doubts"),
    [
        ({}, 4),
        ({"old_mode": ""}, 3),
        ({"time_zone": "+00:00"}, 3),
        ({"max_sort_length": "1024"}, 2),
        ({"max_sort_length": "1024", "group_concat_max_len": "-1"}, 3),
        ({"ft_stopword_file": "/not/here"}, 5),
    ],
)
def test_restores_and_drills_are_told_it_beside_the_doubt_about_the_zone(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], doubts: int
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    log, backup = (segment("", ALTERED, BY_STATEMENT),), PlacedBackup("r1", BinlogPlace(FIRST.file, 4), "", AT)
    plan = RestorePlan(backup, log, backup.place, EndCondition(Latest(), met_in_last=False))
    told = doubt_of_log(plan, replace(manifest((), ()), server=replace(UNKNOWN, settings=settings)))
    assert len(told.split("; ")) == doubts
