"""What needs a proof most comes first, and no job is starved."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as some

from backupd.policy.proof_order import ProvableCopy, in_order

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)


def copy(
    run_id: str, *, days: int, tried: int | None = None, job: str = "nightly", target: str = "vault"
) -> ProvableCopy:
    """Stored and last tried so many days ago."""
    tried_at = None if tried is None else NOW - timedelta(days=tried)
    return ProvableCopy(target, "db1-0a1b2c3d", job, run_id, NOW - timedelta(days=days), tried_at)


def ids(copies: list[ProvableCopy]) -> list[str]:
    return [one.run_id for one in in_order(copies)]


def test_what_was_never_tried_goes_first_and_then_what_was_tried_longest_ago() -> None:
    assert ids([copy("old", days=9, tried=8), copy("older", days=10, tried=9), copy("new", days=1)]) == [
        *("new", "older", "old")
    ]


def test_the_newest_copy_of_each_job_goes_before_the_second_newest_of_any() -> None:
    copies = [
        copy("a2", days=2),
        copy("a1", days=1),
        copy("b2", days=6, job="weekly"),
        copy("b1", days=5, job="weekly"),
    ]
    assert ids(copies) == ["a1", "b1", "a2", "b2"]


def test_two_copies_of_one_run_are_both_its_newest() -> None:
    copies = [copy("a2", days=2), copy("a1", days=1), copy("a1", days=1, target="bucket")]
    assert ids(copies) == ["a1", "a1", "a2"]


def test_a_host_that_drills_one_copy_a_night_comes_to_every_job_and_to_both_targets() -> None:
    places = [(job, target) for job in ("a", "b", "c") for target in ("vault", "bucket")]
    known: list[ProvableCopy] = []
    first: list[tuple[str, str]] = []
    for night in range(6):
        at = NOW + timedelta(days=night)
        known += [ProvableCopy(target, "db1-0a1b2c3d", job, f"{job}{night}", at) for job, target in places]
        chosen = in_order(known)[0]
        known[known.index(chosen)] = replace(chosen, tried_at=at + timedelta(hours=1))
        first.append((chosen.job, chosen.target))
    assert sorted(first) == sorted(places)


@given(
    some.lists(
        some.builds(
            copy,
            some.sampled_from("abcdef"),
            days=some.integers(0, 3),
            tried=some.none() | some.integers(0, 3),
            job=some.sampled_from("xy"),
            target=some.sampled_from("tu"),
        )
    )
)
def test_nothing_is_lost_and_no_tried_copy_goes_before_an_untried_one(copies: list[ProvableCopy]) -> None:
    found = in_order(copies)
    assert sorted(map(repr, found)) == sorted(map(repr, copies))
    tried = [one.tried_at is not None for one in found]
    assert tried == sorted(tried)
    assert in_order(list(reversed(copies))) == found
