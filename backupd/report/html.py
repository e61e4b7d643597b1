"""One probe as one HTML file that can be mailed: pictures inline, no network, no script, light and dark.

Knows: the page. Refuses to know where it is kept. Everything that came from a host is escaped.
"""

from collections.abc import Iterable, Sequence
from html import escape

from backupd.measurement import Measurement, ProbeRecord
from backupd.report import probe_table
from backupd.report.charts import curve_svg, penalty_svg, shares_svg
from backupd.report.combinations import whose_writes
from backupd.report.probe_text import outcomes
from backupd.report.svg import colour, printable, style
from backupd.report.words import duration, instant, ratio, share, size


def html_page(probe: ProbeRecord) -> str:
    """The whole page: what was probed, how it went, pictures, every row, notes."""
    found = probe.measurement
    name = found.volume.name if found else probe.job or "a volume"
    title = f"What a snapshot costs on {name}"
    body = [
        _tag("header", _tag("h1", _text(title)) + _tag("p", _text(_when(probe)), cls="soft")),
        *_failure(probe),
        *(_sections(found) if found else ()),
    ]
    head = (
        '<meta charset="utf-8"/>\n<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<meta name="color-scheme" content="light dark"/>\n<title>{_text(title)}</title>\n<style>{_STYLE}</style>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n<main>\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _sections(found: Measurement) -> list[str]:
    """Everything that was measured, the answer first."""
    sections = [_cards(found)]
    if any(row.penalty is not None for row in found.rows):
        sections.append(_figure(penalty_svg(found.rows, alone=False), "Baseline ÷ this, medians over the repeats."))
    for mode in dict.fromkeys(curve.mode for curve in found.curves):
        of_mode = [curve for curve in found.curves if curve.mode is mode]
        title = f"Penalty of {whose_writes(mode)} after the snapshot"
        drawn = curve_svg(of_mode, threshold=found.settings.threshold, title=title, alone=False)
        ends = ", ".join(dict.fromkeys(curve.reason.value for curve in of_mode))
        sections.append(_figure(drawn, f"A dot is one window of {duration(found.settings.seconds)}. Ended: {ends}."))
    if probe_table.share_rows(found.rows):
        expected = probe_table.shares_theory(found.volume.layout)
        sections.append(_figure(shares_svg(found.rows, alone=False), f"Of the physical requests; {expected}."))
    return [*sections, _rows(found), _notes(found.notes), _circumstances(found)]


def _cards(found: Measurement) -> str:
    """The answer in large figures: a card for each way of writing."""
    cards = [
        _tag(
            "div",
            _tag("p", _text(name), cls="soft")
            + _tag("p", f"{_text(ratio(first))} <span>to</span> {_text(ratio(settled))}", cls="large")
            + _tag("p", "slower at first, and when it had settled", cls="soft"),
            cls="card",
        )
        for name, first, settled in outcomes(found)
    ]
    return _tag("section", "\n".join(cards), cls="cards") if cards else ""


def _rows(found: Measurement) -> str:
    drawn = probe_table.grid(found.rows)
    if not drawn.rows:
        return _tag("section", _tag("h2", "Every row") + _tag("p", "No row was measured."))
    head = "".join(_cell("th", cell, figures=i in drawn.right) for i, cell in enumerate(drawn.head))
    lines = [
        _tag("tr", "".join(_cell("td", cell, figures=i in drawn.right) for i, cell in enumerate(cells)), cls=row.phase)
        for cells, row in zip(drawn.rows, found.rows, strict=True)
    ]
    table = _tag("table", _tag("thead", _tag("tr", head)) + _tag("tbody", "\n".join(lines)))
    once = [_tag("p", _text(f"All rows: {', '.join(drawn.shared)}."), cls="soft")] if drawn.shared else []
    why = [_tag("p", _text(f"{said[0].upper()}{said[1:]}."), cls="soft") for said in probe_table.why_words(found.rows)]
    parts = [_tag("h2", "Every row"), *once, _tag("div", table, cls="scroll"), *why]
    return _tag("section", "\n".join(parts))


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
        ("COW area", f"{size(settings.cow_size)} on {', '.join(settings.cow_pvs) or 'any PV'}"),
        ("Windows", f"{duration(settings.seconds)} each, {settings.repeat} repeats"),
        ("Requests", f"{size(settings.block_size)}, {share(settings.write_share)} of them writes"),
        ("File", f"{size(settings.file_size)}, of which rewrite uses {size(settings.rewrite_size)}"),
        ("Kernel", volume.kernel),
        ("LVM", volume.lvm),
        ("sysbench", volume.sysbench or "not used"),
    ]
    return _tag("section", _tag("h2", "Measured on, and how") + _facts(facts))


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return _tag("dl", "\n".join(_tag("dt", _text(name)) + _tag("dd", _text(words)) for name, words in facts))


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return _tag(
        "section", _tag("h2", "To judge the figures") + _tag("ul", "".join(_tag("li", _text(n)) for n in notes))
    )


