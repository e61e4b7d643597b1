"""A binlog archive on a target, held against the catalogue."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest

from backupd.archive.encryption import Identities, read_identities
from backupd.catalogue.store import Catalogue
from backupd.host.claims import Claims
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.operations.binlog.verifying import SegmentsVerified, verify_segments
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.reach import Hole, reach
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace
from backupd.vocabulary.errors import TargetError, VerificationError
from tests.binlog_segments import FIRST, StoredSegment, lay_segments, sealed_chain
from tests.fakes.chain_rows import rows
from tests.fakes.target import MemoryTarget
from tests.signers import signer
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

SIGNER = signer()
AT = datetime(2026, 11, 20, 5, tzinfo=UTC)


class Archive:
    """Six segments on two targets, all of them known to the catalogue."""

    def __init__(self, catalogue: Catalogue, recipients: tuple[str, ...] = ()) -> None:
        self.catalogue = catalogue
        machine = catalogue.identity().name
        self.chain = sealed_chain(6, SIGNER, first=replace(FIRST, machine=machine), recipients=recipients)
        self.names = [one.segment.name for one in self.chain]
        self.target, self.other = MemoryTarget("disk", machine), MemoryTarget("cloud", machine)
        for one in self.chain:
            catalogue.add_segment(one.segment, spooled=False)
            self.store(one, self.target, self.other)
        self.reader = SegmentReader("nightly", [self.target])

    def store(self, one: StoredSegment, *targets: MemoryTarget) -> None:
        for target in targets:
            lay_segments(target, [one])
            self.catalogue.segment_stored(one.segment.name, target.name, at=AT)

    def verify(self, share: float = 1.0, draw: Callable[[], float] = lambda: 0.5) -> SegmentsVerified:
        return verify_segments(self.target, self.catalogue, self.reader, share=share, draw=draw)

    def change(self, number: int, content: Callable[[bytes], bytes], target: MemoryTarget | None = None) -> str:
        name = self.names[number]
        stored = (target or self.target).stored
        stored["nightly", "binlog", name] = content(stored["nightly", "binlog", name])
        return name

    def there(self) -> list[str]:
        """By the catalogue."""
        return [segment.name for segment in self.catalogue.segments("nightly", target="disk")]


@pytest.fixture
def archive(catalogue: Catalogue) -> Archive:
    return Archive(catalogue)


def test_a_whole_archive_is_read_whole(archive: Archive) -> None:
    found = archive.verify()
    assert (found.recorded, found.read, found.lost, found.errors) == (6, 6, [], [])
    assert found.bytes_read == sum(one.segment.stored_bytes for one in archive.chain)
    assert (found.breaks, found.unrecorded, found.strangers) == ([], [], [])
    found.require_whole()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        lambda content: content.replace(b'"end":1004', b'"end":1005'),
        lambda _: b"",
    ],
    ids=["shorter", "longer", "a bit", "the description", "empty"],
)
def test_what_was_changed_is_lost_and_recorded_so(archive: Archive, change: Callable[[bytes], bytes]) -> None:
    name = archive.change(0, change)
    found = archive.verify()
    assert [(one.name, one.elsewhere) for one in found.lost] == [(name, ("cloud",))]
    assert archive.there() == archive.names[1:]
    with pytest.raises(VerificationError, match=name) as raised:
        found.require_whole()
    assert "another target has each of them" in (raised.value.hint or "")
    row = archive.catalogue.audit_entries()[0]
    assert (row.event, row.detail["first"], row.detail["segments"]) == ("segments-removed", name, 1)
    assert archive.verify().unrecorded == [name], "its remains are told from now on"


def test_what_no_target_gives_as_it_was_recorded_is_told_of_each(archive: Archive) -> None:
    """One has lost a bit of it; on the other lies one that the same machine has signed, but not this one."""
    first = archive.chain[0].segment
    (another,) = sealed_chain(1, SIGNER, first=replace(first, gtid_end="0-1-11"))
    archive.change(0, lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    archive.change(0, lambda _: another.content, archive.other)
    reader = replace(archive.reader, targets=[archive.target, archive.other])
    with pytest.raises(VerificationError) as told:
        reader.content(first)
    assert told.value.__notes__ == [f"the segment {first.name} on target cloud is not the one that was recorded"]
    archive.change(0, lambda _: archive.chain[0].content, archive.other)
    assert reader.content(first).startswith(first.name.encode())


def test_one_that_is_missing_everywhere_has_no_row_any_more(archive: Archive) -> None:
    name = archive.names[2]
    for target in (archive.target, archive.other):
        target.remove_segments("nightly", [name])
    archive.catalogue.segments_removed("nightly", "cloud", [name], because="lost")
    found = archive.verify()
    assert [(one.name, one.reason, one.elsewhere) for one in found.lost] == [(name, "is missing", ())]
    with pytest.raises(VerificationError) as raised:
        found.require_whole()
    assert "on no other target" in (raised.value.hint or "")
    assert [segment.name for segment in archive.catalogue.segments("nightly")] == [
        *archive.names[:2],
        *archive.names[3:],
    ]
    assert "comes number 4" in archive.verify().breaks[0]


def test_what_is_lost_everywhere_is_a_gap_wherever_it_was(archive: Archive) -> None:
    lost = [archive.names[number] for number in (1, 2, 4)]
    for target in (archive.target, archive.other):
        target.remove_segments("nightly", lost)
    archive.verify()
    assert archive.catalogue.archive_gaps("nightly") == [], "another target has them, by the catalogue"
    archive.target, archive.other = archive.other, archive.target
    archive.verify()
    told = {gap.chain: gap for gap in archive.catalogue.archive_gaps("nightly")}
    assert list(told) == [f"{FIRST.chain}-0000000002", f"{FIRST.chain}-0000000005"]
    second, third, fifth = (archive.chain[number].segment for number in (1, 2, 4))
    assert "2 segments from" in told[f"{FIRST.chain}-0000000002"].reason
    between = [(gap.last_at, gap.resumed_at) for gap in told.values()]
    assert between == [(second.first_at, third.last_at), (fifth.first_at, fifth.last_at)]
    assert [hole.reason for hole in holes(archive)] == [gap.reason for gap in told.values()]


def test_what_is_lost_everywhere_is_told_also_where_the_log_of_a_later_series_began(archive: Archive) -> None:
    name = archive.names[2]
    parted = ArchiveGap(name.removesuffix(".binlog"), "from binlog.000008 on the log is of 11.8.9-MariaDB", AT, None)
    archive.catalogue.archive_gap("nightly", parted)
    archive.catalogue.segments_removed("nightly", "cloud", [name], because="lost")
    archive.target.remove_segments("nightly", [name])
    archive.verify()
    (gap,) = archive.catalogue.archive_gaps("nightly")
    assert (gap.chain, gap.reason) == (parted.chain, f"lost on every target: 1 segment from {name} on")


def holes(archive: Archive) -> tuple[Hole, ...]:
    """What cannot be restored, where there is a backup at the beginning of each segment that is there."""
    kept = list(archive.catalogue.segments("nightly"))
    places = [(one.name, BinlogPlace(one.file, one.start), one.gtid_start, one.first_at or AT) for one in kept]
    backups = [PlacedBackup(*place) for place in places]
    return reach(backups, rows(kept), archive.catalogue.archive_gaps("nightly")).holes


def test_what_waits_in_the_spool_still_is_no_gap(archive: Archive) -> None:
    segment = replace(archive.chain[2].segment, chain="20261121T040000Z-0123abcd", number=1, previous="")
    archive.catalogue.add_segment(segment)
    archive.catalogue.segment_stored(segment.name, "disk", at=AT)
    assert [one.name for one in archive.verify().lost] == [segment.name]
    assert archive.catalogue.archive_gaps("nightly") == []


def test_without_a_share_that_reads_it_a_changed_bit_is_not_seen_but_a_size_is(archive: Archive) -> None:
    archive.change(1, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    archive.change(4, lambda content: content[:-1])
    assert [one.name for one in archive.verify(share=0.5).lost] == [archive.names[4]]
    draws = iter([0.9, 0.1, 0.9, 0.9, 0.9, 0.9])
    assert [one.name for one in archive.verify(share=0.5, draw=lambda: next(draws)).lost] == [archive.names[1]]


def test_where_nothing_is_there_the_target_is_missing_and_no_row_changes(archive: Archive) -> None:
    archive.target.remove_segments("nightly", archive.names)
    with pytest.raises(TargetError, match="none of the 6 segments") as raised:
        archive.verify()
    assert "mounted" in (raised.value.hint or "")
    assert archive.there() == archive.names


@pytest.mark.parametrize("times", [1, 9])
def test_a_listing_that_leaves_one_out_loses_nothing(archive: Archive, times: int) -> None:
    class Forgetful(MemoryTarget):
        looks = 0

        def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
            self.looks += 1
            found = dict(super().segments(job, after=after))
            return found if self.looks > times else {name: size for name, size in found.items() if "3.b" not in name}

    archive.target = Forgetful("disk", archive.target.machine, stored=archive.target.stored)
    assert archive.verify().lost == []
    assert archive.there() == archive.names


def test_what_cannot_be_read_is_an_error_and_not_lost(archive: Archive) -> None:
    class Away(MemoryTarget):
        def _chunks(self, content: bytes, *, missing: int) -> Iterator[bytes]:
            raise TargetError("it is away")

    archive.target = Away("disk", archive.target.machine, stored=archive.target.stored)
    found = archive.verify()
    assert (len(found.errors), found.lost, archive.there()) == (6, [], archive.names)
    with pytest.raises(TargetError, match="it is away"):
        found.require_whole()


def test_what_retention_removes_meanwhile_is_not_lost(archive: Archive) -> None:
    class Pruned(MemoryTarget):
        def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
            found = super().segments(job, after=after)
            self.remove_segments(job, archive.names[:1])
            archive.catalogue.segments_removed(job, "disk", archive.names[:1], because="expired")
            return found

    archive.target = Pruned("disk", archive.target.machine, stored=archive.target.stored)
    found = archive.verify()
    assert (found.recorded, found.lost, found.errors) == (5, [], [])


def test_what_retention_is_just_removing_is_waited_for_and_not_lost(archive: Archive, tmp_path: Path) -> None:
    """Of a thousand at most that go together, the rows go last."""
    names, claims = archive.names[:2], Claims(tmp_path)
    removed, looked_for = Event(), Event()
    archive.other.remove_segments("nightly", names)
    archive.catalogue.segments_removed("nightly", "cloud", names, because="expired")

    def retention() -> None:
        with claims.segments("nightly"):
            archive.target.remove_segments("nightly", names)
            removed.set()
            looked_for.wait(60)
            archive.catalogue.segments_removed("nightly", "disk", names, because="expired")

    def undisturbed() -> AbstractContextManager[None]:
        looked_for.set()
        return claims.segments("nightly")

    pruning = Thread(target=retention)
    pruning.start()
    removed.wait(60)
    found = verify_segments(archive.target, archive.catalogue, archive.reader, undisturbed=undisturbed)
    pruning.join()
    assert (found.lost, found.errors, archive.catalogue.archive_gaps("nightly")) == ([], [], [])


def test_what_a_retention_that_was_killed_has_removed_is_not_lost(archive: Archive) -> None:
    archive.catalogue.segments_leaving("disk", archive.names[:3], because="expired")
    archive.target.remove_segments("nightly", archive.names[:2])
    found = archive.verify()
    assert (found.lost, found.errors, found.unrecorded) == ([], [], [])
    assert archive.catalogue.archive_gaps("nightly") == []


def test_where_nothing_is_there_the_target_is_missing_whatever_a_killed_retention_had_begun(archive: Archive) -> None:
    archive.catalogue.segments_leaving("disk", archive.names[:3], because="expired")
    archive.target.remove_segments("nightly", archive.names)
    with pytest.raises(TargetError, match="none of the 6 segments"):
        archive.verify()
    assert archive.there() == archive.names


def test_others_entries_are_told_and_let_be(archive: Archive) -> None:
    archive.target.stored["nightly", "binlog", "notes.txt"] = b"a person's"
    found = archive.verify()
    assert (found.strangers, found.lost) == (["notes.txt"], [])
    assert "notes.txt" in archive.target.segments("nightly")


def test_encrypted_ones_are_compared_as_stored_and_opened_with_an_identity(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    identities = new_identities(tmp_path / "key")
    archive = Archive(catalogue, recipients=identities.recipients)
    assert archive.verify().read == 6
    archive.reader = replace(archive.reader, identities=identities)
    found = archive.verify()
    assert (found.read, found.unopened, found.lost) == (6, 0, [])


def test_what_is_encrypted_for_those_of_before_is_compared_as_stored_and_counted(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """The recipients have changed in the middle, and the key of before is kept elsewhere, or was lost."""
    now, before = new_identities(tmp_path / "now"), new_identities(tmp_path / "before")
    archive = Archive(catalogue, recipients=now.recipients)
    first = replace(FIRST, machine=archive.target.machine, chain="20261119T040000Z-0123abcd")
    for one in sealed_chain(2, SIGNER, first=first, recipients=before.recipients):
        catalogue.add_segment(one.segment, spooled=False)
        archive.store(one, archive.target, archive.other)
    archive.reader = replace(archive.reader, identities=now)
    found = archive.verify()
    assert (found.read, found.unopened, found.lost) == (8, 2, [])
    archive.target.stored["nightly", "binlog", one.segment.name] += b"x"
    assert [lost.name for lost in archive.verify().lost] == [one.segment.name]


def new_identities(file: Path) -> Identities:
    import pyrage

    file.touch(mode=0o600)
    file.write_text(f"{pyrage.x25519.Identity.generate()}\n")
    return read_identities(file)
