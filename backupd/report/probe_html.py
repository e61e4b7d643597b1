"""One probe as one HTML file that can be mailed: pictures inline, no network, no script, light and dark.

Knows: what is on the page, and in which words; the template knows where. What came from a host is escaped as the
template is filled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backupd.report import probe_table
from backupd.report.probe_charts import curve_svg, penalty_svg, shares_svg
from backupd.report.probe_combinations import whose_writes
from backupd.report.probe_text import outcomes
from backupd.report.templating import report
from backupd.report.tuning_text import sentences
from backupd.report.words import duration, instant, share, size
from backupd.vocabulary.gauges import Stage, place_words
from backupd.vocabulary.probes import Measurement, ProbeRecord


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the template shows of a measurement."""

    outcomes: Sequence[tuple[str, float | None, float | None]]  # a name, the penalty at first, and once settled
    pictures: Sequence[tuple[str, str]]  # SVG, and the caption
    grid: probe_table.Grid
    phases: Sequence[Stage]  # of its rows
    why: Sequence[str]
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]  # everything that the figures depend on


def html_page(probe: ProbeRecord) -> str:
    """The whole page: what was probed, how it went, pictures, every row, notes."""
    found = probe.measurement
    name = found.volume.name if found else probe.job or "a volume"
    return report(
        "probe.html",
        title=f"What a snapshot costs on {name}",
        subtitle=_when(probe),
        error=probe.error,
        measured=_measured(found) if found else None,
    )


def _measured(found: Measurement) -> _Measured:
    return _Measured(
        outcomes=outcomes(found),
        pictures=list(_pictures(found)),
        grid=probe_table.grid(found.rows),
        phases=[row.phase for row in found.rows],
        why=probe_table.why_words(found.rows),
        notes=(*found.notes, *(sentences(found.tuning) if found.tuning is not None else ())),
        facts=_circumstances(found),
    )


def _pictures(found: Measurement) -> Iterator[tuple[str, str]]:
    if any(row.penalty is not None for row in found.rows):
        yield penalty_svg(found.rows, alone=False), "Baseline ÷ this, medians over the repeats."
    for mode in dict.fromkeys(curve.mode for curve in found.curves):
        of_mode = [curve for curve in found.curves if curve.mode is mode]
        title = f"Penalty of {whose_writes(mode)} after the snapshot"
        drawn = curve_svg(of_mode, threshold=found.settings.threshold, title=title, alone=False)
        ends = ", ".join(dict.fromkeys(curve.reason.value for curve in of_mode))
        yield drawn, f"A dot is one window of {duration(found.settings.seconds)}. Ended: {ends}."
    if probe_table.share_rows(found.rows):
        expected = probe_table.shares_theory(found.volume.layout)
        yield shares_svg(found.rows, alone=False), f"Of the physical requests; {expected}."


def _circumstances(found: Measurement) -> list[tuple[str, str]]:
    volume, settings = found.volume, found.settings
    layout = f"{volume.layout}, {volume.stripes} stripes of {size(volume.stripe_size)}"
    return [
        ("Volume", f"{volume.name}, {size(volume.size)}{', thin' if volume.thin else ''}"),
        ("Layout", layout if volume.stripes > 1 else volume.layout.value),
        ("PVs", ", ".join(volume.pvs) or "-"),
        ("File system", volume.filesystem),
        ("Chunk size", size(settings.chunk_size)),
        ("COW area", f"{size(settings.cow_size)} {place_words(settings.cow_pvs, settings.cow_stripes)}"),
        ("Windows", f"{duration(settings.seconds)} each, {settings.repeat} repeats"),
        ("Requests", f"{size(settings.block_size)}, {share(settings.write_share)} of them writes"),
        ("File", f"{size(settings.file_size)}, of which rewrite uses {size(settings.rewrite_size)}"),
        ("Kernel", volume.kernel),
        ("LVM", volume.lvm),
        ("sysbench", volume.sysbench or "not used"),
    ]


def _when(probe: ProbeRecord) -> str:
    job = f", job {probe.job}" if probe.job else ""
    return f"Probe {probe.run_id}{job}: {probe.status}, {instant(probe.started_at)}, took {duration(probe.seconds)}"
