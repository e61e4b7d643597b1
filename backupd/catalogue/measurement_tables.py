"""The catalogue's tables of what probes measured and what benches found; see `tables`, which knows the others."""

from typing import Any

from sqlalchemy import Boolean, Column, Float, Integer, Table, Text

from backupd.catalogue.columns import Instant, Json, Word
from backupd.catalogue.metadata import metadata, of_run
from backupd.vocabulary.gauges import CurvePoint, Mode, Stage, TunedCell
from backupd.vocabulary.penalty import Reason
from backupd.vocabulary.scratch_layouts import Medium, Operation, ScratchLayout
from backupd.vocabulary.volumes import Layout

# --- what probes measured --------------------------------------------------------------------------------------------

probes = Table(  # a `ProbedVolume` and its `ProbeSettings` in one row
    "probes",
    metadata,
    of_run(one=True),
    Column("volume", Text, key="name", nullable=False),
    Column("volume_size", Integer, key="size", nullable=False),
    Column("layout", Word(Layout), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("pvs", Json(tuple[str, ...]), nullable=False),
    Column("filesystem", Text, nullable=False),
    Column("thin", Boolean, nullable=False),
    Column("kernel", Text, nullable=False),
    Column("lvm", Text, nullable=False),
    Column("sysbench", Text),
    Column("seconds", Float, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("block_size", Integer, nullable=False),
    Column("file_size", Integer, nullable=False),
    Column("rewrite_size", Integer, nullable=False),
    Column("write_share", Float, nullable=False),
    Column("chunk_size", Integer, nullable=False),
    Column("cow_pvs", Json(tuple[str, ...]), nullable=False),
    Column("cow_size", Integer, nullable=False),
    Column("threshold", Float, nullable=False),
    Column("notes", Json(tuple[str, ...]), nullable=False),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

probe_rows = Table(  # a `ProbeRow` with its `PhysicalCost`; without one `shares` is null
    "probe_rows",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("mode", Word(Mode), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("block_size", Integer, nullable=False),
    Column("chunk_size", Integer),
    Column("cow_pvs", Json(tuple[str, ...]), nullable=False),
    Column("snapshots", Integer, nullable=False),
    Column("phase", Word(Stage), nullable=False),
    Column("iops", Float, nullable=False),
    Column("spread", Float, nullable=False),
    Column("penalty", Float),
    Column("repeats", Integer, nullable=False),
    Column("bytes_per_second", Float),
    Column("latency_p95_ms", Float),
    Column("reads_per_write", Float),
    Column("writes_per_write", Float),
    Column("cow_chunks_per_second", Float),
    Column("shares", Json(dict[str, Any])),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

probe_curves = Table(  # the points are read with SQLite's json_each
    "probe_curves",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("mode", Word(Mode), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("chunk_size", Integer, nullable=False),
    Column("cow_pvs", Json(tuple[str, ...]), nullable=False),
    Column("snapshots", Integer, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("reason", Word(Reason), nullable=False),
    Column("points", Json(tuple[CurvePoint, ...]), nullable=False),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

tunings = Table(  # a `Tuning` with its `VolumeLayout`
    "tunings",
    metadata,
    of_run(one=True),
    Column("made_at", Instant, nullable=False),
    Column("volume_uuid", Text, nullable=False),
    Column("group_uuid", Text, nullable=False),
    Column("devices", Json(tuple[str, ...]), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("pvs", Json(dict[str, Any]), nullable=False),
    Column("cells", Json(tuple[TunedCell, ...]), nullable=False),
)

# --- what benches found ----------------------------------------------------------------------------------------------

benches = Table(  # a `LayoutBench` without what it measured: its `BenchHost`, `BenchSettings`, layouts and notes
    "benches",
    metadata,
    of_run(one=True),
    Column("kernel", Text, nullable=False),
    Column("lvm", Text, nullable=False),
    Column("sysbench", Text, nullable=False),
    Column("fio", Text),
    Column("mdadm", Text),
    Column("memory", Integer, nullable=False),
    Column("processors", Integer, nullable=False),
    Column("vg", Text, nullable=False),
    Column("disks", Json(tuple[str, ...]), nullable=False),
    Column("filesystem", Text, nullable=False),
    Column("file_size", Integer, nullable=False),
    Column("volume_size", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("tables", Json(tuple[str, ...]), nullable=False),
    Column("layouts", Json(tuple[ScratchLayout, ...]), nullable=False),
    Column("notes", Json(tuple[str, ...]), nullable=False),
)

bench_cells = Table(
    "bench_cells",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("layout", Text, nullable=False),
    Column("operation", Word(Operation), nullable=False),
    Column("record", Integer, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("medium", Word(Medium), nullable=False),
    Column("iops", Float, nullable=False),
    Column("bytes_per_second", Float, nullable=False),
    Column("spread", Float, nullable=False),
    Column("repeats", Integer, nullable=False),
    Column("latency_p95_ms", Float),
    Column("shares", Json(dict[str, Any]), nullable=False),
    Column("system", Float),
    Column("iowait", Float),
)

bench_samples = Table(
    "bench_samples",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("at_seconds", Float, nullable=False),
    Column("layout", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("read", Json(dict[str, Any]), nullable=False),
    Column("written", Json(dict[str, Any]), nullable=False),
    Column("system", Float, nullable=False),
    Column("iowait", Float, nullable=False),
)

bench_snapshots = Table(
    "bench_snapshots",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("layout", Text, nullable=False),
    Column("probe_run_id", Text, nullable=False),  # no reference: the bench's figures stand without the probe's
    Column("chunk_size", Integer, nullable=False),
    Column("origin_read", Float),
    Column("snapshot_read", Float),
    Column("penalty", Float),
)
