"""What an auditor asks for: each backup, verification, drill, restore, clone and copy, and what followed a failure.

Knows: how the catalogue's runs and the rows of its audit chain become one list, and what neither of them can know. What
they say is shown as they say it: whether the chain can be believed, `operations.upkeep.audit` judges.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from backupd.catalogue.audit import UNREADABLE, AuditEntry, Event
from backupd.report.words import duration, instant, many
from backupd.targets.names import proof_name
from backupd.vocabulary.records import GOOD, Check, Drill, RunDetails, RunKind, RunStatus, lasted
from backupd.vocabulary.storage import Backup

_BEYOND = 2**63
_NO_END = "no end recorded"  # it was killed, or goes on


class EvidenceKind(StrEnum):
    """What was done."""

    BACKUP = "backup"
    VERIFICATION = "verification"
    DRILL = "drill"
    RESTORE = "restore"
    CLONE = "clone"
    COPY = "copy"  # from one target to another
    MISSED = "missed"  # a slot of a schedule in which nothing was done


_DEEDS = {
    Event.RESTORE_STARTED: (EvidenceKind.RESTORE, Event.RESTORE_ENDED),
    Event.CLONE_STARTED: (EvidenceKind.CLONE, Event.CLONE_ENDED),
}
_AFTER = {EvidenceKind.VERIFICATION: EvidenceKind.BACKUP}  # what makes good for it, where that is not one of its kind
_MISSED = {kind.value: kind for kind in (EvidenceKind.BACKUP, EvidenceKind.DRILL)} | {
    "verify": EvidenceKind.VERIFICATION
}


@dataclass(frozen=True, slots=True)
class Followed:
    """The next one that went well, after one that did not."""

    run_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One thing that was done, or should have been."""

    kind: EvidenceKind
    at: datetime | None  # when it began; when a drill or a verification ended; None: its audit row cannot be read
    job: str  # empty: not known, as is `machine`
    run_id: str  # empty: none
    machine: str
    outcome: str
    good: bool | None  # None: that is not known
    operator: str = ""  # empty: not known
    seconds: float | None = None
    within_seconds: float | None = None  # the job's `restore_within`, where this is to be compared with it
    copies: tuple[Backup, ...] = ()  # of a backup
    targets: tuple[str, ...] = ()  # that the copies are on; of a drill, a restore and a clone those that were read
    checks: tuple[Check, ...] = ()  # of a drill
    remarks: tuple[str, ...] = ()
    activity: EvidenceKind | None = None  # of a slot that was missed
    followed: Followed | None = None

    @property
    def too_long(self) -> bool:
        """It took longer than the job allows."""
        return self.seconds is not None and self.within_seconds is not None and self.seconds > self.within_seconds


@dataclass(frozen=True, slots=True)
class Evidence:
    """One document."""

    machine: str
    job: str | None
    since: datetime
    until: datetime | None
    at: datetime
    rows: tuple[EvidenceRow, ...]  # the oldest first; those whose instant cannot be read come before all others
    unknown: tuple[str, ...]  # what the catalogue cannot know of that time, in sentences
    chain_sound: bool
    chain: tuple[str, ...]  # what the check of the audit chain says, line by line


@dataclass(frozen=True, slots=True)
class EvidenceSources:
    """Of what the rows are made."""

    machine: str  # this one's name
    since: datetime
    runs: Sequence[RunDetails]  # all of which anything is told since
    entries: Sequence[AuditEntry]  # as `audit.KeptRows` keeps them, the oldest first
    restore_within: Mapping[str, float]  # seconds, by job of this machine


def evidence_rows(sources: EvidenceSources, *, job: str | None, until: datetime | None) -> tuple[EvidenceRow, ...]:
    """Everything since, before `until`, of this job; what is not known to be of another job or time is there, too."""
    found = sorted(_rows(sources), key=lambda row: (row.at or UNREADABLE, row.run_id, row.kind))
    return tuple(
        row
        for row in _with_what_followed(found)
        if job in (None, row.job) or not row.job
        if row.at is None or (sources.since <= row.at and (until is None or row.at < until))
    )


def not_known(sources: EvidenceSources) -> Iterator[str]:
    """What may have been done since, and no row can tell of it: in sentences."""
    instants = [entry.at for entry in sources.entries if entry.at != UNREADABLE]
    if not instants:
        yield "The audit chain has no row: of verifications, restores, clones and missed slots nothing is known."
    elif instants[0] > sources.since:
        yield (
            f"The audit chain begins on {instant(instants[0])}. What was done before then is not known, but for the"
            f" backups and drills that are listed."
        )
    if unread := len(sources.entries) - len(instants):
        yield f"{many(unread, 'row')} of the audit chain cannot be parsed: what they recorded is unknown."
    yield from _rebuilt(sources)


