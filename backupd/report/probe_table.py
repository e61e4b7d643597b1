"""A probe's rows as a text table, as CSV and as JSON, with what a reader needs beside them.

Knows: which columns there are, and what does not need one because it is the same everywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap

from backupd.report import words
from backupd.report.json_document import Document, clean, iso
from backupd.report.probe_combinations import cow_on, is_of_writes, short_pv
from backupd.report.tuning_text import tuning_document
from backupd.report.words import columns, duration, figure, many, ratio, share, size, speed
from backupd.vocabulary.gauges import Mode, Stage
from backupd.vocabulary.probes import Measurement, ProbedVolume, ProbeRecord, ProbeRow, ProbeSettings
from backupd.vocabulary.volumes import Layout

THEORY = "1 physical read and 2-3 physical writes for each first write of a chunk"
WIDTH = 80  # of running text; the table itself is as wide as its columns


# --- for machines ----------------------------------------------------------------------------------------------------


def document(probe: ProbeRecord) -> Document:
    """What `probe --json` prints: bytes, seconds, penalties baseline ÷ this. What is no finite number is null."""
    found = probe.measurement
    plain: Document = clean(
        {
            "run_id": probe.run_id,
            "status": probe.status.value,
            "started_at": probe.started_at.isoformat(),
            "ended_at": iso(probe.ended_at),
            "volume": None if found is None else asdict(found.volume),
            "settings": None if found is None else asdict(found.settings),
            "rows": [] if found is None else [row_document(row) for row in found.rows],
            "curves": [] if found is None else [asdict(curve) for curve in found.curves],
            "notes": [] if found is None else list(found.notes),
            "tuning": None if found is None or found.tuning is None else tuning_document(found.tuning),
            "error": None if probe.error is None else asdict(probe.error),
        }
    )
    return plain


def row_document(row: ProbeRow) -> Document:
    """One row. Its physical figures are null where the kernel's counters were not read."""
    why = row.physical
    return {
        "mode": row.mode.value,
        "threads": row.threads,
        "block_size": row.block_size,
        "chunk_size": row.chunk_size,
        "cow_pvs": list(row.cow_pvs),
        "cow_stripes": row.cow_stripes,
        "snapshots": row.snapshots,
        "phase": row.phase.value,
        "iops": row.iops,
        "spread": row.spread,
        "penalty": row.penalty,
        "repeats": row.repeats,
        "bytes_per_second": row.bytes_per_second,
        "latency_p95_ms": row.latency_p95_ms,
        "reads_per_write": why and why.reads_per_write,
        "writes_per_write": why and why.writes_per_write,
        "cow_chunks_per_second": why and why.cow_chunks_per_second,
        "pv_shares": dict(why.shares) if why else {},
    }


def csv_text(measurement: Measurement) -> str:
    """A line per row, the columns named as in the JSON; what is null there is empty, lists are joined by semicolons."""
    rows = []
    for row in (clean(row_document(row)) for row in measurement.rows):
        shares = ";".join(f"{pv}={part:.4g}" for pv, part in row["pv_shares"].items() if part is not None)
        rows.append({**row, "cow_pvs": ";".join(row["cow_pvs"]), "pv_shares": shares})
    return words.csv_text(list(rows[0]) if rows else list(row_document(_NO_ROW)), rows)


_NO_ROW = ProbeRow(Mode.DIRECT, 0, 0, None, (), 0, Stage.BASELINE, 0.0, 0.0, None)


# --- for people ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grid:
    """The table before it is text: what is the same in all rows, and columns for the rest."""

    shared: tuple[str, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int]  # columns of figures


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cell: Callable[[ProbeRow], str]
    shared: Callable[[str], str] | None = None  # how it is said once for all rows; None: it always has its column
    figures: bool = True


def _of_snapshot(say: Callable[[ProbeRow], str]) -> Callable[[ProbeRow], str]:
    """A cell that means nothing where there was no snapshot."""
    return lambda row: "" if row.phase is Stage.BASELINE else say(row)


def _rate(row: ProbeRow) -> str:
    scanned = row.mode in (Mode.SCAN, Mode.SCAN_SNAPSHOT)  # elsewhere it is the IOPS again
    return speed(row.bytes_per_second) if scanned else "-"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else duration(value / 1000) if value >= 10 else f"{figure(value, 1)} ms"


_TELLING = (  # what tells rows apart; said once where it is the same in all
    _Column("THREADS", lambda row: str(row.threads), lambda cell: many(int(cell), "thread")),
    _Column("BLOCK", lambda row: size(row.block_size) if row.block_size else "", lambda cell: f"blocks of {cell}"),
    _Column("CHUNK", lambda row: size(row.chunk_size) if row.chunk_size else "", lambda cell: f"chunks of {cell}"),
    _Column(
        "COW ON",
        _of_snapshot(lambda row: cow_on(row.cow_pvs, row.cow_stripes)),
        lambda cell: f"COW area on {cell}",
        figures=False,
    ),
    _Column("SNAPS", _of_snapshot(lambda row: str(row.snapshots)), lambda cell: many(int(cell), "snapshot")),
)
_FOUND = (  # what was measured; left out where it never was
    _Column("IOPS", lambda row: figure(row.iops, 1)),
    _Column("SPREAD", lambda row: share(row.spread)),
    _Column("PENALTY", lambda row: ratio(row.penalty)),
    _Column("RATE", _rate),
    _Column("P95", lambda row: _milliseconds(row.latency_p95_ms)),
    _Column("READS/W", lambda row: figure(row.physical.reads_per_write) if row.physical else "-"),
    _Column("WRITES/W", lambda row: figure(row.physical.writes_per_write) if row.physical else "-"),
    _Column("CHUNKS/S", lambda row: figure(row.physical.cow_chunks_per_second, 1) if row.physical else "-"),
)


