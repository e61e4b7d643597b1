"""What a command on volumes or disks refused to do, as a sentence: what was wanted, the command's own words, a hint."""

from collections.abc import Iterator
from contextlib import contextmanager

from backupd.vocabulary.errors import CommandError, SnapshotError

NO_REPORT = "LVM could not report"


@contextmanager
def explained(what: str, *, hint: str = "") -> Iterator[None]:
    """A CommandError in the block becomes a SnapshotError that begins with `what`; a hint of its own goes first."""
    try:
        yield
    except CommandError as error:
        raise SnapshotError(f"{what}: {error.message}", hint=error.hint or hint) from error
