"""Two probes beside each other."""

import json
from dataclasses import replace

import pytest

from backupd.report.probe_comparison import compare_document, compare_table, differences, pairs
from backupd.vocabulary.gauges import Mode, Stage
from backupd.vocabulary.records import RunStatus
from backupd.vocabulary.volumes import Layout
from tests.fakes.measured import VOLUME, measurement, record, rows


def test_alike_probes_pair_row_by_row() -> None:
    a, b = record("a"), record("b", measurement(penalty=2.0))
    document = compare_document(a, b)
    assert document["differs"] == []
    assert [row["iops_ratio"] for row in document["rows"]] == [1.0, 2.0, 1.0] * 2
    assert (document["rows"][1]["a"]["penalty"], document["rows"][1]["b"]["penalty"]) == (4.0, 2.0)
    assert "a and b: the same volume, the same settings" in compare_table(a, b)


def test_what_differs_comes_before_the_figures_that_it_may_explain() -> None:
    linear = replace(VOLUME, layout=Layout.LINEAR, stripes=1, stripe_size=None)
    text = compare_table(record("a"), record("b", replace(measurement(chunk_size=4096), volume=linear)))
    explained = text[text.index("differ in") : text.index("IOPS A")]
    for words in (["layout", "striped", "linear"], ["stripe size", "64.0 KiB", "-"], ["chunk size", "4.0 KiB"]):
        assert all(word in explained for word in words)


def test_rows_under_different_defaults_are_compared_and_say_both() -> None:
    found = list(pairs(record("a"), record("b", measurement(chunk_size=4096))))
    assert [(pair.a is None, pair.b is None) for pair in found] == [(False, False)] * 6
    assert "64.0 KiB / 4.0 KiB" in compare_table(record("a"), record("b", measurement(chunk_size=4096)))


def test_rows_that_are_the_same_pair_before_rows_that_are_only_both_the_default() -> None:
    small = replace(measurement((Mode.DIRECT,)), rows=rows(Mode.DIRECT) + rows(Mode.DIRECT, chunk_size=4096)[1:])
    other = replace(measurement((Mode.DIRECT,), chunk_size=4096), rows=small.rows)
    chunks = [(p.a and p.a.chunk_size, p.b and p.b.chunk_size) for p in pairs(record("a", small), record("b", other))]
    assert chunks == [(None, None), (65536, 65536), (65536, 65536), (4096, 4096), (4096, 4096)]


def test_a_row_that_only_one_has_is_shown_with_a_dash_on_the_other_side() -> None:
    a, b = record("a", measurement((Mode.DIRECT,))), record("b", measurement((Mode.REWRITE,)))
    document = compare_document(a, b)
    assert [(row["a"] is None, row["b"] is None) for row in document["rows"]] == [(False, True)] * 3 + [
        (True, False)
    ] * 3
    lines = [line.split() for line in compare_table(a, b).splitlines() if "first" in line]
    assert lines == [
        ["direct", "first", "100", "-", "-", "4.00x", "-"],
        ["rewrite", "first", "-", "100", "-", "-", "4.00x"],
    ]


@pytest.mark.parametrize("iops", [0.0, float("nan")])
def test_odd_figures_are_null(iops: float) -> None:
    broken = replace(measurement((Mode.DIRECT,)), rows=(replace(rows(Mode.DIRECT)[1], iops=iops),))
    document = compare_document(record("a", broken), record("b", measurement((Mode.DIRECT,))))
    assert json.loads(json.dumps(document, allow_nan=False))["rows"][0]["iops_ratio"] is None


def test_a_probe_that_measured_nothing_can_be_held_against_one_that_did() -> None:
    nothing = replace(record("b"), status=RunStatus.FAILED, measurement=None)
    assert differences(record("a"), nothing) == []
    assert len(compare_document(record("a"), nothing)["rows"]) == 6
    assert "nothing measured" in compare_table(nothing, record("a"))
    assert "neither has a row" in compare_table(nothing, nothing)


def test_every_row_of_both_appears_once() -> None:
    a, b = measurement((Mode.DIRECT, Mode.SYNC)), measurement((Mode.SYNC, Mode.REWRITE), chunk_size=16 << 10)
    twice = replace(b, rows=(*b.rows, replace(b.rows[1], phase=Stage.FILLED)))
    found = list(pairs(record("a", a), record("b", twice)))
    assert sorted(id(pair.a) for pair in found if pair.a) == sorted(map(id, a.rows))
    assert sorted(id(pair.b) for pair in found if pair.b) == sorted(map(id, twice.rows))
