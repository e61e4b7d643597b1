"""Two backups side by side: what is large is said, what is the same is not, and nothing is divided by nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backupd.report.run_comparison import circumstances, compare_document, compare_text, figures
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Throughput, Verdict
from backupd.vocabulary.records import Phase, RunDetails, RunError, RunStatus, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout
from tests.fakes.target import MACHINE

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A = RunDetails(
    "a1", "nightly", "db1", MACHINE, RunStatus.SUCCESS, NOON, NOON + timedelta(minutes=10),
    phases={Phase.LOCK_HOLD: 0.03, Phase.SNAPSHOT: 0.02, Phase.SETTLE: 60.0, Phase.COPY: 100.0, Phase.VERIFY: 30.0},
    verdict=Verdict(GateOutcome.START, Reason.SETTLED),
    lock=LockReceipt("backup-stage", 1, 0.2, 0.03, "metadata-locks"),
    snapshot=SnapshotFacts("bk", "vg/data", Layout.LINEAR, 1, None, 64 << 10, 8 << 30, 1 << 28),
    samples=(Sample(-1.0, "baseline", iops=400.0), Sample(1.0, "settle", iops=100.0)),
    backups=(Backup("vault", "/v/a1", 1 << 30, 1 << 29, 12, "ab" * 32),),
    throughput=(Throughput("read", 1 << 30, 10.0), Throughput("compress", 1 << 30, 50.0)),
)  # fmt: skip
B = replace(A, run_id="b1", started_at=NOON + timedelta(days=1), ended_at=NOON + timedelta(days=1, minutes=10))
SLOW = replace(
    B,
    lock=LockReceipt("ftwrl", 3, 0.2, 0.18, "session and position"),
    snapshot=SnapshotFacts("bk", "vg/data", Layout.STRIPED, 3, 64 << 10, 4 << 10, 8 << 30, 1 << 28),
    phases={**A.phases, Phase.COPY: 400.0},
)
BARE = RunDetails(
    "f1", "nightly", "db1", MACHINE, RunStatus.FAILED, NOON, error=RunError("target-error", "no room", "", 8)
)


def test_two_alike_differ_in_nothing() -> None:
    said = compare_text(A, B)
    assert "no figure differs by more than 1.5x" in said
    assert "differ in" not in said
    assert {one.ratio for one in figures(A, B)} == {1.0}


def test_what_is_large_is_told_in_words_the_largest_first() -> None:
    large = compare_text(A, SLOW).partition("b differs from a by more than 1.5x in\n")[2].splitlines()
    assert large == [
        "  lock held: 6.0x as much, 180 ms instead of 30 ms",
        "  copied in: 4.0x as much, 6 min 40 s instead of 1 min 40 s",
        "  copy rate: 4.0x less, 2.6 MiB/s instead of 10.2 MiB/s",
    ]


def test_what_is_used_of_a_thin_pool_is_not_compared_with_a_cow_area() -> None:
    assert A.snapshot is not None
    thin = replace(B, snapshot=replace(A.snapshot, cow_size=600 << 30, cow_used_peak=480 << 30, pool="vg/pool"))
    assert [one.b for one in figures(A, thin) if one.key == "cow_used_peak_bytes"] == [None]
    assert [one.key for one in circumstances(A, thin)] == ["pool"]
    assert "cow_used_peak_bytes" not in [one.key for one in figures(thin, thin)]


def test_the_other_way_round_it_is_less() -> None:
    assert "lock held: 6.0x less, 30 ms instead of 180 ms" in compare_text(SLOW, A)


def test_in_what_they_differ_may_be_why() -> None:
    found = {one.key: (one.a, one.b) for one in circumstances(A, SLOW)}
    assert found == {
        "lock_strategy": ("backup-stage", "ftwrl"),
        "layout": ("linear", "striped"),
        "stripes": (1, 3),
        "stripe_size": (0, 64 << 10),
        "chunk_size": (64 << 10, 4 << 10),
    }
    said = compare_text(A, SLOW)
    assert "chunk size    64.0 KiB      4.0 KiB" in said
    assert "stripe size   none          64.0 KiB" in said


def test_a_figure_that_only_one_has_is_a_dash_and_no_ratio() -> None:
    said = compare_text(A, BARE)
    assert "lock held" in said
    assert all(one.ratio is None and not one.is_large for one in figures(A, BARE))
    assert "status  success  failed" in said


def test_two_that_came_to_nothing_say_so() -> None:
    assert "neither has anything that could be measured" in compare_text(BARE, replace(BARE, run_id="f2"))


def test_nothing_is_divided_by_nothing() -> None:
    none = replace(A, phases={**A.phases, Phase.COPY: 0.0, Phase.SETTLE: 0.0}, lock=replace_hold(0.0))
    for pair in ((none, A), (A, none), (none, none)):
        assert compare_text(*pair)
        assert all(one.ratio is None or one.ratio >= 0 for one in figures(*pair))
    assert "lock held: nothing, 0 ms instead of 30 ms" in compare_text(A, none)


def replace_hold(seconds: float) -> LockReceipt:
    assert A.lock is not None
    return replace(A.lock, hold_seconds=seconds)


def test_a_run_without_a_lock_was_not_locked_for_no_time() -> None:
    unlocked = replace(A, lock=LockReceipt("none", 1, 0.0, 0.0, ""))
    held = next(one for one in figures(unlocked, A) if one.key == "lock_hold_seconds")
    assert (held.a, held.ratio) == (None, None)


def test_the_document_has_all_of_it() -> None:
    document = compare_document(A, SLOW)
    assert (document["a"]["run_id"], document["b"]["run_id"]) == ("a1", "b1")
    held = next(one for one in document["figures"] if one["name"] == "lock_hold_seconds")
    assert (held["a"], held["b"], held["large"]) == (0.03, 0.18, True)
    assert {"name": "layout", "a": "linear", "b": "striped"} in document["differs"]
