"""What the load's logs say: rates, losses, stalls."""

import pytest

from backupd.lab.load import (
    Heartbeat,
    LoadSample,
    longest_stall,
    parse_heartbeats,
    parse_load,
    parse_report,
    rate_between,
    run_arguments,
    transactions_lost,
)
from backupd.lab.options import Load
from backupd.vocabulary.errors import UnexpectedOutput

# Recorded: sysbench 1.0.20 (Debian 12), oltp_write_only, --report-interval=1
REPORT = (
    "[ 3s ] thds: 4 tps: 128.79 qps: 772.72 (r/w/o: 0.00/515.15/257.57) lat (ms,95%): 57.87 err/s: 0.00 reconn/s: 0.00"
)


def _samples(*rates: float) -> list[LoadSample]:
    return [LoadSample(101.0 + second, tps) for second, tps in enumerate(rates)]


def test_a_report_of_sysbench_is_read() -> None:
    assert parse_report(REPORT) == (128.79, 57.87, 0.0, 0.0)


@pytest.mark.parametrize("line", ["", "Threads started!", "FATAL: mysql_stmt_execute() returned error 2013"])
def test_other_lines_of_sysbench_are_no_reports(line: str) -> None:
    assert parse_report(line) is None


def test_a_load_log_is_read_and_a_line_in_the_making_is_left_for_later() -> None:
    text = "1795250977.322 82.980 80.030 0.000 0.000\n1795250978.205 152.090 57.870 1.000 2.000\n17952509"
    assert parse_load(text) == [
        LoadSample(1795250977.322, 82.98),
        LoadSample(1795250978.205, 152.09),
    ]
    assert parse_load("") == []


@pytest.mark.parametrize("line", ["1 2 3\n", "1 2 3 4 x\n", "\n"])
def test_a_line_that_is_no_sample_is_shown(line: str) -> None:
    with pytest.raises(UnexpectedOutput) as refused:
        parse_load(line)
    assert repr(line.strip()) in refused.value.message


def test_a_rate_weighs_seconds_that_are_partly_inside() -> None:
    samples = _samples(100, 50, 10)  # the seconds 100-101, 101-102, 102-103
    assert rate_between(samples, 100, 103) == pytest.approx(160 / 3)
    assert rate_between(samples, 100.5, 101.5) == pytest.approx(75)
    assert rate_between(samples, 102.9, 200) == pytest.approx(10)


def test_a_rate_of_a_time_without_samples_is_unknown() -> None:
    assert rate_between([], 0, 10) is None
    assert rate_between(_samples(100), 500, 510) is None


def test_a_stall_of_reporting_counts_for_its_whole_length() -> None:
    samples = [LoadSample(101, 100), LoadSample(105, 10)]
    assert rate_between(samples, 100, 105) == pytest.approx((100 + 40) / 5)


def test_lost_transactions_are_those_that_the_undisturbed_rate_would_have_done() -> None:
    assert transactions_lost(_samples(100, 50, 10), 100, 103, undisturbed=100) == pytest.approx(140)
    assert transactions_lost([], 100, 103, undisturbed=100) is None


def test_the_longest_stall_counts_inserts_that_were_under_way() -> None:
    beats = parse_heartbeats("100.000 10.0\n101.000 2500.0\n104.000 20.0\n")
    assert beats[1] == Heartbeat(101, 2500)
    assert longest_stall(beats, 102, 103) == pytest.approx(2.5)
    assert longest_stall(beats, 103.9, 110) == pytest.approx(0.02)
    assert longest_stall(beats, 200, 210) is None


def test_a_load_at_a_rate_tells_sysbench_so_and_a_closed_one_does_not() -> None:
    assert "--rate=60" in run_arguments(Load.parse("60"))
    assert not any(word.startswith("--rate") for word in run_arguments(Load.parse("closed")))
    assert "--mysql-ignore-errors=all" in run_arguments(Load.parse("closed"))