def _rebuilt(sources: EvidenceSources) -> Iterator[str]:
    """What a backup's manifest does not tell, and a catalogue that was made of manifests has therefore lost."""
    machines = {run.run_id: run.machine for run in sources.runs}
    imported: dict[str, list[datetime]] = defaultdict(list)
    for entry in sources.entries:
        if entry.event == Event.IMPORTED and sources.since <= entry.at:
            imported[machines.get(entry.subject, "")].append(entry.at)
    for machine, instants in sorted(imported.items()):
        whose = f"of machine {machine}" if machine else "of a machine that is not known"
        yield (
            f"The catalogue was rebuilt on {instant(max(instants))}: {many(len(instants), 'backup')} {whose} came from"
            f" what is on a target. Of the time before then, backups on the targets are listed, with the drills whose"
            f" results lie beside them; backups that failed or were removed, later verifications, copies, restores,"
            f" clones and missed slots are not known, unless they are listed, nor is who took those backups."
        )


def _rows(sources: EvidenceSources) -> Iterator[EvidenceRow]:
    """Of every job and time."""
    told: dict[str, list[AuditEntry]] = defaultdict(list)
    drilled: dict[str, list[AuditEntry]] = defaultdict(list)
    for entry in sources.entries:
        told[entry.event].append(entry)
        if entry.event == Event.DRILLED:
            drilled[entry.subject].append(entry)
    began, ended = ({entry.subject: entry for entry in told[event]} for event in (Event.RUN_STARTED, Event.RUN_ENDED))
    runs = {run.run_id: run for run in sources.runs}
    for run in sources.runs:
        yield _backup(run, began.get(run.run_id), ended.get(run.run_id))
        yield from _drills(run, drilled[run.run_id], _within(sources, run), imported=run.run_id not in began)
    for first, (kind, last) in _DEEDS.items():
        yield from _deeds(kind, told[first], told[last], sources, runs)
    for entry in (*told[Event.VERIFIED], *told[Event.FOUND_BROKEN]):
        yield _verified(_blank(EvidenceKind.VERIFICATION, entry, runs), entry)
    for entry in told[Event.COPIED]:
        yield _copied(_blank(EvidenceKind.COPY, entry, runs), entry)
    for entry in told[Event.MISSED]:
        if (activity := _MISSED.get(_word(entry, "activity"))) is not None:
            yield _missed(entry, activity, sources.machine)
    for entry in told[Event.RUN_STARTED]:
        if entry.subject not in runs and entry.at >= sources.since and _word(entry, "kind") == RunKind.BACKUP:
            gone = replace(_blank(EvidenceKind.BACKUP, entry, runs), job=_word(entry, "job"))
            yield replace(gone, outcome="not in the catalogue any more", remarks=("its row was removed",))


def _backup(run: RunDetails, began: AuditEntry | None, ended: AuditEntry | None) -> EvidenceRow:
    """As its row says; where the chain has another end of it, that is told, and counts."""
    said = () if run.error is None else (run.error.message,)
    good = None if run.status is RunStatus.RUNNING else run.status in GOOD
    chained = "" if ended is None else _word(ended, "status")
    if chained and (chained in GOOD) != bool(good):
        said, good = (f"the audit chain has it as {chained}, the catalogue as {run.status}", *said), False
    return EvidenceRow(
        EvidenceKind.BACKUP,
        *(run.started_at, run.job, run.run_id, run.machine, run.status.value, good),
        operator="" if began is None else _operator(began),
        seconds=run.seconds,
        copies=run.backups,
        targets=tuple(backup.target for backup in run.backups),
        remarks=(*said, *run.attention),
    )


