"""A catalogue that was lost finds the segments of its machine's binlog archives again."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from backupd.catalogue.store import Catalogue
from backupd.operations.upkeep import rebuild_segments as module
from backupd.operations.upkeep.rebuild import RecordedHere
from backupd.operations.upkeep.rebuild_segments import SegmentsRebuilt, rebuild_segments, require_rebuilt
from backupd.policy.trust import Trust
from backupd.policy.typed_json import digests
from backupd.vocabulary.binlogs import LOST_EVERYWHERE, ArchiveGap, BinlogSegment, TableChange
from backupd.vocabulary.errors import TargetError, Unreadable, Untrusted, VerificationError
from tests.binlog_segments import BEGAN, FIRST, lay_segments, sealed_chain
from tests.fakes.chain_rows import rows
from tests.fakes.target import MemoryTarget
from tests.signers import signer
from tests.unit.catalogues import catalogue, path

__all__ = ["catalogue", "path"]

SIGNER = signer()
TRUST = Trust(frozenset([SIGNER.public]))
LATER = "20261121T040000Z-0123abcd"


@pytest.fixture
def target(catalogue: Catalogue) -> MemoryTarget:
    return MemoryTarget("disk", catalogue.identity().name)


def laid(target: MemoryTarget, count: int = 5, **values: object) -> list[BinlogSegment]:
    first = replace(FIRST, machine=target.machine, **values)  # type: ignore[arg-type]
    chain = sealed_chain(count, SIGNER, first=first)
    lay_segments(target, chain)
    return [one.segment for one in chain]


def rebuilt(target: MemoryTarget, catalogue: Catalogue, trust: Trust = TRUST) -> SegmentsRebuilt:
    (found,) = rebuild_segments(target, catalogue, trust)
    return found


def test_all_that_is_signed_is_known_again_and_waits_for_nothing(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target)
    other = laid(target, 1, job="hourly", chain=LATER)
    found = rebuild_segments(target, catalogue, TRUST)
    assert [(one.job, one.imported, one.known, one.failures) for one in found] == [
        ("hourly", 1, 0, []),
        ("nightly", 5, 0, []),
    ]
    assert list(catalogue.segments("nightly", target="disk")) == chain
    assert list(catalogue.segments("hourly")) == other
    assert catalogue.spooled_segments("nightly") == []
    assert len(rows(catalogue.segments("nightly"))) == 1, "the chain is whole"
    again = rebuild_segments(target, catalogue, TRUST, job="nightly")
    assert [(one.imported, one.known) for one in again] == [(0, 5)]


def test_a_second_target_adds_where_they_lie_and_what_only_it_has(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target)
    other = MemoryTarget("cloud", target.machine, stored=dict(target.stored))
    target.remove_segments("nightly", [chain[4].name])
    assert rebuilt(target, catalogue).imported == 4
    assert rebuilt(other, catalogue).imported == 5
    assert list(catalogue.segments("nightly")) == chain
    assert catalogue.segment_targets(chain[4].name) == {"cloud"}
    assert catalogue.segment_targets(chain[0].name) == {"disk", "cloud"}


def test_the_chain_that_was_found_last_does_not_go_on(catalogue: Catalogue, target: MemoryTarget) -> None:
    laid(target)
    last = laid(target, 2, chain=LATER, received_at=BEGAN + timedelta(days=1))[-1]
    rebuilt(target, catalogue)
    (gap,) = catalogue.archive_gaps("nightly")
    assert (gap.chain, gap.last_at, gap.resumed_at) == (LATER, last.last_at, None)
    assert "the catalogue was lost" in gap.reason


def test_a_chain_that_the_catalogue_knows_goes_on(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target)
    for segment in chain[:3]:
        catalogue.add_segment(segment)
    assert rebuilt(target, catalogue).imported == 5
    assert catalogue.archive_gaps("nightly") == []
    assert [segment.name for segment in catalogue.spooled_segments("nightly")] == [one.name for one in chain[:3]]


def test_what_a_clone_archived_under_this_machine_s_name_stays_out(catalogue: Catalogue, target: MemoryTarget) -> None:
    """It had this catalogue, the chain and the key: what it went on with is of its own data."""
    chain = laid(target)
    others = laid(target, 2, chain=LATER)
    for segment in chain[:3]:
        catalogue.add_segment(segment)
    here = RecordedHere(BEGAN, ())
    (found,) = rebuild_segments(target, catalogue, TRUST, here=here)
    assert found.imported == 3
    assert sorted(name for name, _ in found.failures) == [one.name for one in (*chain[3:], *others)]
    with pytest.raises(Untrusted, match="by another catalogue under this machine's name") as raised:
        require_rebuilt([found])
    assert "--set-back" in raised.value.hint
    assert catalogue.latest_segment("nightly") == chain[2], "the archive goes on behind its own"
    before = RecordedHere(BEGAN + timedelta(days=1), ())
    assert [one.imported for one in rebuild_segments(target, catalogue, TRUST, here=before)] == [4], "received earlier"


def test_what_was_lost_everywhere_and_is_found_again_is_this_machine_s(
    catalogue: Catalogue, target: MemoryTarget
) -> None:
    chain = laid(target)
    for segment in chain[:3]:
        catalogue.add_segment(segment)
    reason = f"its last segment was {LOST_EVERYWHERE}"
    catalogue.archive_gap("nightly", ArchiveGap(chain[0].chain, reason, BEGAN, BEGAN))
    (found,) = rebuild_segments(target, catalogue, TRUST, here=RecordedHere(BEGAN, ()))
    assert (found.imported, found.failures) == (5, [])


def test_what_this_catalogue_has_had_until_it_was_removed_is_this_machine_s(
    catalogue: Catalogue, target: MemoryTarget
) -> None:
    """All of a chain may have been removed while the target's disk was not mounted."""
    chain = laid(target)
    for segment in chain:
        catalogue.add_segment(segment, spooled=False)
    names = [segment.name for segment in chain]
    catalogue.segments_removed("nightly", target.name, names, because="expired")
    catalogue.forget_segments(names)
    (found,) = rebuild_segments(target, catalogue, TRUST, here=RecordedHere(BEGAN, ()))
    assert (found.imported, found.failures) == (len(chain), [])
    assert catalogue.archive_gaps("nightly") == [], "it is known that the chain went on no further"


