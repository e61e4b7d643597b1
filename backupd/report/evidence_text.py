"""An auditor's evidence in words: for a terminal, and the sentences that every form of it has.

Knows: the words of a row, and how a reader checks the signature.
"""

from collections.abc import Iterator, Sequence

from backupd.host.ssh_signature import PRINCIPAL, DocumentKey, check_command
from backupd.report.evidence import Evidence, EvidenceKind, EvidenceRow
from backupd.report.words import columns, duration, instant, too_long
from backupd.vocabulary.escaping import indented
from backupd.vocabulary.records import Check

NOT_CONFIGURED = (
    "Not signed: no key is configured ([evidence] signing_key). Whoever can write this document can change it, and"
    " it would not show."
)
PRINTED = (
    "Not signed: only a file has a signature, where a key is configured ([evidence] signing_key). --output FILE, --html"
    " FILE and --csv FILE write one."
)
HEAD = ("AT (UTC)", "WHAT", "JOB", "RUN", "COPIES", "BY", "TOOK", "OUTCOME")
NOT_KNOWN = "not known"
HEADINGS = {
    EvidenceKind.BACKUP: "Backups",
    EvidenceKind.VERIFICATION: "Verifications",
    EvidenceKind.DRILL: "Drills",
    EvidenceKind.RESTORE: "Restores",
    EvidenceKind.CLONE: "Clones",
    EvidenceKind.COPY: "Copies to another target",
    EvidenceKind.MISSED: "Missed slots",
}


def signature_lines(key: DocumentKey | None, document: str | None) -> tuple[str, ...]:
    """Whether a document of this name is signed, and how that is checked; None: it is printed."""
    if document is None:
        return (PRINTED,)
    if key is None:
        return (NOT_CONFIGURED,)
    return (
        f"Signed by the key {key.fingerprint}; the signature is {document}.sig, beside this document.",
        f"To check it, write one line into a file allowed_signers: {PRINCIPAL} {key.public}",
        "Get this key from the host's administrator, not from here: whoever can alter this document can alter the key.",
        f"Then type: {check_command(document)}",
    )


def evidence_text(evidence: Evidence, signature: Sequence[str]) -> str:
    """The summary, what is not known, the verdict on the audit chain, each row, and the signature."""
    parts = [title(evidence), f"as of {instant(evidence.at)}", "", *summary(evidence)]
    parts += _section("not known:", evidence.unknown)
    parts += _section("the audit chain:", evidence.chain)
    if evidence.rows:
        parts += ["", columns([HEAD, *map(_line, evidence.rows)], right=(6,))]
        parts += _section(
            "remarks:", [f"{_name(row)}: {'; '.join(said)}" for row in evidence.rows if (said := remarks(row))]
        )
    parts += _section("signature:", signature)
    return "\n".join(parts)


def title(evidence: Evidence) -> str:
    """Of what it is the evidence."""
    job = f"job {evidence.job} of " if evidence.job else ""
    until = "" if evidence.until is None else f" until {instant(evidence.until)}"
    return f"Evidence of the backups of {job}{evidence.machine} since {instant(evidence.since)}{until}"


def summary(evidence: Evidence) -> Iterator[str]:
    """How many of each kind there were, and what became of them."""
    for kind, heading in HEADINGS.items():
        rows = [row for row in evidence.rows if row.kind is kind]
        yield ", ".join([f"{heading}: {len(rows)}", *tally(rows)])


def tally(rows: Sequence[EvidenceRow]) -> list[str]:
    """What of them was not well, or that all were."""
    failed = sum(row.good is False for row in rows)
    open_ = sum(row.good is None for row in rows)
    long = sum(row.too_long for row in rows)
    said = [f"{failed} FAILED"] if failed and rows[0].kind is not EvidenceKind.MISSED else []
    said += [f"{open_} without a known outcome"] if open_ else []
    said += [f"{long} longer than restore_within"] if long else []
    return said or (["all good"] if rows and not failed else [])


def at_words(row: EvidenceRow) -> str:
    """When, to the second."""
    return "cannot be read" if row.at is None else f"{row.at:%Y-%m-%d %H:%M:%S}"


def outcome_words(row: EvidenceRow) -> str:
    """What became of it, against `restore_within` and with what followed."""
    return "; ".join(words for words in (row.outcome, long_words(row), followed_words(row)) if words)


def long_words(row: EvidenceRow) -> str:
    """That it took longer than the job allows; empty where it did not."""
    return "" if row.seconds is None else too_long(row.seconds, row.within_seconds)


def followed_words(row: EvidenceRow) -> str:
    """The next one that went well; empty where this one did."""
    if row.followed is not None:
        return f"the next good one: {row.followed.run_id} at {row.followed.at:%Y-%m-%d %H:%M:%S}"
    return "" if row.good is not False else "none was good since"


def copies_words(row: EvidenceRow) -> tuple[str, ...]:
    """Each copy: where it is, when it was last read back, and what became of it."""
    if not row.copies:
        return row.targets
    return tuple(
        f"{copy.target}, read back {instant(copy.verified_at)}"
        + (f", BROKEN: {copy.broken}" if copy.broken else "")
        + (f", removed {instant(copy.removed_at)}: {copy.removed_because}" if copy.removed_at else "")
        for copy in row.copies
    )


def check_words(check: Check) -> str:
    """What a drill asked, and what it found."""
    return f"{check.name}: {check.found}" if check.ok else f"{check.name} FAILED: {check.found}, not {check.expected}"


def remarks(row: EvidenceRow) -> tuple[str, ...]:
    """What a line has no room for, a drill's checks among it."""
    where = () if not row.copies else copies_words(row)
    return (*map(check_words, row.checks), *where, *row.remarks)


def operator_words(row: EvidenceRow) -> str:
    """Who did it; nobody did what was missed."""
    return "-" if row.kind is EvidenceKind.MISSED else row.operator or NOT_KNOWN


def _line(row: EvidenceRow) -> tuple[str, ...]:
    return (
        *(at_words(row), row.kind.value, row.job or NOT_KNOWN, row.run_id or "-", ", ".join(row.targets) or "-"),
        *(operator_words(row), duration(row.seconds), outcome_words(row)),
    )


def _name(row: EvidenceRow) -> str:
    return f"{at_words(row)} {row.kind.value} {row.run_id or row.job}"


def _section(head: str, lines: Sequence[str]) -> list[str]:
    return ["", head, *(f"  {indented(line)}" for line in lines)] if lines else []
