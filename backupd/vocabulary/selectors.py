"""Which run a word of the command line means: an id, `latest`, `latest-good` or `as-of=TIME`; all but the first `:JOB`.

Knows: the grammar. Refuses to know which runs there are; and what `latest` is good for, the command decides.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backupd.vocabulary.errors import UsageError

_LATEST: Final = "latest"
_LATEST_GOOD: Final = "latest-good"
_AS_OF: Final = "as-of"
_FIGURES: Final = re.compile(r"[0-9]{1,2}([.,][0-9]+)?(Z|[+-][0-9]{2,4})?", re.ASCII)  # of a time, after its colon
_BINLOG: Final = "binlog"  # beside the backups of a job lies the folder of its binlog archive
RESERVED: Final = frozenset({_LATEST, _LATEST_GOOD, _AS_OF, _BINLOG})  # no run has one of these as its id


@dataclass(frozen=True, slots=True)
class Selector:
    """One run among many: that of an id, or the newest that fits."""

    run_id: str = ""  # or its beginning; of no meaning where something is `said`
    said: str = ""  # `latest`, `latest-good` or `as-of=TIME`, as it was typed; empty: an id is meant
    job: str | None = None  # None: the only one that there is
    good: bool = False  # only a run that left a whole copy
    by: datetime | None = None  # only one whose snapshot was taken then or earlier

    def of(self, job: str) -> str:
        """The same as a person types it for this job."""
        return f"{self.said}:{job}"


def parse_selector(text: str, *, now: datetime) -> Selector:
    """What was typed, as a value. Whatever is none of the words is an id or its beginning.

    Raises:
        UsageError: it begins as one of the words does, and goes on otherwise.
    """
    word, colon, job = text.partition(":")
    if word in (_LATEST, _LATEST_GOOD):
        if colon and not job:
            raise UsageError(f"{text} names no job", hint=f"write {word}:JOB, or only {word} where there is one job")
        return Selector(said=word, job=job or None, good=word == _LATEST_GOOD)
    if text.startswith(f"{_AS_OF}="):
        return _as_of(text.removeprefix(f"{_AS_OF}="), now)
    if text == _AS_OF or text.startswith((f"{_AS_OF}:", f"{_AS_OF} ")):
        raise UsageError(f"{text!r} is not a run", hint="write it as one word: as-of=TIME, or as-of=TIME:JOB")
    return Selector(run_id=text)


def _as_of(text: str, now: datetime) -> Selector:
    """TIME or TIME:JOB. Both may have digits at a colon: what can go on with a time's figures does.

    So only a job whose name is nothing but figures needs a time that ends in a letter: `2026-11-20T12:00Z:30`, `7d:30`.
    """
    from backupd.vocabulary.faults import BadValue  # most commands are told no time
    from backupd.vocabulary.instants import INSTANT_HINT, parse_instant

    time, colon, job = text.rpartition(":")
    if not colon or (time[-1:].isdecimal() and _FIGURES.fullmatch(job)):
        time, colon, job = text, "", ""
    try:
        by = parse_instant(time, now=now)
    except BadValue as bad:
        raise UsageError(
            f"{_AS_OF}={text}: {bad.fact}",
            hint=f"write {_AS_OF}=TIME or {_AS_OF}=TIME:JOB; TIME is {INSTANT_HINT}",
        ) from bad
    if colon and not job:
        raise UsageError(f"{_AS_OF}={text} names no job", hint=f"write {_AS_OF}={time}:JOB, or {_AS_OF}={time}")
    return Selector(said=f"{_AS_OF}={time}", job=job or None, good=True, by=by)
