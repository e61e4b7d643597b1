"""A probe's rows as text, CSV and JSON."""

import csv
import json
import math
from dataclasses import replace
from io import StringIO

import pytest

from backupd.report.probe_table import csv_text, document, grid, table
from backupd.vocabulary.gauges import Mode, Stage
from backupd.vocabulary.probes import Measurement, PhysicalCost, ProbeRow
from backupd.vocabulary.records import RunError, RunStatus
from backupd.vocabulary.volumes import Layout
from tests.fakes.measured import COPYING, SETTINGS, VOLUME, WINDOWS, curve, measurement, record, rows

DOCUMENT_KEYS = "run_id status started_at ended_at volume settings rows curves notes tuning error"
VOLUME_KEYS = "name size layout stripes stripe_size pvs filesystem kernel lvm"
ROW_KEYS = (
    "mode threads block_size chunk_size cow_pvs cow_stripes snapshots phase iops spread penalty repeats"
    " bytes_per_second latency_p95_ms reads_per_write writes_per_write cow_chunks_per_second pv_shares"
)


def with_rows(*some: ProbeRow) -> Measurement:
    """A measurement of these rows only."""
    return Measurement(VOLUME, SETTINGS, some)


def test_the_document_has_exactly_the_keys_that_are_promised() -> None:
    found = document(record())
    assert list(found) == DOCUMENT_KEYS.split()
    assert [list(row) for row in found["rows"]] == [ROW_KEYS.split()] * 6
    assert set(found["volume"]) >= set(VOLUME_KEYS.split())
    assert set(found["settings"]) >= {"chunk_size", "cow_pvs", "seconds", "repeat"}


def test_rows_are_baseline_first_settled_with_null_as_the_baseline_s_penalty() -> None:
    found = [row for row in document(record())["rows"] if row["mode"] == "rewrite"]
    assert [row["phase"] for row in found] == ["baseline", "first", "settled"]
    assert [row["penalty"] for row in found] == [None, 4.0, 1.25]
    assert [row["chunk_size"] for row in found] == [None, 65536, 65536]
    assert found[1]["pv_shares"] == {"/dev/sdb": 0.2, "/dev/sdc": 0.3, "/dev/sdd": 0.5}


