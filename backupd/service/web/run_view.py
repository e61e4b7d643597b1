"""One run as a page shows it: how it gets on or what became of it, its phases, what it cost, its log.

Knows: the words for what the catalogue has, and what of it is worth a line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backupd.host.live_progress import Progress
from backupd.report.bill_words import bill_words
from backupd.report.pace import pace_words
from backupd.report.phase_words import doing
from backupd.report.run_facts import copy_state, course_facts, readers_words
from backupd.report.run_svg import RunFigure, course_picture, courses
from backupd.report.timeline import PhaseSpan, spans
from backupd.report.words import duration, instant, share, size
from backupd.service.job_status import Running, remaining_seconds
from backupd.service.machine_view import Live, MachineView
from backupd.service.site import Site
from backupd.vocabulary.records import Phase, RunDetails, RunStatus
from backupd.vocabulary.storage import Backup

LOG_LINES = 200
_BAR = 1000.0  # width of the whole timeline, in its own units
_SLIVER = 4.0  # of which the shortest phase still has so many

_PHASES = {
    Phase.PREFLIGHT: "preflight",
    Phase.BASELINE: "baseline",
    Phase.PREFLUSH: "flushing dirty pages",
    Phase.LOCK_WAIT: "waiting for the lock",
    Phase.LOCK_HOLD: "holding the lock",
    Phase.SNAPSHOT: "taking the snapshot",
    Phase.SETTLE: "settling",
    Phase.COPY: "copy",
    Phase.RELEASE: "release",
    Phase.SEND: "sending",
    Phase.VERIFY: "verification",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One phase in the timeline; places are in thousandths of the whole."""

    phase: str
    words: str
    took: str
    at: float
    width: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure over time: as a picture for everybody, and as numbers for a script."""

    title: str
    unit: str
    picture: str  # an `svg` element
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Getting:
    """How a live run gets on."""

    words: str  # what it is doing
    detail: str  # how far it is, how fast, and how long it may take
    share: float | None  # of the copy, 0 to 1; None: unknown, or no copy
    phase: Phase | None


@dataclass(frozen=True, slots=True)
class Copy:
    """One backup, on its target."""

    target: str
    location: str
    stored: str
    read: str
    files: int
    sha256: str
    state: str
    good: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """What the page of a run says."""

    run: RunDetails
    alive: bool
    getting: Getting | None  # None: it has ended, or its process is gone
    facts: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    plots: tuple[Plot, ...]
    copies: tuple[Copy, ...]
    log: tuple[str, ...]


def run_view(site: Site, seen: MachineView, run: RunDetails) -> RunView:
    """The run as it stands now.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    now, running = site.now(), running_now(site, seen.live, run)
    told = running.progress if running is not None else None
    job = site.configuration.jobs.get(run.job)
    return RunView(
        run=run,
        alive=running is not None and running.alive,
        getting=getting_on(running, last_good(site, run), now=now) if running is not None and running.alive else None,
        facts=facts(run),
        bars=phase_bars(spans(run.phases, now=_going_on(told, now))),
        plots=tuple(
            Plot(course.title, course.unit, course_picture(course), numbers(course))
            for course in courses(run.samples, threshold=job.settle.threshold if job is not None else None)
        ),
        copies=copies(run),
        log=tuple(seen.logs.tail(run.run_id, lines=LOG_LINES)),
    )


def numbers(course: RunFigure) -> dict[str, Any]:
    """What a script draws it from."""
    return {
        "title": course.title,
        "name": course.name,
        "format": "ratio" if course.suffix else "plain",
        "span": course.span,
        "x": [round(at, 2) for at, _ in course.points],
        "y": [round(value, 4) for _, value in course.points],
        "least": course.least,
        "level": course.level,
        "mark": course.copying_since,
    }


# --- a live run ------------------------------------------------------------------------------------------------------


def running_now(site: Site, live: Live, run: RunDetails) -> Running | None:
    """None: it has ended.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    if run.status is not RunStatus.RUNNING:
        return None
    return Running.of(run, site.catalogue.process_of(run.run_id), live)


def last_good(site: Site, run: RunDetails) -> RunDetails | None:
    """The newest good run of its job: what a live one is compared with.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    return site.catalogue.records([run.job], at=site.now())[run.job].last_good


def getting_on(running: Running, good: RunDetails | None, *, now: datetime) -> Getting:
    """How a live run gets on; `good` is the job's newest good one."""
    told = running.progress
    left = remaining_seconds(running, good, now=now)
    about = f"about {duration(left)} left" if left is not None else ""
    if told is None:
        return Getting("in progress", about, None, None)
    words = doing(told.phase)
    if told.phase not in (Phase.COPY, Phase.SEND) or not told.total:
        so_far = f"for {duration(max(0.0, now.timestamp() - told.since))}"
        return Getting(words, ", ".join(filter(None, (so_far, about))), None, told.phase)
    done = min(1.0, told.done / told.total)
    parts = (f"{share(done)}: {size(told.done)} of at most {size(told.total)}", _rate(told), about)
    return Getting(words, ", ".join(filter(None, parts)), done, told.phase)


def _rate(told: Progress) -> str:
    return f"{size(told.done / (told.at - told.since))}/s" if told.at > told.since and told.done else ""


def _going_on(told: Progress | None, now: datetime) -> tuple[Phase, float] | None:
    return None if told is None else (told.phase, max(0.0, now.timestamp() - told.since))


# --- what became of it -----------------------------------------------------------------------------------------------


def phase_bars(found: tuple[PhaseSpan, ...]) -> tuple[Bar, ...]:
    """Every phase is seen, however short."""
    whole = max((span.end for span in found), default=0.0) or 1.0
    bars = []
    for span in found:
        width = max(_SLIVER, span.seconds / whole * _BAR)
        at = min(span.begin / whole * _BAR, _BAR - width)
        took = duration(span.seconds) + ("" if span.whole else " so far")
        bars.append(Bar(span.phase.value, _PHASES[span.phase], took, round(at, 1), round(width, 1), span.whole))
    return tuple(bars)


def facts(run: RunDetails) -> tuple[tuple[str, str], ...]:
    """What the terminal says too, and how fast the copy was."""
    found = [(name[:1].upper() + name[1:], words) for name, words in (*course_facts(run), *bill_words(run))]
    for stage in run.throughput:
        if stage.rate is not None:
            found.append((f"Stage {stage.stage}", f"{size(stage.rate)}/s alone, {size(stage.bytes)}"))
    found += [(f"Speed after {duration(change.at_seconds)}", pace_words(change)) for change in run.pace]
    return tuple(found)


def copies(run: RunDetails) -> tuple[Copy, ...]:
    """Each backup, in the job's order."""
    return tuple(_copy(run, backup) for backup in run.backups)


def _copy(run: RunDetails, backup: Backup) -> Copy:
    read_back = f", {instant(backup.verified_at)}" if backup.is_there and backup.verified_at is not None else ""
    return Copy(
        backup.target,
        backup.location,
        size(backup.bytes_stored),
        size(backup.bytes_read),
        backup.files,
        backup.sha256,
        copy_state(backup) + read_back + readers_words(run, backup),
        backup.is_there,
    )
