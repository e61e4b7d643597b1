"""Turning a datadir into objects and back. What a copy asks of others: who paces it, where its bytes go.

`stream` and `unpack` do the work.
"""

from typing import Protocol


class Governor(Protocol):
    """Says how fast a copy may go, and when it must not go on."""

    def pace(self, size: int) -> None:
        """Called before each block of `size` plain bytes; returns when it may be copied.

        Raises:
            GaveUp: a limit of the job was passed.
            SnapshotVoid: the snapshot is no longer intact.
        """


class Sink(Protocol):
    """Where an object's bytes go; every target's `ObjectWriter` is one."""

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            TargetError: no room, or the target failed.
        """
