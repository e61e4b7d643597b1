"""In which time zone a log is applied: the one that it was written in, and nobody is left to believe in a guess."""

from dataclasses import replace

import pytest

from backupd.policy.log_zone import LogZone, log_zone
from backupd.policy.segment_file import from_line, signed, to_line
from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind, TableChange
from backupd.vocabulary.errors import Unreadable
from backupd.vocabulary.servers import ServerFacts
from tests.binlog_segments import FIRST
from tests.signers import signer
from tests.story.stored import manifest

NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"
ALTERED = TableChange("shop", "orders", ChangeKind.ALTER)
DROPPED = TableChange("shop", "orders", ChangeKind.DROP)


def facts(**settings: str) -> ServerFacts:
    return replace(manifest((), ()).server, settings=settings)


def segment(zone: str = "", *changes: TableChange) -> BinlogSegment:
    return replace(FIRST, origin=replace(FIRST.origin, zone=zone), changes=(*FIRST.changes, *changes))


def test_the_zone_of_the_log_goes_before_that_of_the_backup() -> None:
    log = [segment("", ALTERED), segment(BERLIN, ALTERED)]
    assert log_zone(facts(system_zone=NEW_YORK), log, named=True) == LogZone(BERLIN)


def test_the_zone_of_the_backup_is_that_of_a_log_that_tells_none() -> None:
    assert log_zone(facts(system_zone=NEW_YORK), [segment("", ALTERED)], named=True) == LogZone(NEW_YORK)


def test_an_unknown_zone_is_told_where_statements_may_mean_it() -> None:
    log = [segment(), segment("", ALTERED)]
    assert "not known" in log_zone(facts(), log, named=False).doubt
    assert "not known" in log_zone(facts(time_zone="SYSTEM", system_zone=""), log, named=False).doubt
    assert "not known" in log_zone(facts(), [replace(segment(), all_changes=False)], named=False).doubt


@pytest.mark.parametrize("log", [[], [segment()], [segment("", DROPPED)]])
def test_an_unknown_zone_is_no_doubt_where_all_is_logged_as_rows(log: list[BinlogSegment]) -> None:
    assert log_zone(facts(), log, named=False) == LogZone("")


def test_an_unknown_zone_is_no_doubt_where_somebody_names_it_or_nobody_means_it() -> None:
    log = [segment("", ALTERED)]
    assert log_zone(facts(), log, named=True) == LogZone("")
    assert log_zone(facts(time_zone="+00:00"), log, named=False) == LogZone("")


def test_a_log_of_several_zones_is_told() -> None:
    found = log_zone(facts(), [segment(NEW_YORK, ALTERED), segment(BERLIN)], named=True)
    assert found.name == BERLIN
    assert f"several time zones ({NEW_YORK}, {BERLIN})" in found.doubt


def test_a_segment_of_an_unknown_zone_is_described_as_before_there_were_any() -> None:
    key = signer()
    old, new = signed(segment(), key), signed(segment(BERLIN), key)
    assert b'"schema":{"major":1,"minor":0}' in to_line(old)
    assert b"zone" not in to_line(old)
    assert b'"schema":{"major":1,"minor":2}' in to_line(new)
    assert [from_line(to_line(one)).origin.zone for one in (old, new)] == ["", BERLIN]


def test_a_segment_of_no_possible_zone_is_refused() -> None:
    with pytest.raises(Unreadable, match=r"no valid segment\.origin"):
        from_line(to_line(signed(segment("../../etc/passwd"), signer())))