def _drills(
    run: RunDetails, entries: Sequence[AuditEntry], within: float | None, *, imported: bool
) -> Iterator[EvidenceRow]:
    """Those of the catalogue with who did them by the chain; both from the newest, for older ones may be imported.

    What one of them has and the other has not is told.
    """
    left = list(entries)
    blank = EvidenceRow(EvidenceKind.DRILL, None, run.job, run.run_id, run.machine, "", None)
    for drill in reversed(run.drills):
        row = _judged(blank, ok=drill.ok, undecided=drill.undecided)
        row = replace(row, at=drill.at, seconds=drill.seconds, checks=drill.checks)
        row = replace(row, within_seconds=within) if drill.ok else row
        row = replace(row, remarks=(drill.to_moment, *row.remarks)) if drill.moment is not None else row
        if (entry := _entry_of(drill, left)) is not None:
            left.remove(entry)
            row = _as_chained(row, entry)
        elif not imported:
            row = replace(row, remarks=(*row.remarks, "the audit chain has no record of it"))
        yield row
    for entry in left:
        row = _judged(blank, ok=entry.detail.get("ok") is True, undecided=_word(entry, "undecided"))
        said = (f"to {moment}",) if (moment := _word(entry, "moment")) else ()
        row = _as_chained(replace(row, at=_at(entry), remarks=(*said, *row.remarks)), entry)
        yield replace(row, remarks=(*row.remarks, "the catalogue has no such result any more"))


def _entry_of(drill: Drill, entries: Sequence[AuditEntry]) -> AuditEntry | None:
    """The newest of these rows that tells the same: of its proof, or of a drill that was done here."""
    same = [one for one in entries if (one.detail.get("ok"), _word(one, "undecided")) == (drill.ok, drill.undecided)]
    proofs = [one for one in same if _word(one, "proof") == proof_name(drill.at)]
    return next(reversed(proofs or [one for one in same if not _word(one, "proof")]), None)


def _as_chained(row: EvidenceRow, entry: AuditEntry) -> EvidenceRow:
    """With who did it and the copies that were read; of one whose proof was taken in, with that and who took it in."""
    who, proof = _operator(entry), _word(entry, "proof")
    if not proof:
        return replace(row, operator=who, targets=_words(entry, "targets"))
    targets = tuple(filter(None, [_word(entry, "target")]))
    if _word(entry, "by") == row.machine:  # its own: `catalogue rebuild` found it, and nobody knows who did it
        said = f"from proof {proof}" + (f"; taken in by {who}" if who else "")
        return replace(row, targets=targets, remarks=(*row.remarks, said))
    host = f"proof host {name}" if (name := _word(entry, "by")) else "a proof host"
    said = f"proof {proof}, by {host}" + (f"; taken in by {who}" if who else "")
    return replace(row, operator=host, targets=targets, remarks=(*row.remarks, said))


def _judged(blank: EvidenceRow, *, ok: bool, undecided: str) -> EvidenceRow:
    if undecided:
        return replace(blank, outcome="undecided", remarks=(undecided,))
    return replace(blank, outcome="proven" if ok else "failed", good=ok)


def _deeds(
    kind: EvidenceKind,
    started: Sequence[AuditEntry],
    ended: Sequence[AuditEntry],
    sources: EvidenceSources,
    runs: Mapping[str, RunDetails],
) -> Iterator[EvidenceRow]:
    """Restores or clones: what began with its end, and an end whose beginning could not be written."""
    ends: dict[tuple[str, str], list[AuditEntry]] = defaultdict(list)
    for entry in ended:
        ends[entry.subject, _word(entry, "attempt")].append(entry)
    unfinished: set[tuple[str, str]] = set()  # runs, and where to
    for began in started:
        attempt = _word(began, "attempt")
        end = ends[began.subject, attempt].pop() if attempt and ends[began.subject, attempt] else None
        row = replace(_blank(kind, began, runs), remarks=_asked(began))
        row = replace(row, outcome=_NO_END) if end is None else _ended(row, began.at, end)
        place = (began.subject, _word(began, "to"))
        run = runs.get(began.subject)
        if kind is EvidenceKind.RESTORE and run is not None and row.good and "tables" not in began.detail:
            if place in unfinished:
                after = "it came after one that did not finish, so its time is not that of a whole restore"
                row = replace(row, remarks=(*row.remarks, after))
            elif row.seconds is not None:
                row = replace(row, within_seconds=_within(sources, run))
        (unfinished.discard if row.good else unfinished.add)(place)
        yield row
    for end in (end for of_attempt in ends.values() for end in of_attempt):
        row = replace(_blank(kind, end, runs), remarks=("its beginning was not recorded", *_asked(end)))
        yield _ended(row, None, end)


def _ended(row: EvidenceRow, began: datetime | None, end: AuditEntry) -> EvidenceRow:
    outcome = _word(end, "outcome")
    seconds = _number(end.detail, "seconds")  # by a clock that nobody sets; earlier backupds did not tell
    if seconds is None and began is not None and UNREADABLE not in (began, end.at):
        seconds = lasted(began, end.at)
    said = [_scrubbed(end), _word(end, "error"), *_words(end, "attentions")]
    return replace(
        row,
        outcome=outcome or "not known",
        good=outcome in GOOD if outcome else None,
        targets=_words(end, "targets"),
        seconds=seconds,
        remarks=(*row.remarks, *(words for words in said if words)),
    )


