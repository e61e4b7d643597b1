"""Measuring what writes cost. The contract; `sysbench` implements it, `settle` decides from what it measured."""

from pathlib import Path
from typing import Protocol

from backupd.model import Window


class WriteProbe(Protocol):
    """A write load of ours on a file of ours, measured in windows."""

    def prepare(self, folder: Path) -> int:
        """Make the probe file in this folder, which is made if need be, and return the bytes written.

        Raises:
            CommandError: sysbench failed or is missing.
        """

    def window(self, folder: Path, seconds: float) -> Window:
        """Write to the probe file for so long and say how it went.

        Raises:
            CommandError: sysbench failed.
            UnexpectedOutput: it printed what we do not know.
        """

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; none begins until `prepare`."""

    def remove(self, folder: Path) -> None:
        """The folder is gone; nothing happens when it was."""
