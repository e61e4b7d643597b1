"""Probes for a terminal: one in full, with its curves; many, a line each.

Knows: the order in which it is told.
"""

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from backupd.report.plot import PlotFrame, plot
from backupd.report.probe_combinations import is_of_writes, labels, of_row, penalty_series, whose_writes
from backupd.report.probe_table import WIDTH, table
from backupd.report.tuning_text import tuning_text
from backupd.report.words import columns, duration, instant, ratio, size
from backupd.vocabulary.gauges import Stage
from backupd.vocabulary.probes import Curve, Measurement, ProbeRecord

_TOGETHER = 4  # series in one plot; with more nobody can follow one


def probe_text(probe: ProbeRecord, *, width: int = 72, ascii_only: bool = False) -> str:
    """Everything of one probe: when, what became of it, its table, and its curves with the threshold in them."""
    head = [("probe:", probe.run_id), ("status:", probe.status.value), ("started:", instant(probe.started_at))]
    if probe.job is not None:
        head.insert(1, ("job:", probe.job))
    if probe.seconds is not None:
        head.append(("took:", duration(probe.seconds)))
    if probe.error is not None:
        head.append(("error:", probe.error.message))
        head += [("hint:", probe.error.hint)] if probe.error.hint else []
    parts = [columns(head)]
    if probe.measurement is not None:
        drawn = curve_plots(
            probe.measurement.curves, threshold=probe.measurement.settings.threshold, width=width, ascii_only=ascii_only
        )
        tuned = probe.measurement.tuning
        parts += [table(probe.measurement), drawn, "" if tuned is None else tuning_text(tuned)]
    return "\n\n".join(part for part in parts if part)


def curve_plots(
    curves: Sequence[Curve], *, threshold: float | None = None, width: int = 72, ascii_only: bool = False
) -> str:
    """Penalty over time, a plot per mode, and why each curve ended; empty without curves."""
    texts = []
    for mode, group in groupby(sorted(curves, key=lambda curve: curve.mode), key=lambda curve: curve.mode):
        of_mode = list(group)
        series = penalty_series(of_mode)
        for i in range(0, len(series), _TOGETHER):
            unit = f"penalty of {whose_writes(mode)} (baseline ÷ this)"
            frame = PlotFrame(unit, width=width, reach=(1.0,), span=(0.0,), threshold=threshold, ascii_only=ascii_only)
            texts.append(plot(series[i : i + _TOGETHER], frame))
        texts.append("\n".join(wrap(_ends(of_mode), min(width, WIDTH), subsequent_indent="  ")))
    return "\n\n".join(texts)


def outcomes(measurement: Measurement) -> list[tuple[str, float | None, float | None]]:
    """Of each combination that wrote with a snapshot: its name, the penalty at first, and the one that stayed."""
    rows = [row for row in measurement.rows if is_of_writes(row.mode) and row.phase in (Stage.FIRST, Stage.SETTLED)]
    found = {(of_row(row), row.phase): row.penalty for row in rows}
    return [
        (name, found.get((combination, Stage.FIRST)), found.get((combination, Stage.SETTLED)))
        for combination, name in labels(map(of_row, rows)).items()
    ]


def probes_table(records: Sequence[ProbeRecord]) -> str:
    """Probes, a line each, in the order given: for each mode the penalty at first and the one that stayed.

    Where a mode was measured in several ways, the figures are those of its first rows.
    """
    head = ("RUN", "VOLUME", "JOB", "STATUS", "STARTED (UTC)", "CHUNK", "PENALTY")
    return columns([head, *(_probes_row(probe) for probe in records)])


def _probes_row(probe: ProbeRecord) -> tuple[str, ...]:
    found = probe.measurement
    return (
        probe.run_id,
        found.volume.name if found else "-",
        probe.job or "-",
        probe.status.value,
        f"{probe.started_at:%Y-%m-%d %H:%M}",
        size(found.settings.chunk_size) if found else "-",
        (_penalties(found) if found else "") or "-",
    )


def _penalties(measurement: Measurement) -> str:
    by_mode: dict[str, str] = {}
    for name, first, settled in outcomes(measurement):
        by_mode.setdefault(name.partition(",")[0], f"{ratio(first)} to {ratio(settled)}")
    return ", ".join(f"{mode} {change}" for mode, change in by_mode.items())


def _ends(curves: Sequence[Curve]) -> str:
    """Why they ended, as often as they did so."""
    reasons = [curve.reason.value for curve in curves]
    if len(set(reasons)) == 1:
        return f"ended: {reasons[0]}"
    return "ended: " + ", ".join(f"{reason} ({_times(reasons.count(reason))})" for reason in dict.fromkeys(reasons))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
