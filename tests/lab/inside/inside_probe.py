"""`backupd probe` on real LVM under a loaded server: whole tables, every way to be stopped, every kind of bad input.

That nothing is left is asked by the fixture `host`, after every test.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import SITE, Host, tool
from tests.lab.inside.moments import snapshotted
from tests.lab.inside.places import volume

VG = SITE.volume_group
DATA = ("--volume", f"{VG}/data")
SMALL = ("--file-size", "16M", "--rewrite-size", "1M", "--seconds", "1", "--repeat", "1", "--max-wait", "2")
SYSBENCH = Path("/usr/bin/sysbench")


@contextmanager
def other_volume(folder: Path, *, size: str = "200m", options: str = "defaults") -> Iterator[str]:
    """A mounted volume that no server is on; its name."""
    with volume("other", "--size", size, VG):
        tool("mkfs.ext4", "-q", "-E", "nodiscard", f"/dev/{VG}/other")
        folder.mkdir(exist_ok=True)
        tool("mount", "-o", options, f"/dev/{VG}/other", str(folder))
        try:
            yield f"{VG}/other"
        finally:
            tool("umount", str(folder))


@contextmanager
def in_place_of_sysbench(script: Path | None, text: str = "") -> Iterator[None]:
    """Another program, or none that can be started, where sysbench is."""
    if script is not None:
        script.write_text(text)
        script.chmod(0o755)
    tool("mount", "--bind", str(script or "/dev/null"), str(SYSBENCH))
    try:
        yield
    finally:
        tool("umount", str(SYSBENCH))


def keys(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["mode"], row["phase"], row["chunk_size"], row["snapshots"], row["threads"]) for row in document["rows"]
    ]


def test_every_option_adds_its_rows_and_every_figure_is_there(host: Host) -> None:
    document = host.backupd(
        *("probe", *DATA, *SMALL, "--json", "--chunk-sizes", "4k,64k", "--snapshots", "1,2"),
        *("--reads", "--while-copying"),
    ).document
    variants = {(row["chunk_size"], row["snapshots"]) for row in document["rows"]} - {(None, 0)}
    assert variants == {(4096, 1), (65536, 1), (4096, 2)}
    each = len(variants)
    phases = [(row["mode"], row["phase"]) for row in document["rows"]]
    for mode, phase, count in (
        *(("direct", "baseline", 1), ("direct", "first", each), ("direct", "copying", each)),
        *(("rewrite", "baseline", 1), ("rewrite", "first", each), ("rewrite", "settled", each)),
        *(("rewrite", "copying", each), ("read", "baseline", 1), ("read", "first", each), ("read", "filled", each)),
        *(("read-snapshot", "first", each), ("read-snapshot", "filled", each), ("scan", "baseline", 1)),
        *(("scan", "first", each), ("scan", "filled", each)),
        *(("scan-snapshot", "first", each), ("scan-snapshot", "filled", each)),
    ):
        assert phases.count((mode, phase)) == count, (mode, phase)
    assert all(row["iops"] > 0 for row in document["rows"])
    assert all((row["penalty"] is None) == (row["phase"] == "baseline") for row in document["rows"])
    assert all(abs(sum(row["pv_shares"].values()) - 1) < 0.01 for row in document["rows"] if row["pv_shares"])
    assert len(document["curves"]) == each
    assert document["volume"]["name"] == f"{VG}/data"
    assert document["volume"]["filesystem"] == "xfs"
    assert document["volume"]["kernel"] == tool("uname", "-r").strip()
    assert document["volume"]["lvm"].startswith("2.")
    assert document["volume"]["sysbench"].startswith("1.")


@pytest.mark.matrix
def test_the_cow_area_is_tried_where_it_was_asked_for(host: Host) -> None:
    first, *_, fourth = tool("pvs", "--noheadings", "--options", "pv_name", "--sort", "pv_name").split()
    asked = (*SMALL, "--modes", "direct", "--cow-on", first, "--cow-on", fourth)
    rows = host.backupd("probe", *DATA, *asked, "--json").document["rows"]
    chosen_by_lvm, *asked_for = (row["cow_pvs"] for row in rows if row["phase"] == "first")
    assert asked_for == [[first], [fourth]]
    assert len(chosen_by_lvm) == 1
    assert all(row["pv_shares"][pv] > 0.1 for row in rows if row["phase"] == "first" for pv in row["cow_pvs"])


@pytest.mark.matrix
def test_first_writes_cost_a_read_and_two_or_three_writes(host: Host) -> None:
    asked = (*SMALL, "--file-size", "256M", "--modes", "direct", "--chunk-sizes", "16k")
    rows = host.backupd("probe", *DATA, *asked, "--json").document["rows"]
    baseline, first = rows
    assert baseline["writes_per_write"] == pytest.approx(1.0, abs=0.25)
    assert baseline["reads_per_write"] < 0.1
    assert first["reads_per_write"] > 0.3
    assert first["writes_per_write"] > baseline["writes_per_write"] + 0.3
    assert first["cow_chunks_per_second"] > 10
    assert baseline["cow_chunks_per_second"] is None
    working = [share for share in baseline["pv_shares"].values() if share > 0.15]
    assert len(working) == 3, "the volume is striped: all of its disks work"


@pytest.mark.matrix
def test_syncing_modes_and_threads_have_rows(host: Host) -> None:
    document = host.backupd(
        "probe", *DATA, *SMALL, "--json", "--modes", "sync,fsync-100", "--threads", "1,4", "--write-share", "0.2"
    ).document
    assert keys(document) == [
        (mode, phase, chunk, count, threads)
        for mode in ("sync", "fsync-100")
        for threads in (1, 4)
        for phase, chunk, count in (("baseline", None, 0), ("first", 4096, 1))
    ]


def test_a_job_names_volume_and_chunk_size_and_the_probe_can_be_seen_later(host: Host, tmp_path: Path) -> None:
    page = tmp_path / "probe.html"
    document = host.backupd("probe", "nightly", *SMALL, "--modes", "direct", "--json", "--html", str(page)).document
    assert document["volume"]["name"] == f"{VG}/data"
    assert document["settings"]["chunk_size"] == 65536
    assert "<svg" in page.read_text()
    run_id = document["run_id"]
    listed = json.loads(host.backupd("history", "--probes", "--json").stdout)["probes"]
    assert run_id in [probe["run_id"] for probe in listed]
    assert host.backupd("show", run_id, "--json").document["rows"] == document["rows"]
    assert all(run["run_id"] != run_id for run in host.backupd("history", "--json").document["runs"])


def test_a_passive_probe_sees_the_servers_own_writes(host: Host) -> None:
    asked = ("--passive", "--seconds", "2", "--repeat", "1", "--max-wait", "4")
    rows = host.backupd("probe", *DATA, *asked, "--json").document["rows"]
    assert [(row["mode"], row["phase"]) for row in rows] == [
        ("passive", "baseline"),
        ("passive", "first"),
        ("passive", "settled"),
    ]
    assert all(row["iops"] > 0 for row in rows)
    assert rows[1]["cow_chunks_per_second"] > 0


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGINT, 11, marks=pytest.mark.matrix), (signal.SIGTERM, 15)]
)
def test_a_stop_signal_in_mid_window_leaves_nothing(host: Host, number: signal.Signals, status: int) -> None:
    with host.started("probe", *DATA, "--file-size", "16M", "--seconds", "8", "--json") as probe:
        probe.until(snapshotted)
        probe.process.send_signal(number)
        ended = probe.ended(expect=status)
    assert ended.seconds < 10
    assert ended.document["status"] == "cancelled"


def test_a_probe_that_was_killed_is_cleaned_up_after(host: Host) -> None:
    with host.started("probe", *DATA, "--file-size", "16M", "--seconds", "8") as probe:
        probe.until(snapshotted)
        probe.process.kill()
        probe.process.wait()
    assert host.left() != {}
    host.backupd("recover")
    host.nothing_left()


def test_a_snapshot_that_overflows_ends_the_probe(host: Host, tmp_path: Path) -> None:
    with other_volume(tmp_path / "other") as name:
        asked = ("--file-size", "4M", "--rewrite-size", "1M", "--seconds", "20", "--json")
        with host.started("probe", "--volume", name, *asked) as probe:
            probe.until(snapshotted)
            tool("dd", "if=/dev/zero", f"of={tmp_path}/other/filler", "bs=1M", "count=120", "oflag=direct")
            ended = probe.ended(expect=7)
        assert "overflowed or failed" in ended.document["error"]["message"]
        assert "hint: its COW area was too small" in ended.stderr


@pytest.mark.matrix
def test_writes_that_take_too_long_end_the_probe(host: Host) -> None:
    ended = host.backupd("probe", *DATA, *SMALL, "--seconds", "20", "--max-write-latency", "0.001", "--json", expect=7)
    assert "the limit is 0.001 ms" in ended.document["error"]["message"]
    assert ended.seconds < 20


def test_a_foreign_snapshot_is_refused_and_kept(host: Host) -> None:
    with volume("foreign", "--snapshot", "--size", "16m", f"{VG}/data"):
        ended = host.backupd("probe", *DATA, *SMALL, expect=5)
        assert "already has a snapshot: foreign" in ended.stderr
        assert "foreign" in tool("lvs", "--noheadings", "--options", "lv_name", VG)


@pytest.mark.matrix  # as of every host: tests/story/test_measure.py
def test_a_loaded_host_is_refused(host: Host) -> None:
    assert "load average" in host.backupd("probe", *DATA, *SMALL, "--max-load", "0.0001", expect=5).stderr


@pytest.mark.parametrize(
    ("options", "size", "words"),
    [
        ("ro", "200m", "is read-only"),
        pytest.param("defaults", "200m", "not enough space", marks=pytest.mark.matrix),
    ],
)
def test_a_volume_that_takes_no_file_is_refused(
    host: Host, tmp_path: Path, options: str, size: str, words: str
) -> None:
    with other_volume(tmp_path / "other", size=size, options=options) as name:
        ended = host.backupd("probe", "--volume", name, "--file-size", "256M", expect=5)
        assert words in ended.stderr
        assert "hint: " in ended.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{VG}/nobody", "no active logical volume"),
        pytest.param("nogroup/data", "nogroup", marks=pytest.mark.matrix),
        pytest.param("data", "is not a volume", marks=pytest.mark.matrix),
    ],
)
def test_a_volume_that_is_not_there_is_refused(host: Host, name: str, words: str) -> None:
    done = subprocess.run(["backupd", "probe", "--volume", name], capture_output=True, text=True, check=False)
    assert done.returncode in (2, 5)
    assert words in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.matrix
def test_a_volume_that_is_not_mounted_is_refused(host: Host) -> None:
    with volume("other", "--size", "32m", VG):
        assert f"{VG}/other is not mounted" in host.backupd("probe", "--volume", f"{VG}/other", expect=5).stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "sysbench is not installed"),
        pytest.param(
            "#!/bin/sh\necho 'sysbench 0.4.12:  multi-threaded system evaluation benchmark'\n",
            "too old",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_sysbench_that_is_missing_or_too_old_is_refused(
    host: Host, tmp_path: Path, text: str | None, words: str
) -> None:
    with in_place_of_sysbench(tmp_path / "sysbench" if text else None, text or ""):
        ended = host.backupd("probe", *DATA, *SMALL, expect=5)
    assert words in ended.stderr
    assert "hint: " in ended.stderr


@pytest.mark.matrix
def test_an_output_that_nobody_knows_is_shown(host: Host, tmp_path: Path) -> None:
    script = "#!/bin/sh\ncase \"$*\" in\n*version*) echo sysbench 1.0.20 ;;\n*) echo 'as fast as ever' ;;\nesac\n"
    with in_place_of_sysbench(tmp_path / "sysbench", script):
        ended = host.backupd("probe", *DATA, *SMALL, expect=12)
    assert "as fast as ever" in ended.stderr
