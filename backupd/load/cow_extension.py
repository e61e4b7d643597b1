"""Giving the COW area more room as it fills: when it is tried, and when it is tried no more.

Knows: that whoever has the volume group lets it go, and that room may come: somebody else's snapshot goes. How much is
wanted is decided in `cow_growth`.
"""

from collections.abc import Callable

from backupd.vocabulary.errors import CommandError, SnapshotError, UnexpectedOutput

_AGAIN_SECONDS = 60.0  # between two tries where there was no room, or LVM would not
_TRIES = 3  # that fail before it is given up


class CowExtension:
    """Tries of one snapshot; `growth` are the bytes that it can be extended by, `added` those that it was."""

    def __init__(self, extend: Callable[[int, int], int] | None, growth: int, clock: Callable[[], float]) -> None:
        self._extend, self._clock = extend, clock
        self.growth = growth if extend is not None else 0
        self.added = 0
        self._failed, self._next_try = 0, clock()

    @property
    def is_due(self) -> bool:
        """Whether it may be tried now."""
        return self._extend is not None and self._clock() >= self._next_try

    def extend(self, total: int, wanted: int) -> int:
        """The bytes by which the area of `total` is larger now. Where that fails it is tried again, twice.

        Raises:
            SnapshotError, CommandError, UnexpectedOutput: it failed.
        """
        if self._extend is None:
            return 0
        try:
            added = self._extend(total, wanted)
        except (SnapshotError, CommandError, UnexpectedOutput):
            self._next_try = self._clock() + _AGAIN_SECONDS * 2**self._failed
            self._failed += 1
            if self._failed == _TRIES:
                self._extend, self.growth = None, 0
            raise
        self._failed = 0
        self.growth = max(0, self.growth - added) if added else 0
        self.added += added
        if not added:
            self._next_try = self._clock() + _AGAIN_SECONDS
        return added
