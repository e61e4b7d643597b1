"""What of an outcome breaks a promise: a pure judgement over what was seen in the machine.

Knows: the promises that hold whatever fails. Refuses to know how the fault came about, and believes neither the exit
status nor the catalogue: what both call success has been read back, by `backupd verify`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from backupd.vocabulary.errors import ExitStatus

TOLERANCE_SECONDS = 0.1  # of a lock's budget: a beat of the writers, and its own time
GOOD = frozenset({"success", "attention"})  # of a run's row
_LVM = re.compile(r"(lv|vg|pv)[a-z]+|lvm|dmsetup|mdadm")
_REPORTS = frozenset({"lvs", "vgs", "pvs", "version", "fullreport", "info", "status", "table"})  # they change nothing
_STATUSES = frozenset(status.value for status in ExitStatus) - {ExitStatus.INTERNAL.value}

_AGREE = frozenset({(ExitStatus.OK, "success"), (ExitStatus.ATTENTION, "attention")})

Things = Mapping[str, frozenset[str]]  # by kind
Copy = tuple[str, str]  # a run's id, a target


class Kind(StrEnum):
    """The promise that was broken."""

    LOCK = "the lock outlived its budget"
    STALL = "writers stalled for longer than a lock may be waited for and held"
    LEFT = "something is left"
    FOREIGN = "something foreign was touched"
    FALSE = "a false success"
    LOST = "an acknowledged backup was lost"
    SENTENCE = "a failure without its sentence, hint or exit status"
    KILLED = "LVM was killed while it changed something"
    ENDLESS = "the command did not end"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, and how it showed."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int | None  # None: by a signal
    errors: str  # its stderr
    seconds: float
    in_time: bool = True  # else it was ended by us


@dataclass(frozen=True, slots=True)
class Row:
    """A run as the catalogue has it."""

    run_id: str
    job: str
    status: str
    copies: frozenset[str] = frozenset()  # targets that have it, as the catalogue says
    hint: str | None = None  # of its error; None where it has no error


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that was seen of one fault."""

    command: str
    ended: Ended
    recovered: Ended  # the one `recover` after it
    before: Things = field(default_factory=dict)  # what a run can leave
    by_itself: Things | None = None  # before `recover`, where the command ended by itself and said that all is released
    after: Things = field(default_factory=dict)
    foreign_before: Mapping[str, str] = field(default_factory=dict)  # by name, with what shows a change
    foreign_after: Mapping[str, str] = field(default_factory=dict)
    lock_seconds: float | None = None  # from the grant to the first write that began after it and was acknowledged
    noise_seconds: float = 0.0  # how late such a write was without any lock, at most, just before
    budget_seconds: float = 0.0
    stall_seconds: float = 0.0  # the longest that a writer waited while the command was at work
    most_stall_seconds: float | None = None  # what a lock may be waited for and held; None: it is not looked at
    killed: tuple[tuple[str, ...], ...] = ()  # programs that were killed, but by the fault itself: their words
    run_id: str | None = None  # of a command that takes a backup
    rows: Mapping[str, Row] = field(default_factory=dict)
    acknowledged: frozenset[Copy] = frozenset()  # told as good before, and not to be removed by this command
    whole: Mapping[Copy, bool] = field(default_factory=dict)  # what was read back
    lacking: Mapping[Copy, str] = field(default_factory=dict)  # what their targets lack of copies, by what lies there
    archive: str = ""  # what is wrong with the binlog's, once it has gone on


def violations(seen: Observed) -> tuple[Violation, ...]:
    """Every promise that this outcome breaks; none where all hold."""
    return (
        *_lock(seen),
        *_left(seen),
        *_foreign(seen),
        *_false(seen),
        *_lost(seen),
        *_sentence(seen.command, seen.ended),
        *_sentence("recover", seen.recovered),
        *_hints(seen),
        *_killed(seen),
        *_endless(seen),
    )


def _lock(seen: Observed) -> Iterator[Violation]:
    allowed = seen.budget_seconds + TOLERANCE_SECONDS + seen.noise_seconds
    if seen.lock_seconds is not None and seen.lock_seconds > allowed:
        text = f"writers waited for {seen.lock_seconds:.2f} s after the lock was granted; {seen.budget_seconds:g} s"
        yield Violation(Kind.LOCK, f"{text} are its budget")
    if seen.most_stall_seconds is None:
        return
    most = seen.most_stall_seconds + TOLERANCE_SECONDS + seen.noise_seconds
    if seen.stall_seconds > most:
        yield Violation(Kind.STALL, f"a writer waited for {seen.stall_seconds:.2f} s; {most:.2f} s are the most")


