"""Which stage of a copy held the others up."""

from backupd.report.stages import bottleneck, stage_table
from backupd.vocabulary.penalty import Throughput

STAGES = (
    Throughput("read", 300 << 20, 1.5),
    Throughput("compress", 300 << 20, 6.0),
    Throughput("write:vault", 100 << 20, 2.0),
    Throughput("write:offsite", 0, 0.0),
    Throughput("read-back:vault", 100 << 20, 10.0),
)


def test_the_stage_that_was_busy_longest_is_the_bottleneck() -> None:
    assert bottleneck(STAGES) is STAGES[1]
    assert bottleneck(()) is None
    assert bottleneck((Throughput("read", 0, 0.0),)) is None


def test_each_stage_says_what_it_could_do_by_itself() -> None:
    assert [line.split() for line in stage_table(STAGES).splitlines()] == [
        ["read", "300.0", "MiB", "in", "1.5", "s", "200.0", "MiB/s"],
        ["compress", "300.0", "MiB", "in", "6.0", "s", "50.0", "MiB/s", "bottleneck"],
        ["write:vault", "100.0", "MiB", "in", "2.0", "s", "50.0", "MiB/s"],
        ["write:offsite", "0", "B", "in", "0", "ms", "-"],
        ["read-back:vault", "100.0", "MiB", "in", "10.0", "s", "10.0", "MiB/s"],
    ]
