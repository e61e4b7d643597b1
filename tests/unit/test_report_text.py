"""Probes and runs as they are told in a terminal."""

from dataclasses import replace

from backupd.report.probe_combinations import labels, of_row
from backupd.report.probe_text import curve_plots, outcomes, probe_text, probes_table
from backupd.report.run_plot import run_plots
from backupd.vocabulary.gauges import Mode
from backupd.vocabulary.penalty import GateOutcome, Reason, Sample, Verdict
from backupd.vocabulary.records import RunDetails, RunError, RunStatus
from tests.fakes.measured import NOON, curve, measurement, record, rows
from tests.fakes.target import MACHINE

SAMPLES = (
    *(Sample(-10.0 + 5 * i, "baseline", iops=400.0) for i in range(2)),
    *(Sample(5.0 * i, "settle", ratio=1 + 4 / i, cow_rate=2e6 / i, write_latency_ms=2 + 9 / i) for i in range(1, 10)),
    *(Sample(45.0 + 5 * i, "copy", cow_rate=1e5, write_latency_ms=3.0) for i in range(1, 9)),
)
RUN = RunDetails("r1", "nightly", "db1", MACHINE, RunStatus.SUCCESS, NOON, samples=SAMPLES)


def test_a_run_shows_penalty_first_writes_and_latency_over_the_same_seconds() -> None:
    plots = run_plots(RUN).split("\n\n")
    assert [text.splitlines()[0].partition(",")[0] for text in plots] == [
        *("penalty of writes (baseline ÷ this)", "the server's first writes", "write latency of the origin"),
    ]
    assert len({text.splitlines()[-3].strip() for text in plots}) == 1  # the labels of the seconds
    assert all("the copy started" in text and "╎" in text for text in plots)
    assert all(len(line) <= 72 for text in plots for line in text.splitlines())


def test_a_run_before_its_copy_has_no_mark() -> None:
    assert "copy" not in run_plots(replace(RUN, samples=SAMPLES[:8]))


def test_what_was_not_sampled_is_not_drawn() -> None:
    assert run_plots(replace(RUN, samples=())) == ""
    assert run_plots(replace(RUN, samples=SAMPLES[:2])) == ""
    assert len(run_plots(replace(RUN, samples=(Sample(1.0, "settle", ratio=2.0),))).split("\n\n")) == 1


def test_the_gate_s_word_stands_below_what_it_saw() -> None:
    verdict = Verdict(GateOutcome.START, Reason.PLATEAU, f"no longer falling: {'very ' * 20}slowly", 60.0)
    text = run_plots(replace(RUN, verdict=verdict))
    assert "gate opened after 1 min 00 s (plateau): no longer falling" in text.rpartition("\n\n")[2]
    assert max(map(len, text.splitlines())) <= 72


def test_a_run_can_be_drawn_in_ascii() -> None:
    assert run_plots(RUN, ascii_only=True).isascii()


def test_a_probe_is_told_from_its_id_to_its_curve() -> None:
    text = probe_text(record())
    order = ["probe:", "p1", "job:", "took:", "3 min 00 s", "vg0/mysql", "MODE", "theory", "penalty of rewrite writes"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert "threshold 1.25" in text
    assert text.endswith("ended: settled")


def test_a_failed_probe_tells_why_and_what_to_do() -> None:
    error = RunError("no-room", "no room", "extend it", 4)
    text = probe_text(replace(record(), job=None, status=RunStatus.FAILED, error=error, measurement=None))
    assert text.splitlines()[-2:] == ["error:    no room", "hint:     extend it"]
    assert "job:" not in text


def test_modes_are_drawn_apart_and_their_chunk_sizes_together() -> None:
    curves = [curve(mode, chunk_size=size) for size in (4096, 65536) for mode in (Mode.DIRECT, Mode.REWRITE)]
    text = curve_plots(curves)
    assert text.count("seconds since the snapshot") == 2
    assert "● direct, 4.0 KiB chunks   ▲ direct, 64.0 KiB chunks" in text


def test_it_is_said_when_curves_did_not_end_alike() -> None:
    curves = [curve(Mode.REWRITE), *(replace(curve(Mode.REWRITE, repeat=i), reason=Reason.PLATEAU) for i in (2, 3))]
    assert "ended: settled (once), plateau (2 times)" in curve_plots(curves)


def test_a_passive_probe_is_told_as_everybody_s_writes() -> None:
    found = replace(
        measurement((Mode.PASSIVE,)),
        rows=tuple(replace(row, block_size=0) for row in rows(Mode.PASSIVE)),
        curves=(curve(Mode.PASSIVE),),
    )
    text = probe_text(record(found=found))
    assert "penalty of all writes" in text
    assert "0 B" not in text
    assert outcomes(found) == [("passive", 4.0, 1.25)]


def test_a_probe_can_be_told_in_ascii() -> None:
    text = probe_text(record(), ascii_only=True)
    assert "penalty of rewrite writes" in text
    assert text.isascii()


def test_no_curves_no_plots() -> None:
    assert curve_plots([]) == ""


def test_names_say_only_what_differs() -> None:
    base, first, _ = rows(Mode.DIRECT)
    assert list(labels(map(of_row, [base, first])).values()) == ["direct", "direct"]  # their phase does
    several = [first, replace(first, chunk_size=4096), replace(first, threads=10)]
    assert list(labels(map(of_row, several)).values()) == [
        *("direct, 1 thread, 64.0 KiB chunks", "direct, 1 thread, 4.0 KiB chunks"),
        "direct, 10 threads, 64.0 KiB chunks",
    ]


def test_the_outcome_of_a_way_of_writing_is_where_it_began_and_where_it_stayed() -> None:
    assert outcomes(measurement()) == [("direct", 4.0, 1.25), ("rewrite", 4.0, 1.25)]


def test_many_probes_are_a_line_each() -> None:
    failed = replace(record("p2"), status=RunStatus.FAILED, measurement=None, job=None)
    _, first, second = probes_table([record(), failed]).splitlines()
    assert first.endswith("64.0 KiB  direct 4.00x to 1.25x, rewrite 4.00x to 1.25x")
    assert second.split() == ["p2", "-", "-", "failed", "2026-03-01", "12:00", "-", "-"]