def _left(seen: Observed) -> Iterator[Violation]:
    for since, things in (
        (f"by {seen.command}, which says nothing of it", seen.by_itself),
        ("after recover", seen.after),
    ):
        for kind, found in sorted((things or {}).items()):
            more = sorted(found - seen.before.get(kind, frozenset()))
            if more:
                yield Violation(Kind.LEFT, f"{since}: {kind}: {', '.join(more[:5])}")
    if seen.recovered.in_time and seen.recovered.status != ExitStatus.OK:
        yield Violation(Kind.LEFT, f"recover ended with {seen.recovered.status}: {_last(seen.recovered.errors)}")


def _foreign(seen: Observed) -> Iterator[Violation]:
    for name, was in sorted(seen.foreign_before.items()):
        found = seen.foreign_after.get(name)
        if found != was:
            yield Violation(Kind.FOREIGN, f"{name}: {'is gone' if found is None else f'was {was}, is {found}'}")


def _false(seen: Observed) -> Iterator[Violation]:
    for row in seen.rows.values():
        for target in sorted(row.copies):
            if seen.whole.get((row.run_id, target)) is False:
                yield Violation(Kind.FALSE, f"{row.run_id} on {target} is {row.status}, and fails to verify")
    if seen.run_id is None or seen.ended.status is None:
        return
    taken = seen.rows.get(seen.run_id)
    said = seen.ended.status in (ExitStatus.OK, ExitStatus.ATTENTION)
    good = taken is not None and taken.status in GOOD
    if said and not (good and taken is not None and taken.copies):
        yield Violation(Kind.FALSE, f"exit status {seen.ended.status}, and the catalogue has {taken}")
    elif good and taken is not None and (seen.ended.status, taken.status) not in _AGREE:
        yield Violation(Kind.FALSE, f"exit status {seen.ended.status}, and the catalogue says {taken.status}")


def _lost(seen: Observed) -> Iterator[Violation]:
    for run_id, target in sorted(seen.acknowledged):
        row = seen.rows.get(run_id)
        if row is None or row.status not in GOOD or target not in row.copies:
            yield Violation(Kind.LOST, f"{run_id} on {target} was good, and the catalogue has {row}")
        elif seen.whole.get((run_id, target)) is False:
            yield Violation(Kind.LOST, f"{run_id} on {target} was good, and fails to verify")
        elif (run_id, target) in seen.lacking:
            yield Violation(Kind.LOST, f"{run_id} on {target} was good, and {seen.lacking[run_id, target]}")
    if seen.archive:
        yield Violation(Kind.LOST, f"the binlog's archive: {seen.archive}")


def _sentence(command: str, ended: Ended) -> Iterator[Violation]:
    if "Traceback (most recent call last)" in ended.errors:
        yield Violation(Kind.SENTENCE, f"{command}: {_last(ended.errors)}")
    if ended.status in (None, ExitStatus.OK):
        return
    if ended.status not in _STATUSES:
        yield Violation(Kind.SENTENCE, f"{command} ended with status {ended.status}: {_last(ended.errors)}")
        return
    lines = ended.errors.splitlines()
    if ended.status == ExitStatus.ATTENTION:
        if not any(line.startswith("attention: ") for line in lines):
            yield Violation(Kind.SENTENCE, f"{command} ended with status 3 and says nothing of it")
        return
    for sign in ("error: ", "hint: "):
        if not any(line.startswith(sign) and line != sign for line in lines):
            yield Violation(Kind.SENTENCE, f"{command}, status {ended.status}, has no {sign}{_last(ended.errors)}")


def _hints(seen: Observed) -> Iterator[Violation]:
    row = seen.rows.get(seen.run_id or "")
    if row is not None and row.hint == "":
        yield Violation(Kind.SENTENCE, f"the error of run {row.run_id} has no hint")


def _killed(seen: Observed) -> Iterator[Violation]:
    for words in seen.killed:
        if changes_volumes(words):
            yield Violation(Kind.KILLED, " ".join(words))


def changes_volumes(words: tuple[str, ...]) -> bool:
    """Whether a program is one of LVM's or device-mapper's that may be in the middle of a suspend."""
    names = [PurePath(word).name for word in words if not word.startswith("-")]
    begin = next((number for number, name in enumerate(names) if _LVM.fullmatch(name)), None)
    return begin is not None and _REPORTS.isdisjoint(names[begin : begin + 2])


def _endless(seen: Observed) -> Iterator[Violation]:
    for command, ended in ((seen.command, seen.ended), ("recover", seen.recovered)):
        if not ended.in_time:
            yield Violation(Kind.ENDLESS, f"{command} had not ended after {ended.seconds:.0f} s: {_last(ended.errors)}")


def _last(errors: str) -> str:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    return " | ".join(lines[-2:])[-400:] or "(nothing said)"
