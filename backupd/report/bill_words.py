"""What a backup cost its server, in words: the lock and its parts, and the bill.

Knows: how it is said, once for the terminal and the page.
"""

from backupd.mysql import UNLOCKED
from backupd.report.words import count, duration, share, size
from backupd.vocabulary.penalty import Bill, Counted, Losses
from backupd.vocabulary.records import Phase, RunDetails
from backupd.vocabulary.servers import LockReceipt, Preflush, PreflushEnd

_IDLE = 1.0  # transactions a second
_ENDED = {
    PreflushEnd.FEW: "",
    PreflushEnd.STEADY: ": the number stopped falling",
    PreflushEnd.LIMIT: ": lock.preflush_wait ran out",
}
_COUNTED = {Counted.LOGGED: "transactions", Counted.COMMITS: "commits", Counted.STATEMENTS: "writing statements"}


def bill_words(run: RunDetails) -> list[tuple[str, str]]:
    """Name and words of all that is known of it, the dearest first; nothing of a run that never asked for its lock."""
    bill = [] if run.bill is None else _bill(run.bill, copied=run.backups[0].bytes_read if run.backups else None)
    return [*_lost(run.losses), *_preflush(run.preflush), *_lock(run), *bill]


def _lost(losses: Losses | None) -> list[tuple[str, str]]:
    if losses is None:
        return []
    unit = _COUNTED[losses.counted]
    return [(f"{unit} lost", f"{_how_many(losses, unit)}, by the server's own counters{_rates(losses)}")]


def _how_many(losses: Losses, unit: str) -> str:
    if losses.rate_before < _IDLE:
        return f"none: the server did {losses.rate_before:.1f} {unit} a second"
    expected, noise = count(losses.expected), count(losses.noise)
    if not losses.lost:
        return f"none beyond the noise (± {noise} of {expected})"
    part = share(losses.lost / losses.expected)
    return f"about {count(losses.lost)} of {expected} ({part}), ± {noise}"


def _rates(losses: Losses) -> str:
    if losses.rate_before < _IDLE:
        return ""
    after = "" if losses.rate_after is None else f", {losses.rate_after:.0f} after"
    return f"; {losses.rate_before:.0f} a second before, {losses.done / losses.seconds:.0f} meanwhile{after}"


def _preflush(found: Preflush | None) -> list[tuple[str, str]]:
    """What the server had written before it stood still."""
    if found is None:
        return []
    pages = f"{count(found.pages_before)} dirty pages before the lock, {count(found.pages_after)} after"
    return [("pre-flush", f"{pages} {duration(found.seconds)}{_ENDED[found.ended]}")]


def _lock(run: RunDetails) -> list[tuple[str, str]]:
    """How long the server stood still, for what, and who waited."""
    lock = run.lock
    if lock is None or lock.strategy == UNLOCKED:
        return []
    return [("lock held for", _parts(lock, run.phases.get(Phase.SNAPSHOT))), *_stalled(lock)]


def _parts(lock: LockReceipt, snapshot_seconds: float | None) -> str:
    parts = {
        "reading the position": lock.position_seconds,
        "engine logs": lock.flush_seconds,
        "snapshot": snapshot_seconds or 0.0,
        "confirmation": lock.proof_seconds,
        "unlock": lock.unlock_seconds,
    }
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items())


def _stalled(lock: LockReceipt) -> list[tuple[str, str]]:
    if lock.stalled is None:
        return []
    return [("statements stalled", f"{lock.stalled or 'none'} when the lock ended")]


def _bill(bill: Bill, *, copied: int | None) -> list[tuple[str, str]]:
    facts = []
    if bill.penalty_seconds is not None:
        facts.append(("writes delayed by", f"{duration(bill.penalty_seconds)} of {duration(bill.seconds)}"))
    if bill.copied_on_write is not None:
        facts.append(("copied on write", size(bill.copied_on_write)))
    if bill.disk_seconds is not None:
        facts.append(("disk time", _disk_time(bill, copied=copied)))
    return facts


def _disk_time(bill: Bill, *, copied: int | None) -> str:
    """Whoever caused it: the kernel counts for everybody."""
    disks = f"{bill.disks} disk{'s' if bill.disks != 1 else ''} busy for {duration(bill.disk_seconds)}"
    if bill.disk_read_seconds is None:
        return disks
    each = f", {1000 * bill.disk_read_seconds / (copied / (1 << 20)):.1f} ms per MiB copied" if copied else ""
    return f"{disks}, reads took {duration(bill.disk_read_seconds)}{each}"
