"""An auditor's evidence as one HTML file: nothing is fetched, nothing runs; light, dark, on a phone and on paper.

Knows: what is on the page, and in which words; the template knows where.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.report.evidence import Evidence, EvidenceKind, EvidenceRow
from backupd.report.evidence_text import (
    HEADINGS,
    at_words,
    check_words,
    copies_words,
    followed_words,
    long_words,
    operator_words,
    tally,
    title,
)
from backupd.report.templating import report
from backupd.report.words import duration, instant


@dataclass(frozen=True, slots=True)
class _Line:
    """What the template shows of a row."""

    row: EvidenceRow
    at: str
    operator: str
    took: str
    long: str
    copies: Sequence[str]
    checks: Sequence[tuple[bool, str]]  # whether it is well, and its words
    followed: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the template shows of all rows of a kind."""

    heading: str
    count: int
    words: str
    bad: bool  # whether anything of it was not well
    lines: Sequence[_Line]


def evidence_page(evidence: Evidence, signature: Sequence[str]) -> str:
    """The whole page: the summary, what is not known, the verdict, a table for each kind, the signature."""
    return report(
        "evidence.html",
        title=title(evidence),
        subtitle=f"As of {instant(evidence.at)}. All times are UTC",
        kinds=[_kind(evidence, kind) for kind in HEADINGS],
        unknown=evidence.unknown,
        sound=evidence.chain_sound,
        chain=evidence.chain,
        signature=signature,
    )


def _kind(evidence: Evidence, kind: EvidenceKind) -> _Kind:
    rows = [row for row in evidence.rows if row.kind is kind]
    bad = any(row.good is False for row in rows)
    return _Kind(HEADINGS[kind], len(rows), ", ".join(tally(rows)) or "none", bad, list(map(_line, rows)))


def _line(row: EvidenceRow) -> _Line:
    return _Line(
        row=row,
        at=at_words(row),
        operator=operator_words(row),
        took=duration(row.seconds),
        long=long_words(row),
        copies=copies_words(row),
        checks=[(check.ok, check_words(check)) for check in row.checks],
        followed=followed_words(row),
    )
