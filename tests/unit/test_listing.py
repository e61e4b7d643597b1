"""What a target lists is held against the manifest: each difference in names and sizes is told in words."""

from collections.abc import Mapping

import pytest

from backupd.targets.listing import compare_listing
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.storage import StoredObject
from tests.story.stored import manifest

RECORDED = manifest(
    [StoredObject("data-1", 10, 5, "a" * 64, "b" * 64, 1, ()), StoredObject("index", 10, 7, "a" * 64, "b" * 64, 1, ())]
)


@pytest.mark.parametrize(
    ("listing", "faults"),
    [
        ({"data-1": 5, "index": 7}, ()),
        ({"index": 7}, ("data-1 is missing",)),
        ({"data-1": 4, "index": 7}, ("data-1 has 4 bytes, expected 5",)),
        ({"data-1": 6, "index": 0}, ("data-1 has 6 bytes, expected 5", "index has 0 bytes, expected 7")),
        ({}, ("data-1 is missing", "index is missing")),
    ],
)
def test_each_object_that_is_not_listed_as_it_was_stored_is_a_fault(
    listing: Mapping[str, int], faults: tuple[str, ...]
) -> None:
    assert compare_listing(RECORDED, listing).faults == faults


def test_what_no_manifest_names_is_unknown_and_no_fault() -> None:
    found = compare_listing(RECORDED, {"data-1": 5, "index": 7, "Thumbs.db": 1, "@eaDir": 4096})
    assert (found.faults, found.unknown) == ((), ("@eaDir", "Thumbs.db"))
    found.require_whole("vault")


def test_every_fault_is_named_with_the_target() -> None:
    with pytest.raises(VerificationError, match=r"target vault does not list .*data-1 is missing; index is missing"):
        compare_listing(RECORDED, {}).require_whole("vault")