def test_curves_keep_every_window() -> None:
    first = document(record())["curves"][0]
    assert (first["mode"], first["repeat"], first["reason"], len(first["points"])) == ("rewrite", 1, "settled", WINDOWS)
    assert set(first["points"][0]) == {"at_seconds", "iops", "penalty", "cow_used", "latency_ms"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null_in_json_empty_in_csv_and_a_dash_in_the_table(value: float) -> None:
    odd = PhysicalCost(value, value, value, {"/dev/sdb": value})
    broken = replace(rows(Mode.DIRECT)[1], iops=value, penalty=value, spread=value, physical=odd)
    found = replace(with_rows(broken), curves=(replace(curve(Mode.DIRECT), points=()),))
    text = json.dumps(document(record(found=found)), allow_nan=False)
    assert json.loads(text)["rows"][0]["iops"] is None
    assert json.loads(text)["rows"][0]["pv_shares"] == {"/dev/sdb": None}
    (line,) = csv.DictReader(StringIO(csv_text(found)))
    assert (line["iops"], line["penalty"], line["reads_per_write"], line["pv_shares"]) == ("", "", "", "")
    assert "nan" not in table(found)
    assert "inf" not in table(found)


def test_a_probe_that_failed_has_its_error_and_empty_lists() -> None:
    failed = replace(record(), status=RunStatus.FAILED, measurement=None, error=RunError("x", "no room", "extend", 4))
    found = document(failed)
    assert (found["volume"], found["rows"], found["curves"], found["notes"]) == (None, [], [], [])
    assert found["error"]["message"] == "no room"


def test_csv_reads_back_as_the_rows_that_were_written() -> None:
    lines = list(csv.DictReader(StringIO(csv_text(measurement()))))
    assert list(lines[0]) == ROW_KEYS.split()
    assert [line["phase"] for line in lines] == ["baseline", "first", "settled"] * 2
    assert (lines[0]["penalty"], float(lines[1]["penalty"])) == ("", 4.0)
    assert lines[1]["pv_shares"] == "/dev/sdb=0.2;/dev/sdc=0.3;/dev/sdd=0.5"


def test_csv_of_no_row_still_names_its_columns() -> None:
    assert csv_text(with_rows()) == ",".join(ROW_KEYS.split()) + "\n"


def test_a_comma_in_a_pv_s_path_is_not_a_column_of_its_own() -> None:
    (line,) = csv.DictReader(StringIO(csv_text(with_rows(replace(rows(Mode.DIRECT)[1], cow_pvs=('/dev/a,"b', "/c"))))))
    assert line["cow_pvs"] == '/dev/a,"b;/c'


def test_what_is_the_same_everywhere_is_said_once() -> None:
    drawn = grid(measurement().rows)
    assert drawn.shared == ("1 thread", "blocks of 16.0 KiB", "chunks of 64.0 KiB", "COW area on any PV", "1 snapshot")
    assert drawn.head == (*("MODE", "PHASE", "IOPS", "SPREAD", "PENALTY", "READS/W", "WRITES/W", "CHUNKS/S"),)


def test_what_differs_has_a_column_and_a_baseline_no_snapshot_in_it() -> None:
    base, first, _ = rows(Mode.DIRECT)
    drawn = grid([base, first, replace(first, chunk_size=4096, cow_pvs=("/dev/sde",), snapshots=3, threads=10)])
    assert drawn.head[:6] == ("MODE", "THREADS", "CHUNK", "COW ON", "SNAPS", "PHASE")
    assert drawn.rows[0][:6] == ("direct", "1", "-", "-", "-", "baseline")
    assert drawn.rows[2][:6] == ("direct", "10", "4.0 KiB", "sde", "3", "first")


def test_a_striped_cow_area_says_so_beside_a_linear_one_on_the_same_pvs() -> None:
    first = replace(rows(Mode.DIRECT)[1], cow_pvs=("/dev/sdb", "/dev/sdc"))
    drawn = grid([first, replace(first, cow_stripes=2)])
    assert {"sdb, sdc", "sdb, sdc (2 stripes)"} <= {cell for row in drawn.rows for cell in row}


def test_a_scan_has_a_rate_and_nothing_else_has() -> None:
    scan = replace(rows(Mode.SCAN)[0], bytes_per_second=100.0 * (1 << 20))
    assert "RATE" not in grid(measurement().rows).head
    drawn = grid([*measurement().rows, scan])
    assert [cells[drawn.head.index("RATE")] for cells in drawn.rows] == ["-"] * 6 + ["100.0 MiB/s"]


def test_volume_layout_file_system_and_notes_are_named() -> None:
    text = table(measurement())
    assert text.startswith("vg0/mysql: 30.0 GiB, striped, 3 stripes of 64.0 KiB on sdb, sdc, sdd, xfs\n")
    assert "Linux 6.1.0-26-amd64, LVM 2.03.16, sysbench 1.0.20" in text
    assert text.endswith("note: the server wrote meanwhile")


def test_theory_stands_beside_what_was_measured_where_most_chunks_were_copied() -> None:
    text = table(measurement())
    theory, measured = text[text.index("theory:") :].splitlines()[:2]
    assert theory == "theory: 1 physical read and 2-3 physical writes for each first write of a chunk"
    assert measured.startswith("measured: 0.97 reads and 2.90 writes for each write, 0.98 chunks copied for each")
    assert "measured:" not in table(with_rows(*(replace(row, physical=None) for row in rows(Mode.DIRECT))))


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout.LINEAR, "linear: the one disk that has the file works"),
        (Layout.STRIPED, "all disks work"),
        (Layout.MIXED, "mixed"),
    ],
)
def test_each_pv_s_share_stands_beside_what_the_layout_promises(layout: Layout, said: str) -> None:
    found = replace(measurement(), volume=replace(VOLUME, layout=layout))
    text = table(found)
    shares = text[text.index("each PV's share") :]
    assert said in " ".join(shares.partition("MODE")[0].split())
    assert ["direct", "first", "20%", "30%", "50%"] in [line.split() for line in shares.splitlines()]


def test_no_shares_no_table_of_them() -> None:
    assert "share" not in table(with_rows(*(replace(row, physical=None) for row in rows(Mode.DIRECT))))


def test_a_default_table_fits_eighty_columns_and_a_full_one_a_hundred_and_twenty() -> None:
    assert max(map(len, table(measurement()).splitlines())) <= 80
    base, first, settled = rows(Mode.FSYNC_100)
    full = replace(first, chunk_size=512 << 10, cow_pvs=("/dev/sde",), snapshots=3, threads=100, physical=COPYING)
    found = with_rows(base, first, settled, full, replace(full, phase=Stage.COPYING, latency_p95_ms=9999.0))
    assert max(map(len, table(found).splitlines())) <= 120