def test_descriptions_of_any_length_are_read_in_pages(
    catalogue: Catalogue, target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    many = tuple(TableChange("s" * 64, f"{number:064}", FIRST.changes[0].kind) for number in range(128))
    chain = laid(target, 5, changes=many)
    assert rebuilt(target, catalogue).imported == 5
    assert list(catalogue.segments("nightly")) == chain


def put(target: MemoryTarget, name: str, content: bytes) -> None:
    target.stored["nightly", "binlog", name] = content


def other_content(target: MemoryTarget, segment: BinlogSegment, change: Callable[[bytes], bytes]) -> None:
    put(target, segment.name, change(target.stored["nightly", "binlog", segment.name]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content[:-1], "expected"),
        (lambda content: content + b"x", "expected"),
        (lambda content: content.replace(b'"end":2004', b'"end":2005', 1), "digest differs"),
        (lambda _: b"", "does not begin with its description"),
        (lambda _: b"x" * (3 << 20), "does not begin with its description"),
        (lambda _: b"\n", ""),
    ],
    ids=["shorter", "longer", "changed", "empty", "no line", "an empty line"],
)
def test_what_is_no_whole_segment_is_told_and_keeps_no_other_out(
    catalogue: Catalogue, target: MemoryTarget, change: Callable[[bytes], bytes], sentence: str
) -> None:
    chain = laid(target)
    other_content(target, chain[1], change)
    found = rebuilt(target, catalogue)
    ((name, error),) = found.failures
    assert (name, found.imported) == (chain[1].name, 4)
    assert sentence in error.message
    with pytest.raises(VerificationError, match=name):
        require_rebuilt([found])
    assert len(rows(catalogue.segments("nightly"))) == 2, "the hole shows"


def test_what_nobody_known_has_signed_stays_out_unless_a_person_says_so(
    catalogue: Catalogue, target: MemoryTarget
) -> None:
    laid(target)
    found = rebuilt(target, catalogue, Trust(frozenset([signer().public])))
    assert (found.imported, len(found.failures)) == (0, 5)
    assert "is not signed by a trusted key" in found.failures[0][1].message
    assert catalogue.archive_gaps("nightly") == []
    assert rebuilt(target, catalogue, Trust(unsigned=True)).imported == 5


def test_a_segment_in_the_place_of_another_stays_out(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target)
    moved = target.stored.pop(("nightly", "binlog", chain[4].name))
    put(target, chain[4].name.replace("0000000005", "0000000009"), moved)
    ((_, error),) = rebuilt(target, catalogue).failures
    assert f"is segment {chain[4].name} of job nightly" in error.message


def test_one_that_another_was_recorded_for_stays_out(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target)
    catalogue.add_segment(replace(chain[2], digest="f" * 64))
    found = rebuilt(target, catalogue)
    assert [(name, "not the one on record" in error.message) for name, error in found.failures] == [
        (chain[2].name, True)
    ]
    assert (found.imported, catalogue.segment_targets(chain[2].name)) == (4, frozenset())


def test_what_a_newer_backupd_wrote_is_no_damage(catalogue: Catalogue, target: MemoryTarget) -> None:
    chain = laid(target, 1)
    line, _, rest = target.stored["nightly", "binlog", chain[0].name].partition(b"\n")
    body = json.loads(line)
    del body["digest"]
    body["schema"]["major"] = 2
    text = json.dumps({**body, "digest": digests(body)[0]}, separators=(",", ":"))
    put(target, chain[0].name, text.encode() + b"\n" + rest)
    ((_, error),) = rebuilt(target, catalogue).failures
    assert isinstance(error, Unreadable)


def test_others_entries_are_told(catalogue: Catalogue, target: MemoryTarget) -> None:
    laid(target, 1)
    put(target, "notes.txt", b"a person's")
    found = rebuilt(target, catalogue)
    assert (found.strangers, found.imported, found.failures) == (["notes.txt"], 1, [])


def test_what_cannot_be_read_is_told_as_that(catalogue: Catalogue, target: MemoryTarget) -> None:
    class Away(MemoryTarget):
        def _chunks(self, content: bytes, *, missing: int) -> Iterator[bytes]:
            raise TargetError("it is away")

    laid(target, 2)
    found = rebuilt(Away("disk", target.machine, stored=target.stored), catalogue)
    assert len(found.failures) == 2
    with pytest.raises(TargetError, match="it is away"):
        require_rebuilt([found])
