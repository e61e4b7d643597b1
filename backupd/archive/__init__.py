"""Turning a datadir into objects and back. The contract of what paces a copy; `stream` and `unpack` do the work."""

from typing import Protocol


class Governor(Protocol):
    """Says how fast a copy may go, and when it must not go on."""

    def pace(self, size: int) -> None:
        """Called before each block of `size` plain bytes; returns when it may be copied.

        Raises:
            GaveUp: a limit of the job was passed.
            SnapshotVoid: the snapshot is no longer intact.
        """
