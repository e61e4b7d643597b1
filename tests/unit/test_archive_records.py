"""What the catalogue knows of how binlog archives stand, of many jobs at once and without a walk through segments."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, event

from backupd.catalogue.archive_records import ArchiveRecord
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment
from tests.binlog_segments import BEGAN, CHAIN, FIRST, chain_of
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

LATER = BEGAN + timedelta(days=1)
OTHER = "20261120T050000Z-0123abcd"
HOUR = timedelta(hours=1)


def known(catalogue: Catalogue, *segments: BinlogSegment) -> None:
    for segment in segments:
        catalogue.add_segment(replace(segment, machine=catalogue.identity().name))


def archive(catalogue: Catalogue, job: str = "nightly", at: datetime = LATER) -> ArchiveRecord:
    return catalogue.records([job], at=at)[job].archive


def test_a_job_without_segments_has_nothing_to_tell(catalogue: Catalogue) -> None:
    known(catalogue, FIRST)
    assert archive(catalogue, "hourly") == ArchiveRecord()


def test_the_oldest_that_waits_and_the_newest_are_told(catalogue: Catalogue) -> None:
    chain = chain_of(4)
    known(catalogue, *chain)
    newest = chain[3].received_at, chain[3].last_at
    assert archive(catalogue) == ArchiveRecord(chain[0].received_at, *newest, waiting=4, waiting_bytes=1200)
    catalogue.left_spool([segment.name for segment in (chain[0], chain[2])])
    assert archive(catalogue) == ArchiveRecord(chain[1].received_at, *newest, waiting=2, waiting_bytes=600)
    catalogue.left_spool([segment.name for segment in chain])
    assert archive(catalogue) == ArchiveRecord(None, *newest)


def test_the_last_transaction_may_have_ended_before_the_newest_segment(catalogue: Catalogue) -> None:
    first, second = chain_of(2)
    known(catalogue, first, replace(second, transactions=0, first_at=None, last_at=None))
    found = archive(catalogue)
    assert (found.received_at, found.last_at) == (second.received_at, first.last_at)


def test_each_job_has_its_own_and_what_lies_ahead_does_not_count(catalogue: Catalogue) -> None:
    ahead = replace(FIRST, chain=OTHER, received_at=LATER + HOUR, last_at=LATER + HOUR, digest="2" * 64)
    known(catalogue, FIRST, ahead, replace(FIRST, chain="20261121T000000Z-0123abcd", job="hourly", last_at=LATER))
    catalogue.left_spool([FIRST.name, ahead.name])
    catalogue.archive_gap("nightly", ArchiveGap(CHAIN, "the log was reset", LATER + HOUR, None))
    found = catalogue.records(["hourly", "nightly", "weekly"], at=LATER)
    assert found["nightly"].archive == ArchiveRecord(None, FIRST.received_at, FIRST.last_at)
    assert found["hourly"].archive == ArchiveRecord(
        FIRST.received_at, FIRST.received_at, LATER, waiting=1, waiting_bytes=300
    )
    assert found["weekly"].archive == ArchiveRecord()


def test_gaps_are_told_as_they_were_noticed(catalogue: Catalogue) -> None:
    newest = ArchiveGap(CHAIN, "the log\nwas reset", BEGAN + 2 * HOUR, BEGAN, BEGAN + HOUR)
    catalogue.archive_gap("nightly", newest)
    older = ArchiveGap(OTHER, "the spool was full", BEGAN + HOUR, None)
    catalogue.archive_gap("nightly", older)
    assert archive(catalogue).gaps == (older, newest)
    assert archive(catalogue, at=BEGAN + HOUR).gaps == (older,)
    assert archive(catalogue, "hourly").gaps == ()


def test_no_segment_is_read_but_those_at_the_ends_of_an_index(catalogue: Catalogue, path: Path) -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []
    known(catalogue, *chain_of(2))

    def hear(_connection: object, _cursor: object, query: str, values: tuple[object, ...], *_rest: object) -> None:
        asked.append((query, values))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        archive(catalogue)
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    of_archives = [(query, values) for query, values in asked if "binlog_segments" in query or "archive_gaps" in query]
    assert len(of_archives) == 2, "one question for all jobs"
    with direct(path, busy_timeout_seconds=1) as connection:
        plan = [
            row[3]
            for query, values in of_archives
            for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
        ]
    of_segments = [step for step in plan if "binlog_segments" in step]
    waiting = "SEARCH binlog_segments USING INDEX ix_binlog_segments_spooled (machine=? AND job=?)"
    newest = "USING INDEX ix_binlog_segments_machine_job_received_at (machine=? AND job=? AND received_at<?)"
    assert of_segments.count(waiting) == 3, "since when, how many and how many bytes"
    assert [step for step in of_segments if step != waiting and newest.removeprefix("USING ") not in step] == []
    assert len(of_segments) == 5
    assert not any("SCAN archive_gaps" in step or "SCAN ours" in step for step in plan)
    assert [step for step in plan if "TEMP B-TREE" in step] == ["USE TEMP B-TREE FOR ORDER BY"], "of a job's gaps"
