"""One probe as one HTML file that can be mailed: pictures inline, no network, no script, light and dark.

Knows: the page. Everything that came from a host is escaped.
"""

from collections.abc import Sequence

from backupd.report import probe_table
from backupd.report.charts import curve_svg, penalty_svg, shares_svg
from backupd.report.combinations import whose_writes
from backupd.report.page import cell, facts_list, figure, page, tag, text
from backupd.report.probe_text import outcomes
from backupd.report.tuning_text import sentences
from backupd.report.words import duration, instant, ratio, share, size
from backupd.vocabulary.gauges import place_words
from backupd.vocabulary.probes import Measurement, ProbeRecord


def html_page(probe: ProbeRecord) -> str:
    """The whole page: what was probed, how it went, pictures, every row, notes."""
    found = probe.measurement
    name = found.volume.name if found else probe.job or "a volume"
    title = f"What a snapshot costs on {name}"
    body = [
        tag("header", tag("h1", text(title)) + tag("p", text(_when(probe)), cls="soft")),
        *_failure(probe),
        *(_sections(found) if found else ()),
    ]
    return page(title, body)


def _sections(found: Measurement) -> list[str]:
    """Everything that was measured, the answer first."""
    sections = [_cards(found)]
    if any(row.penalty is not None for row in found.rows):
        sections.append(figure(penalty_svg(found.rows, alone=False), "Baseline ÷ this, medians over the repeats."))
    for mode in dict.fromkeys(curve.mode for curve in found.curves):
        of_mode = [curve for curve in found.curves if curve.mode is mode]
        title = f"Penalty of {whose_writes(mode)} after the snapshot"
        drawn = curve_svg(of_mode, threshold=found.settings.threshold, title=title, alone=False)
        ends = ", ".join(dict.fromkeys(curve.reason.value for curve in of_mode))
        sections.append(figure(drawn, f"A dot is one window of {duration(found.settings.seconds)}. Ended: {ends}."))
    if probe_table.share_rows(found.rows):
        expected = probe_table.shares_theory(found.volume.layout)
        sections.append(figure(shares_svg(found.rows, alone=False), f"Of the physical requests; {expected}."))
    return [
        *sections,
        _rows(found),
        _notes((*found.notes, *(sentences(found.tuning) if found.tuning is not None else ()))),
        _circumstances(found),
    ]


def _cards(found: Measurement) -> str:
    """The answer in large figures: a card for each way of writing."""
    cards = [
        tag(
            "div",
            tag("p", text(name), cls="soft")
            + tag("p", f"{text(ratio(first))} <span>to</span> {text(ratio(settled))}", cls="large")
            + tag("p", "slower at first, and once settled", cls="soft"),
            cls="card",
        )
        for name, first, settled in outcomes(found)
    ]
    return tag("section", "\n".join(cards), cls="cards") if cards else ""


def _rows(found: Measurement) -> str:
    drawn = probe_table.grid(found.rows)
    if not drawn.rows:
        return tag("section", tag("h2", "Every row") + tag("p", "No row was measured."))
    head = "".join(cell("th", words, figures=i in drawn.right) for i, words in enumerate(drawn.head))
    lines = [
        tag("tr", "".join(cell("td", words, figures=i in drawn.right) for i, words in enumerate(cells)), cls=row.phase)
        for cells, row in zip(drawn.rows, found.rows, strict=True)
    ]
    table = tag("table", tag("thead", tag("tr", head)) + tag("tbody", "\n".join(lines)))
    once = [tag("p", text(f"All rows: {', '.join(drawn.shared)}."), cls="soft")] if drawn.shared else []
    why = [tag("p", text(f"{said[0].upper()}{said[1:]}."), cls="soft") for said in probe_table.why_words(found.rows)]
    parts = [tag("h2", "Every row"), *once, tag("div", table, cls="scroll"), *why]
    return tag("section", "\n".join(parts))


def _circumstances(found: Measurement) -> str:
    """Everything that the figures depend on."""
    volume, settings = found.volume, found.settings
    layout = f"{volume.layout}, {volume.stripes} stripes of {size(volume.stripe_size)}"
    facts = [
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
    return tag("section", tag("h2", "Measured on, and how") + facts_list(facts))


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return tag("section", tag("h2", "Notes on the figures") + tag("ul", "".join(tag("li", text(n)) for n in notes)))


def _failure(probe: ProbeRecord) -> list[str]:
    if probe.error is None:
        return []
    hint = tag("p", text(probe.error.hint), cls="soft") if probe.error.hint else ""
    return [tag("section", tag("h2", "It did not finish") + tag("p", text(probe.error.message)) + hint)]


def _when(probe: ProbeRecord) -> str:
    took = duration((probe.ended_at - probe.started_at).total_seconds()) if probe.ended_at else "-"
    job = f", job {probe.job}" if probe.job else ""
    return f"Probe {probe.run_id}{job}: {probe.status}, {instant(probe.started_at)}, took {took}"
