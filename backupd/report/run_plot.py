"""What the settle gate saw during a run, for a terminal: penalty, the server's first writes, write latency, verdict.

Knows: which figures of a sample make a line, and where the copy began.
"""

from dataclasses import replace
from textwrap import wrap

from backupd.report.gate_words import gate_words
from backupd.report.lines import measured
from backupd.report.plot import PlotFrame, plot
from backupd.report.probe_combinations import Series
from backupd.vocabulary.records import RunDetails

_MIB = 1 << 20
_COPY = "copy"  # the stage of a sample
_LINES = (  # what is drawn, how high, and which value must be in sight
    ("penalty of writes (baseline ÷ this)", 10, 1.0, lambda sample: sample.ratio),
    ("the server's first writes, MiB/s", 6, 0.0, lambda sample: _in_mib(sample.cow_rate)),
    ("write latency of the origin, ms", 6, 0.0, lambda sample: sample.write_latency_ms),
)


def run_plots(run: RunDetails, *, width: int = 72, ascii_only: bool = False) -> str:
    """The samples of a run as plots over the same seconds, and what the gate made of them; empty without samples."""
    if not run.samples:
        return ""
    at = [sample.at_seconds for sample in run.samples]
    copying = [sample.at_seconds for sample in run.samples if sample.stage == _COPY]
    frame = PlotFrame(
        width=width,
        margin=5,
        span=(min(at), max(at)),
        mark_at=min(copying, default=None),
        mark="the copy started",
        ascii_only=ascii_only,
    )
    plots = [
        plot([Series("", (points,))], replace(frame, unit=unit, height=height, reach=(reach,)))
        for unit, height, reach, value in _LINES
        if (points := measured(run.samples, value))
    ]
    return "\n\n".join([*plots, *_verdict(run, width)] if plots else [])


def _verdict(run: RunDetails, width: int) -> list[str]:
    if run.verdict is None:
        return []
    return ["\n".join(wrap(f"gate {gate_words(run.verdict)}", max(width, 1), subsequent_indent="  "))]


def _in_mib(count: float | None) -> float | None:
    return None if count is None else count / _MIB
