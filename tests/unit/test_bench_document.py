"""A bench as JSON and as CSV."""

import csv
import json
import math
from dataclasses import replace
from io import StringIO

import pytest

from backupd.report.bench_document import csv_text, document
from backupd.vocabulary.benches import BenchRecord
from backupd.vocabulary.records import RunError, RunStatus
from tests.fakes.benched import BEGAN, a_bench, a_bench_record

DOCUMENT_KEYS = "run_id status started_at ended_at host settings layouts cells samples snapshots verdict notes error"
CELL_KEYS = (
    "layout operation record threads medium iops bytes_per_second spread repeats latency_p95_ms system iowait shares"
)


def test_the_document_has_exactly_the_keys_that_are_promised() -> None:
    found = document(a_bench_record())
    assert list(found) == DOCUMENT_KEYS.split()
    assert {tuple(cell) for cell in found["cells"]} == {tuple(CELL_KEYS.split())}
    assert list(found["host"]) == ["kernel", "lvm", "sysbench", "fio", "mdadm", "memory", "processors"]
    assert list(found["settings"]) == [
        "vg",
        "disks",
        "filesystem",
        "file_size",
        "volume_size",
        "seconds",
        "repeat",
        "tables",
    ]
    assert list(found["samples"][0]) == ["at_seconds", "layout", "step", "read", "written", "system", "iowait"]
    assert list(found["verdict"][0]) == ["topic", "finding", "text", "evidence"]


def test_its_times_layouts_and_snapshots_are_plain() -> None:
    found = document(a_bench_record())
    assert (found["run_id"], found["status"]) == ("20261120T030000Z-be9c", "success")
    assert (found["started_at"], found["ended_at"]) == ("2026-11-20T03:00:00+00:00", "2026-11-20T03:04:00+00:00")
    assert found["layouts"][0] == {
        **{"name": "linear", "kind": "linear", "stripes": 1, "stripe_size": None, "disks": ["/dev/nbd0"]}
    }
    assert found["layouts"][2]["stripe_size"] == 65536
    assert found["snapshots"][0]["probe_run_id"] == "20261120T030000Z-be9c-1"
    assert found["snapshots"][0]["hours_per_tebibyte"] == pytest.approx(6.07, abs=0.01)
    assert found["cells"][0]["shares"] == {"/dev/nbd0": 1.0}
    assert found["notes"] == ["load average at the start: 0.3"]


def test_everything_that_was_measured_is_in_it() -> None:
    bench = a_bench(raw=True)
    found = document(a_bench_record(bench))
    for part in ("cells", "samples", "snapshots", "layouts"):
        assert len(found[part]) == len(getattr(bench, part))
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null_in_json_and_empty_in_csv(value: float) -> None:
    bench = a_bench()
    odd = replace(bench.cells[0], iops=value, spread=value, system=value, shares={"/dev/nbd0": value})
    broken = replace(bench, cells=(odd,), snapshots=(replace(bench.snapshots[0], snapshot_read=value),))
    found = json.loads(json.dumps(document(a_bench_record(broken)), allow_nan=False))
    assert (found["cells"][0]["iops"], found["cells"][0]["shares"]) == (None, {"/dev/nbd0": None})
    assert found["snapshots"][0]["hours_per_tebibyte"] is None
    (line,) = csv.DictReader(StringIO(csv_text(broken)))
    assert (line["iops"], line["spread"], line["system"], line["shares"]) == ("", "", "", "")


def test_a_bench_that_failed_has_its_error_and_empty_lists() -> None:
    found = document(BenchRecord("b1", RunStatus.FAILED, BEGAN, error=RunError("x", "no room", "extend it", 6)))
    assert list(found) == DOCUMENT_KEYS.split()
    assert (found["host"], found["settings"], found["ended_at"]) == (None, None, None)
    assert [found[part] for part in ("layouts", "cells", "samples", "snapshots", "verdict", "notes")] == [[]] * 6
    assert found["error"]["message"] == "no room"


def test_csv_has_a_line_per_figure_that_reads_back() -> None:
    bench = a_bench()
    lines = list(csv.DictReader(StringIO(csv_text(bench))))
    assert list(lines[0]) == CELL_KEYS.split()
    assert len(lines) == len(bench.cells)
    assert [float(line["bytes_per_second"]) for line in lines] == [one.bytes_per_second for one in bench.cells]
    striped = next(line for line in lines if line["layout"] == "striped-2x64k")
    assert striped["shares"] == "/dev/nbd0=0.5;/dev/nbd1=0.5"
    assert {line["operation"] for line in lines} == {"write", "rewrite", "read", "random-write", "random-read"}


def test_csv_of_no_figure_still_names_its_columns() -> None:
    assert csv_text(replace(a_bench(), cells=())) == ",".join(CELL_KEYS.split()) + "\n"