def grid(rows: Sequence[ProbeRow]) -> Grid:
    """Columns for what differs and what was measured; the rest is said once."""
    said = [(column, {cell for cell in map(column.cell, rows) if cell}) for column in _TELLING]
    telling = [column for column, cells in said if len(cells) > 1]
    shared = tuple(column.shared(*cells) for column, cells in said if column.shared and len(cells) == 1)
    found = [column for column in _FOUND if any(column.cell(row) != "-" for row in rows)]
    shown = [
        _Column("MODE", lambda row: row.mode.value, figures=False),
        *telling,
        _Column("PHASE", lambda row: row.phase.value, figures=False),
        *found,
    ]
    return Grid(
        shared,
        tuple(column.head for column in shown),
        tuple(tuple(column.cell(row) or "-" for column in shown) for row in rows),
        frozenset(i for i, column in enumerate(shown) if column.figures),
    )


def table(measurement: Measurement) -> str:
    """All of it but the curves: what was probed and how, the rows, the theory beside them, each PV's share, notes."""
    drawn = grid(measurement.rows)
    parts = [
        "\n".join(_wrapped([volume_words(measurement.volume), tools_words(measurement.volume)])),
        "\n".join(_wrapped([settings_words(measurement.settings)])),
    ]
    if measurement.rows:
        once = _wrapped([f"all rows: {', '.join(drawn.shared)}"]) if drawn.shared else []
        parts.append("\n".join([*once, columns([drawn.head, *drawn.rows], right=drawn.right)]))
        parts.append("\n".join(_wrapped(why_words(measurement.rows))))
    else:
        parts.append("no row was measured")
    if any(row.physical and row.physical.shares for row in measurement.rows):
        parts.append(_share_table(measurement))
    parts.append("\n".join(_wrapped([f"note: {note}" for note in measurement.notes])))
    return "\n\n".join(part for part in parts if part)


def volume_words(volume: ProbedVolume) -> str:
    """What was probed: size, layout, disks and file system of a volume."""
    stripes = f", {volume.stripes} stripes of {size(volume.stripe_size)}" if volume.stripes > 1 else ""
    kind = "thin" if volume.thin else f"{volume.layout.value}{stripes}"
    pvs = ", ".join(map(short_pv, volume.pvs))
    return f"{volume.name}: {size(volume.size)}, {kind} on {pvs or 'unknown PVs'}, {volume.filesystem}"


def tools_words(volume: ProbedVolume) -> str:
    """By whose means it was probed."""
    sysbench = f", sysbench {volume.sysbench}" if volume.sysbench else ""
    return f"Linux {volume.kernel}, LVM {volume.lvm}{sysbench}"


def settings_words(settings: ProbeSettings) -> str:
    """How it was probed."""
    mixed = "" if settings.write_share >= 1 else f", {share(settings.write_share)} of the requests are writes"
    return (
        f"windows of {duration(settings.seconds)}, medians of {settings.repeat}; file of {size(settings.file_size)}"
        f" (rewrite: {size(settings.rewrite_size)} of it){mixed}; COW area of {size(settings.cow_size)}"
    )


def why_words(rows: Iterable[ProbeRow]) -> list[str]:
    """Theory, and beside it what was measured where most writes were the first of their chunk."""
    theory = f"theory: {THEORY}"
    first = [row for row in rows if row.phase is Stage.FIRST and is_of_writes(row.mode) and row.physical]
    clearest = max(first, key=_copied, default=None)
    if clearest is None or clearest.physical is None:
        return [theory]
    why = clearest.physical
    return [
        theory,
        f"measured: {figure(why.reads_per_write)} reads and {figure(why.writes_per_write)} writes for each write,"
        f" {figure(_copied(clearest))} chunks copied for each"
        f" ({clearest.mode}, {many(clearest.threads, 'thread')}, {clearest.phase})",
    ]


def share_rows(rows: Iterable[ProbeRow]) -> list[tuple[ProbeRow, dict[str, float]]]:
    """The rows of which it is known how much each PV worked."""
    return [(row, dict(row.physical.shares)) for row in rows if row.physical and row.physical.shares]


def shares_theory(layout: Layout) -> str:
    """What to expect of the shares."""
    expected = {
        Layout.LINEAR: "linear: the one disk that has the file works",
        Layout.STRIPED: "striped: all disks work",
        Layout.MIXED: "mixed: depends on the segment that has the file",
    }
    return f"{expected[layout]}, plus the COW area's disks"


def _share_table(measurement: Measurement) -> str:
    known = share_rows(measurement.rows)
    pvs = list(dict.fromkeys(pv for _, shares in known for pv in shares))
    drawn = grid([row for row, _ in known])
    until = drawn.head.index("PHASE") + 1
    rows = [
        (*cells[:until], *(share(shares.get(pv)) for pv in pvs))
        for cells, (_, shares) in zip(drawn.rows, known, strict=True)
    ]
    right = {i for i in drawn.right if i < until} | set(range(until, until + len(pvs)))
    head = (*drawn.head[:until], *map(short_pv, pvs))
    title = f"each PV's share of the physical requests ({shares_theory(measurement.volume.layout)})"
    return "\n".join([*_wrapped([title]), columns([head, *rows], right=right)])


def _copied(row: ProbeRow) -> float:
    """Chunks that were copied for each write."""
    chunks = row.physical.cow_chunks_per_second if row.physical else None
    return chunks / row.iops if chunks and row.iops > 0 else 0.0


def _wrapped(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)]
