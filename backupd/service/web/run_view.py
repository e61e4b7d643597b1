"""One run as a page shows it: how it gets on or what became of it, its phases, what it cost, its log.

Knows: the words for what the catalogue has, and what of it is worth a line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backupd.host.live_progress import Progress
from backupd.mysql import UNLOCKED
from backupd.policy.write_penalty import penalty_of
from backupd.report.bill_words import bill_words
from backupd.report.pace import pace_words
from backupd.report.run_svg import RunFigure, course_picture, courses
from backupd.report.timeline import PhaseSpan, spans
from backupd.report.words import duration, instant, ratio, share, size
from backupd.service.job_status import Running, remaining_seconds
from backupd.service.outlook import Live, MachineView
from backupd.service.site import Site
from backupd.vocabulary.penalty import GateOutcome, Reason
from backupd.vocabulary.records import Phase, RunDetails, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup

LOG_LINES = 200
_BAR = 1000.0  # width of the whole timeline, in its own units
_SLIVER = 4.0  # of which the shortest phase still has so many

_DOING = {
    Phase.PREFLIGHT: "checking server, volume and targets",
    Phase.BASELINE: "measuring the baseline of writes, without a snapshot",
    Phase.PREFLUSH: "waiting for the server to flush its dirty pages",
    Phase.LOCK_WAIT: "taking the snapshot under the lock",
    Phase.SETTLE: "waiting for the penalty to settle",
    Phase.COPY: "copying",
    Phase.RELEASE: "removing the snapshot",
    Phase.SEND: "sending the spooled data",
    Phase.VERIFY: "reading back the stored copy",
}
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
_BECAUSE = {
    Reason.SETTLED: "the penalty had settled",
    Reason.PLATEAU: "the penalty was no longer falling, or waiting would not pay off",
    Reason.MAX_WAIT: "the longest wait that the job allows was over, and the penalty had not settled",
    Reason.COW_SHORT: "the snapshot would have run out of room",
    Reason.LIMIT: "a limit of the job was exceeded",
    Reason.DISABLED: "the job has no gate",
    Reason.NO_DATA: "nothing could be measured",
    Reason.SETTLING: "the penalty had not settled yet",
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
    decision: str
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
        facts=tuple(_facts(run)),
        decision=decision(run),
        bars=_bars(spans(run.phases, now=_going_on(told, now))),
        plots=tuple(
            Plot(course.title, course.unit, course_picture(course), numbers(course))
            for course in courses(run.samples, threshold=job.settle.threshold if job is not None else None)
        ),
        copies=tuple(map(_copy, run.backups)),
        log=tuple(seen.logs.tail(run.run_id, lines=LOG_LINES)),
    )


def decision(run: RunDetails) -> str:
    """What the settle gate decided and why, as a sentence; empty where it decided nothing."""
    if run.verdict is None:
        return ""
    verdict = run.verdict
    did = "aborted the backup" if verdict.outcome is GateOutcome.GIVE_UP else "opened"
    after = f" after {duration(verdict.waited_seconds)}" if verdict.waited_seconds > 0 else " at once"
    detail = f" {verdict.detail[:1].upper()}{verdict.detail[1:]}." if verdict.detail else ""
    return f"The gate {did}{after}: {_BECAUSE[verdict.reason]}.{detail}"


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
    process = site.catalogue.process_of(run.run_id)
    alive = process is not None and live.born(process[0]) == process[1]
    return Running(run, alive, live.of(run.run_id) if alive else None)


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
        return Getting("at work", about, None, None)
    words = _DOING.get(told.phase, told.phase.value)
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


def _bars(found: tuple[PhaseSpan, ...]) -> tuple[Bar, ...]:
    """Every phase is seen, however short."""
    whole = max((span.end for span in found), default=0.0) or 1.0
    bars = []
    for span in found:
        width = max(_SLIVER, span.seconds / whole * _BAR)
        at = min(span.begin / whole * _BAR, _BAR - width)
        took = duration(span.seconds) + ("" if span.whole else " so far")
        bars.append(Bar(span.phase.value, _PHASES[span.phase], took, round(at, 1), round(width, 1), span.whole))
    return tuple(bars)


def _facts(run: RunDetails) -> list[tuple[str, str]]:
    """Name and words, in the order in which it happened."""
    facts = [("Job", f"{run.job or 'none'} on host {run.host or 'this one'}"), ("Started", _second(run.started_at))]
    if run.ended_at is not None:
        took = duration((run.ended_at - run.started_at).total_seconds())
        facts.append(("Ended", f"{_second(run.ended_at)}, after {took}"))
    if run.lock is not None:
        facts.append(("Lock", _lock(run)))
    facts += _position(run)
    if run.snapshot is not None:
        facts += _snapshot(run)
    penalty = penalty_of(run.samples)
    if penalty.initial_ratio is not None:
        facts.append(
            (
                "Write penalty",
                f"{ratio(penalty.initial_ratio)} at first, {ratio(penalty.settled_ratio)} before the copy",
            )
        )
    facts += [(name.capitalize(), words) for name, words in bill_words(run)]
    for stage in run.throughput:
        if stage.rate is not None:
            facts.append((f"Stage {stage.stage}", f"{size(stage.rate)}/s alone, {size(stage.bytes)}"))
    facts += [(f"Speed after {duration(change.at_seconds)}", pace_words(change)) for change in run.pace]
    if run.pin is not None:
        facts.append(("Pinned", f"{run.pin.note or 'without a note'}, since {instant(run.pin.at)}"))
    return facts


def _lock(run: RunDetails) -> str:
    lock = run.lock
    assert lock is not None
    if lock.strategy == UNLOCKED:
        return "none: the backup is what a power cut would have left"
    tries = f", {lock.tries} tries" if lock.tries > 1 else ""
    return (
        f"{lock.strategy}: waited {duration(lock.wait_seconds)}{tries}, held {duration(lock.hold_seconds)};"
        f" proof: {lock.proof}"
    )


def _offset(position: Position, *, derived: bool) -> str:
    """Of a backup without a lock only a drill can tell it."""
    if position.binlog_offset is None:
        return "; a drill finds the offset"
    return f", offset {position.binlog_offset}{', found by a drill' if derived else ''}"


def _position(run: RunDetails) -> list[tuple[str, str]]:
    position = run.position
    if position is None:
        return []
    facts = []
    if position.binlog_file is not None:
        facts.append(("Position", f"{position.binlog_file}{_offset(position, derived=run.derived)}"))
    if position.gtid:
        facts.append(("GTID", position.gtid))
    for channel in position.replicas:
        name = f" {channel.channel}" if channel.channel else ""
        facts.append((f"Replica{name}", f"{channel.source_log_file}, offset {channel.source_log_offset} of its source"))
    return facts


def _snapshot(run: RunDetails) -> list[tuple[str, str]]:
    facts = run.snapshot
    assert facts is not None
    layout = f"{facts.layout}, {facts.stripes} stripes" if facts.stripes > 1 else facts.layout.value
    room = f"pool {facts.pool}" if facts.pool else "COW area"
    peak = facts.cow_used_peak
    filled = f", at most {size(peak)} of it used ({share(peak / facts.cow_size)})" if peak and facts.cow_size else ""
    added = f" ({size(facts.cow_extended)} of it added while it filled)" if facts.cow_extended else ""
    return [
        ("Volume", f"{facts.volume} ({layout})"),
        ("Chunks", f"{size(facts.chunk_size)}: {facts.chunk_reason}" if facts.chunk_reason else size(facts.chunk_size)),
        ("Snapshot", f"{facts.name}, {room} {size(facts.cow_size)}{added}{filled}"),
        *([("Redo log", f"{size(facts.redo_left_out)} not stored")] if facts.redo_left_out else []),
    ]


def _copy(backup: Backup) -> Copy:
    if backup.removed_at is not None:
        state = f"removed {instant(backup.removed_at)}: {backup.removed_because or 'no reason was told'}"
    elif backup.broken:
        state = f"broken: {backup.broken}"
    elif backup.verified_at is not None:
        state = f"read back whole, {instant(backup.verified_at)}"
    else:
        state = "stored"
    return Copy(
        backup.target,
        backup.location,
        size(backup.bytes_stored),
        size(backup.bytes_read),
        backup.files,
        backup.sha256,
        state,
        backup.is_there,
    )


def _second(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
