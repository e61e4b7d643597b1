"""What the catalogue knows of binlog archives."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from backupd.catalogue import binlog_segments
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.operations.binlog.segment_author import new_chain
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment, ChangeKind, TableChange
from backupd.vocabulary.errors import Refused, Untrusted
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.storage import Signature
from tests.binlog_segments import BEGAN, CHAIN, FIRST, chain_of
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

AT = datetime(2026, 11, 20, 5, tzinfo=UTC)
OTHER = "20261125T000000Z-0123abcd"


def known(catalogue: Catalogue, count: int, **values: Any) -> list[BinlogSegment]:
    ours = replace(FIRST, machine=catalogue.identity().name, **values)
    found = chain_of(count, first=ours)
    for segment in found:
        catalogue.add_segment(segment)
    return found


def test_a_segment_comes_back_as_it_was_added(catalogue: Catalogue) -> None:
    told = {
        "changes": (TableChange("shop", "or\nders", ChangeKind.DROP), TableChange("s", "\udc80é", ChangeKind.ALTER)),
        "signature": Signature("backupd-ed25519:abc", "AAAA"),
        "recipients": ("age1abc",),
        "gtid_end": "0-1-10,1-2-3",
        "within_transaction": True,
    }
    whole = known(catalogue, 1, **told)[0]
    empty = replace(whole, number=2, previous=whole.digest, transactions=0, first_at=None, last_at=None, changes=())
    catalogue.add_segment(empty)
    assert list(catalogue.segments("nightly")) == [whole, empty]


def test_a_segment_is_known_once_and_no_other_one_takes_its_name(catalogue: Catalogue) -> None:
    (segment,) = known(catalogue, 1)
    catalogue.add_segment(segment)
    with pytest.raises(Untrusted, match="not the one on record"):
        catalogue.add_segment(replace(segment, digest="f" * 64))
    assert list(catalogue.segments("nightly")) == [segment]


def test_what_waits_is_lacking_until_it_is_stored(catalogue: Catalogue) -> None:
    chain = known(catalogue, 4)
    assert catalogue.lacking_segments("nightly", "disk") == chain
    for segment in chain[:2]:
        catalogue.segment_stored(segment.name, "disk", at=AT)
    assert catalogue.lacking_segments("nightly", "disk") == chain[2:]
    assert catalogue.lacking_segments("nightly", "cloud") == chain
    assert catalogue.lacking_segments("nightly", "cloud", at_most=3) == chain[:3]
    assert catalogue.segment_targets(chain[0].name) == {"disk"}
    assert catalogue.segment_targets(chain[2].name) == frozenset()
    assert catalogue.lacking_segments("hourly", "disk") == []
    catalogue.left_spool([segment.name for segment in chain[1:3]])
    assert catalogue.lacking_segments("nightly", "disk") == [chain[3]]
    assert catalogue.spooled_segments("nightly") == [chain[0], chain[3]]


def test_what_waits_is_found_without_a_look_at_what_is_stored(catalogue: Catalogue, path: Path) -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []
    known(catalogue, 2)

    def hear(_connection: object, _cursor: object, query: str, values: tuple[object, ...], *_rest: object) -> None:
        asked.append((query, values))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        catalogue.lacking_segments("nightly", "disk")
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    with direct(path, busy_timeout_seconds=1) as connection:
        plans = [connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall() for query, values in asked]
    assert any("USING INDEX ix_binlog_segments_spooled" in row[3] for plan in plans for row in plan)


def test_what_is_stored_twice_lies_there_once(catalogue: Catalogue) -> None:
    (segment,) = known(catalogue, 1)
    for _ in range(2):
        catalogue.segment_stored(segment.name, "disk", at=AT)
    assert list(catalogue.segments("nightly", target="disk")) == [segment]
    assert list(catalogue.segments("nightly", target="cloud")) == []


def test_a_segment_is_forgotten_when_it_lies_nowhere_and_does_not_wait(catalogue: Catalogue) -> None:
    first, second, third = known(catalogue, 3)
    names = [first.name, second.name, third.name]
    for name in names:
        catalogue.segment_stored(name, "disk", at=AT)
        catalogue.segment_stored(name, "cloud", at=AT)
    catalogue.left_spool(names[:2])
    catalogue.segments_removed("nightly", "disk", names, because="expired")
    assert list(catalogue.segments("nightly", target="disk")) == []
    catalogue.segments_removed("nightly", "cloud", [names[0], names[2]], because="expired")
    catalogue.forget_segments(names)
    assert list(catalogue.segments("nightly")) == [second, third], "one lies on a target, one waits"


def test_segments_are_read_page_by_page_as_they_were_received(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binlog_segments, "PAGE", 3)
    chain = known(catalogue, 7)
    at_once = known(catalogue, 1, chain=OTHER, received_at=chain[2].received_at)
    assert list(catalogue.segments("nightly")) == [*chain[:3], *at_once, *chain[3:]]
    assert list(catalogue.segments("nightly", chain=CHAIN)) == chain
    assert list(catalogue.segments("nightly", chain=CHAIN, since=chain[4].received_at)) == chain[4:]
    assert list(catalogue.segments("hourly")) == []


def test_the_latest_is_the_one_that_was_received_last(catalogue: Catalogue) -> None:
    assert catalogue.latest_segment("nightly") is None
    chain = known(catalogue, 3)
    catalogue.segment_stored(chain[1].name, "disk", at=AT)
    assert catalogue.latest_segment("nightly") == chain[2]
    assert catalogue.latest_segment("nightly", target="disk") == chain[1]


def begin(catalogue: Catalogue, run_id: str) -> None:
    with suppress(Refused), catalogue.open_run("nightly", "db1", run_id=run_id):
        raise Refused("it only begins")


def test_a_run_knows_behind_which_segment_it_began_or_an_earlier_one(catalogue: Catalogue) -> None:
    begin(catalogue, "before")
    chain = known(catalogue, 3)
    begin(catalogue, "behind")
    later = replace(chain[2], number=4, previous=chain[2].digest, received_at=BEGAN - timedelta(days=1))
    catalogue.add_segment(later)
    assert catalogue.received_before("behind", "nightly") == chain[2]
    names = [segment.name for segment in chain]
    catalogue.left_spool(names)
    catalogue.forget_segments(names[2:])
    assert catalogue.received_before("behind", "nightly") == chain[1]
    catalogue.forget_segments(names)
    for run_id in ("before", "behind"):
        assert catalogue.received_before(run_id, "nightly") == later, "the first that there is"


def test_of_a_run_that_another_catalogue_has_begun_nobody_knows_behind_which_segment(catalogue: Catalogue) -> None:
    known(catalogue, 1)
    run = RunDetails("r1", "nightly", "db1", catalogue.identity().name, RunStatus.SUCCESS, AT, ended_at=AT)
    catalogue.import_run(run)
    assert catalogue.received_before("r1", "nightly") is None
    assert catalogue.received_before("r2", "nightly") is None


def test_another_machine_s_segments_are_not_ours(catalogue: Catalogue) -> None:
    catalogue.add_segment(FIRST)
    assert list(catalogue.segments("nightly")) == []
    assert catalogue.lacking_segments("nightly", "disk") == []
    assert catalogue.latest_segment("nightly") is None


def test_a_gap_is_kept_and_told_anew_when_the_archive_goes_on(catalogue: Catalogue) -> None:
    gap = ArchiveGap(CHAIN, "the server\nhad purged it", AT, AT - timedelta(seconds=9))
    catalogue.archive_gap("nightly", gap)
    catalogue.archive_gap("hourly", replace(gap, last_at=None))
    assert catalogue.archive_gaps("nightly") == [gap]
    resumed = replace(gap, resumed_at=AT + timedelta(minutes=1))
    catalogue.archive_gap("nightly", resumed)
    earlier = ArchiveGap(OTHER, "RESET", AT - timedelta(days=1), None)
    catalogue.archive_gap("nightly", earlier)
    assert catalogue.archive_gaps("nightly") == [earlier, resumed]


def test_what_lies_where_and_what_waits_is_counted(catalogue: Catalogue) -> None:
    chain = known(catalogue, 4)
    catalogue.add_segment(replace(chain[0], machine="elsewhere-0a1b2c3d", chain=OTHER))
    for segment in chain[:3]:
        catalogue.segment_stored(segment.name, "disk", at=AT)
    catalogue.segment_stored(chain[0].name, "s3", at=AT)
    catalogue.left_spool([chain[0].name])
    assert catalogue.stored_segments("nightly") == {"disk": (3, 900), "s3": (1, 300)}
    assert catalogue.waiting_segments("nightly") == (3, 900)
    assert (catalogue.stored_segments("weekly"), catalogue.waiting_segments("weekly")) == ({}, (0, 0))


# A clock that was set back: an archive that went on behind an earlier segment would write the numbers behind it again.
def test_the_latest_of_a_chain_has_its_highest_number_whatever_the_clock_said(catalogue: Catalogue) -> None:
    first = replace(FIRST, machine=catalogue.identity().name)
    before, after = chain_of(2, first=first)
    after = replace(after, received_at=before.received_at - timedelta(hours=1))
    for segment in (before, after):
        catalogue.add_segment(segment)
    assert catalogue.latest_segment("nightly") == after
    assert new_chain(BEGAN - timedelta(days=1), after=CHAIN) > CHAIN
    another = replace(first, chain=new_chain(BEGAN - timedelta(days=1), after=CHAIN), received_at=after.received_at)
    catalogue.add_segment(replace(another, received_at=another.received_at - timedelta(hours=1)))
    latest = catalogue.latest_segment("nightly")
    assert latest is not None
    assert latest.chain == another.chain