def _asked(entry: AuditEntry) -> tuple[str, ...]:
    to, tables = _word(entry, "to"), _words(entry, "tables")
    scrub = (f"scrub {file} (sha256 {sha256})" for file, sha256 in _mapping(entry, "scrub").items())
    return (*([f"to {to}"] if to else []), *([f"only {', '.join(tables)}"] if tables else []), *scrub)


def _scrubbed(end: AuditEntry) -> str:
    """What ran on a copy before it was handed over; empty where nothing did."""
    found = _mapping(end, "scrubbed")
    statements, rows, seconds = (_number(found, key) for key in ("statements", "rows_affected", "seconds"))
    if statements is None or rows is None or seconds is None:
        return ""
    told = f"{many(int(statements), 'statement')} ran, {many(int(rows), 'row')} affected, in {duration(seconds)}"
    return f"scrubbed: {told}, on server {found.get('server_version', 'not known')}"


def _verified(row: EvidenceRow, entry: AuditEntry) -> EvidenceRow:
    broken = entry.event == Event.FOUND_BROKEN
    targets, reason = (_word(entry, "target"),), _word(entry, "reason")
    remarks = (reason,) if reason else ()
    return replace(row, outcome="broken" if broken else "good", good=not broken, targets=targets, remarks=remarks)


def _copied(row: EvidenceRow, entry: AuditEntry) -> EvidenceRow:
    readers = _words(entry, "recipients")
    remarks = (f"from target {_word(entry, 'source')}", *([f"encrypted for {', '.join(readers)}"] if readers else []))
    return replace(row, outcome="success", good=True, targets=(_word(entry, "target"),), remarks=remarks)


def _missed(entry: AuditEntry, activity: EvidenceKind, machine: str) -> EvidenceRow:
    said = (f"the {activity} that was due {_word(entry, 'due')}", _word(entry, "reason"))
    return EvidenceRow(
        EvidenceKind.MISSED,
        *(_at(entry), entry.subject, "", machine, "missed"),
        good=False,
        remarks=tuple(words for words in said if words),
        activity=activity,
    )


def _blank(kind: EvidenceKind, entry: AuditEntry, runs: Mapping[str, RunDetails]) -> EvidenceRow:
    """What every row of the chain tells, with no outcome."""
    run = runs.get(entry.subject)
    job, machine = ("", "") if run is None else (run.job, run.machine)
    return EvidenceRow(kind, _at(entry), job, entry.subject, machine, "", None, _operator(entry))


def _at(entry: AuditEntry) -> datetime | None:
    return None if entry.at == UNREADABLE else entry.at


def _within(sources: EvidenceSources, run: RunDetails) -> float | None:
    """Another machine's job of that name may be another."""
    return sources.restore_within.get(run.job) if run.machine == sources.machine else None


def _with_what_followed(found: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """The same rows; those that did not go well have the next one of their job and machine that did."""
    next_good: dict[tuple[EvidenceKind, str, str], Followed] = {}
    told: list[EvidenceRow] = []
    for row in reversed(found):
        after = row.activity or _AFTER.get(row.kind, row.kind)
        whose = (row.machine, row.job)
        told.append(row if row.good else replace(row, followed=next_good.get((after, *whose))))
        if row.good and row.at is not None:
            next_good[row.kind, *whose] = Followed(row.run_id, row.at)
    return told[::-1]


def _operator(entry: AuditEntry) -> str:
    name, uid = _word(entry, "operator"), entry.detail.get("uid")
    number = f"uid {uid}" if isinstance(uid, int) else ""
    return f"{name} ({number})" if name and number else name or number


def _word(entry: AuditEntry, key: str) -> str:
    """What a row has there, where it is a text; a row that somebody changed may have anything."""
    value: Any = entry.detail.get(key, "")
    return value if isinstance(value, str) else ""


def _mapping(entry: AuditEntry, key: str) -> Mapping[str, Any]:
    value: Any = entry.detail.get(key, {})
    return value if isinstance(value, dict) else {}


def _number(values: Mapping[str, Any], key: str) -> float | None:
    """As it is where somebody changed the row: a number that no row of ours has is none."""
    value = values.get(key)
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _BEYOND
    return value if known else None


def _words(entry: AuditEntry, key: str) -> tuple[str, ...]:
    value: Any = entry.detail.get(key, ())
    return tuple(map(str, value)) if isinstance(value, list) else ()