def _failure(probe: ProbeRecord) -> list[str]:
    if probe.error is None:
        return []
    hint = _tag("p", _text(probe.error.hint), cls="soft") if probe.error.hint else ""
    return [_tag("section", _tag("h2", "It did not come to its end") + _tag("p", _text(probe.error.message)) + hint)]


def _when(probe: ProbeRecord) -> str:
    took = duration((probe.ended_at - probe.started_at).total_seconds()) if probe.ended_at else "-"
    job = f", job {probe.job}" if probe.job else ""
    return f"Probe {probe.run_id}{job}: {probe.status}, {instant(probe.started_at)}, took {took}"


# --- markup ----------------------------------------------------------------------------------------------------------


def _text(words: str) -> str:
    return escape(printable(words))


def _tag(name: str, content: str, *, cls: str = "") -> str:
    """An element around markup."""
    return f'<{name} class="{escape(cls)}">{content}</{name}>' if cls else f"<{name}>{content}</{name}>"


def _cell(name: str, words: str, *, figures: bool) -> str:
    return _tag(name, _text(words), cls="figures" if figures else "")


def _figure(picture: str, words: str) -> str:
    return _tag("figure", picture + _tag("figcaption", _text(words), cls="soft"))


def _variables(*, dark: bool) -> str:
    names = ("paper", "ink", "soft", "grid", "s0")
    return " ".join(f"--{name}: {colour(name, dark=dark)};" for name in names)


_STYLE = f"""
:root {{ color-scheme: light dark; {_variables(dark=False)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(dark=True)} }} }}
body {{ margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif; }}
main {{ max-width: 900px; margin: 0 auto; padding: 24px 20px 48px; }}
h1 {{ font-size: 26px; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 18px; margin: 36px 0 8px; }}
p {{ margin: 4px 0; }}
.soft {{ color: var(--soft); font-size: 13px; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 12px;
  margin-top: 20px; }}
.card {{ border: 1px solid var(--grid); border-radius: 8px; padding: 10px 16px; }}
.large {{ font-size: 26px; font-weight: 650; color: var(--s0); font-variant-numeric: tabular-nums; }}
.large span {{ font-size: 14px; font-weight: 400; color: var(--soft); }}
figure {{ margin: 28px 0 0; }}
figure svg {{ max-width: 100%; height: auto; display: block; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13px; white-space: nowrap; margin: 8px 0; }}
th {{ text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--grid); }}
th, td {{ padding: 4px 12px 4px 0; }}
td {{ border-bottom: 1px solid var(--grid); }}
.figures {{ text-align: right; font-variant-numeric: tabular-nums; }}
tr.baseline td {{ color: var(--soft); }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0; }}
dt {{ color: var(--soft); }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
@media print {{ figure, .card, section {{ break-inside: avoid; }} }}
{style(within="svg")}
"""
