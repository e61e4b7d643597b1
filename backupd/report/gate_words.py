"""What the settle gate decided, as one line for log, terminal and page: the result, when, and why."""

from backupd.report.words import duration
from backupd.vocabulary.penalty import GateOutcome, Verdict

_DID = {
    GateOutcome.START: "opened",
    GateOutcome.GIVE_UP: "aborted the backup",
    GateOutcome.WAIT: "was still waiting",
}


def gate_words(verdict: Verdict) -> str:
    """Such as `opened after 1.3 s (plateau): the copy takes about 12 s, waiting would not pay off`."""
    decided = f"{_DID[verdict.outcome]} after {duration(verdict.waited_seconds)} ({verdict.reason})"
    return f"{decided}: {verdict.detail}" if verdict.detail else decided
