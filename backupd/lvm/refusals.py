"""What a command on volumes or disks refused to do, as a sentence: what was wanted, the command's own words, a hint."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from backupd.host import process
from backupd.host.process import ChildLedger
from backupd.vocabulary.errors import CommandError, GroupBusy, SnapshotError

NO_REPORT = "LVM could not report"
LOOK = "see what LVM and the kernel wait for: `lvs -a`, `dmsetup info -c -o name,suspended`, dmesg"  # a hint
GROUP_HELD = "Can't get lock"
_SECONDS = 120.0


def refusal(sentence: str, *, hint: str = "") -> SnapshotError:
    """The error for this sentence, by the command's own words in it."""
    return (GroupBusy if GROUP_HELD in sentence else SnapshotError)(sentence, hint=hint)


@contextmanager
def explained(what: str, *, hint: str = "") -> Iterator[None]:
    """A CommandError in the block becomes a SnapshotError that begins with `what`; a hint of its own goes first."""
    try:
        yield
    except CommandError as error:
        raise refusal(f"{what}: {error.message}", hint=error.hint or hint) from error


def carry_out(argv: Sequence[str], *, what: str, hint: str, ledger: ChildLedger | None = None) -> None:
    """The command has done what it says; no signal cuts it short. `ledger` as of `process.run`.

    Raises:
        SnapshotError: it failed, or took more than two minutes; it begins with `what`.
    """
    with explained(what, hint=hint):
        process.run(argv, timeout_seconds=_SECONDS, must_finish=True, ledger=ledger)


def reporting() -> AbstractContextManager[None]:
    """For a block in which LVM is asked for a report: where it gives none, the error says so, and where to look."""
    return explained(NO_REPORT, hint=LOOK)
