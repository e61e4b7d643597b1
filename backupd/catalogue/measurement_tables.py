"""The catalogue's tables of what probes measured and what benches found; see `tables`, which knows the others."""

from typing import Any

from sqlalchemy import Boolean, Column, Float, Integer, Table, Text

from backupd.catalogue.columns import InstantColumn, JsonColumn, WordColumn
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
    Column("layout", WordColumn(Layout), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("pvs", JsonColumn(tuple[str, ...]), nullable=False),
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
    Column("cow_pvs", JsonColumn(tuple[str, ...]), nullable=False),
    Column("cow_size", Integer, nullable=False),
    Column("threshold", Float, nullable=False),
    Column("notes", JsonColumn(tuple[str, ...]), nullable=False),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

probe_rows = Table(  # a `ProbeRow` with its `PhysicalCost`; without one `shares` is null
    "probe_rows",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("mode", WordColumn(Mode), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("block_size", Integer, nullable=False),
    Column("chunk_size", Integer),
    Column("cow_pvs", JsonColumn(tuple[str, ...]), nullable=False),
    Column("snapshots", Integer, nullable=False),
    Column("phase", WordColumn(Stage), nullable=False),
    Column("iops", Float, nullable=False),
    Column("spread", Float, nullable=False),
    Column("penalty", Float),
    Column("repeats", Integer, nullable=False),
    Column("bytes_per_second", Float),
    Column("latency_p95_ms", Float),
    Column("reads_per_write", Float),
    Column("writes_per_write", Float),
    Column("cow_chunks_per_second", Float),
    Column("shares", JsonColumn(dict[str, Any])),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

probe_curves = Table(  # the points are read with SQLite's json_each
    "probe_curves",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("mode", WordColumn(Mode), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("chunk_size", Integer, nullable=False),
    Column("cow_pvs", JsonColumn(tuple[str, ...]), nullable=False),
    Column("snapshots", Integer, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("reason", WordColumn(Reason), nullable=False),
    Column("points", JsonColumn(tuple[CurvePoint, ...]), nullable=False),
    Column("cow_stripes", Integer, nullable=False, server_default="1"),
)

tunings = Table(  # a `Tuning` with its `VolumeLayout`
    "tunings",
    metadata,
    of_run(one=True),
    Column("made_at", InstantColumn, nullable=False),
    Column("volume_uuid", Text, nullable=False),
    Column("group_uuid", Text, nullable=False),
    Column("devices", JsonColumn(tuple[str, ...]), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("pvs", JsonColumn(dict[str, Any]), nullable=False),
    Column("cells", JsonColumn(tuple[TunedCell, ...]), nullable=False),
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
    Column("disks", JsonColumn(tuple[str, ...]), nullable=False),
    Column("filesystem", Text, nullable=False),
    Column("file_size", Integer, nullable=False),
    Column("volume_size", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("tables", JsonColumn(tuple[str, ...]), nullable=False),
    Column("layouts", JsonColumn(tuple[ScratchLayout, ...]), nullable=False),
    Column("notes", JsonColumn(tuple[str, ...]), nullable=False),
)

bench_cells = Table(
    "bench_cells",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("layout", Text, nullable=False),
    Column("operation", WordColumn(Operation), nullable=False),
    Column("record", Integer, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("medium", WordColumn(Medium), nullable=False),
    Column("iops", Float, nullable=False),
    Column("bytes_per_second", Float, nullable=False),
    Column("spread", Float, nullable=False),
    Column("repeats", Integer, nullable=False),
    Column("latency_p95_ms", Float),
    Column("shares", JsonColumn(dict[str, Any]), nullable=False),
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
    Column("read", JsonColumn(dict[str, Any]), nullable=False),
    Column("written", JsonColumn(dict[str, Any]), nullable=False),
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
