"""Measuring what requests cost. The contracts; `settle_gate` and `probe` decide and tell from what was measured.

Implementations: `fileprobe` loads a file of ours, `direct_reader` reads one, `counters` asks the kernel what everybody
did. `fileload` and `fio` are the loads of a bench.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from backupd.vocabulary.gauges import DiskCounters, ProcessorTimes
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.scratch_layouts import Medium, Operation
from backupd.vocabulary.volumes import DeviceNumber

if TYPE_CHECKING:
    from backupd.vocabulary.benches import Cell

PROBE_FILE = "test_file.0"  # the probe's only file in its folder, as sysbench names it


class WriteProbe(Protocol):
    """A load of ours on a file of ours, measured in windows."""

    def prepare(self, folder: Path) -> int:
        """Make the probe file in this folder, which is made if need be, and return the bytes written.

        Raises:
            CommandError: sysbench failed or is missing.
        """

    def window(self, folder: Path, seconds: float) -> Window:
        """Load the probe file for so long and say how it went.

        Raises:
            CommandError: sysbench failed.
            UnexpectedOutput: it printed what we do not know.
        """

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; none begins until `prepare`."""

    def remove(self, folder: Path) -> None:
        """The folder is gone; nothing happens when it was."""


class FileProbe(WriteProbe, Protocol):
    """A write probe that can also have every chunk under its file copied on write.

    One file serves many loads: a probe is content with a file that is larger than its own load's area.
    """

    def overwrite(self, folder: Path) -> int:
        """Every block of the load's area has been written once more, in order, directly; returns the bytes written.

        Raises:
            CommandError: sysbench failed or was interrupted.
            UnexpectedOutput: it printed what we do not know.
        """


class SnapshotReader(Protocol):
    """Reads a file that is there already, past the page cache; a read-only mount will do.

    The origin is read by the same code as the snapshot, so that the figures compare.
    """

    def random(self, file: Path, seconds: float, *, block_size: int, threads: int) -> Window:
        """Whole blocks anywhere in the file, by so many threads, for so long.

        Raises:
            CommandError: it cannot be read, is smaller than a block, or the reading was interrupted.
        """

    def scan(self, file: Path, seconds: float, *, block_size: int = 1 << 20) -> Window:
        """The file from its start to its end, and again from its start, for so long.

        Raises:
            CommandError: it cannot be read, is empty, or the reading was interrupted.
        """

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends with CommandError; none begins any more."""


class BenchLoad(Protocol):
    """The loads of a bench on one medium: a file in a folder of ours, or a scratch volume's device itself."""

    def prepare(self, where: Path, size: int) -> None:
        """All that the loads work on is there, `size` bytes of it, every block written and on the disk.

        Raises:
            CommandError: the load's program failed or is missing.
        """

    def window(self, where: Path, cell: "Cell", *, size: int, seconds: float) -> Window:
        """Put this load on what was prepared there, past the page cache, for so long, and say how it went.

        A record that is rewritten is one of the window's IOPS, and is in its bytes read and in its bytes written.

        Raises:
            CommandError: the load's program failed, or was interrupted.
            UnexpectedOutput: it printed what we do not know.
            ValueError: see `require_possible`.
        """

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; none begins until `prepare`."""


def require_possible(cell: "Cell", medium: Medium, size: int) -> None:
    """The loads on this medium can do what the cell says with `size` bytes. A plan asks for nothing else.

    Raises:
        ValueError: it is a load on the other medium, a rewrite of a raw device, or has records that the size is no
            multiple of: a sequence would come back to another place each time.
    """
    if cell.medium is not medium:
        raise ValueError(f"the load {cell} is not one on the medium {medium}")
    if medium is Medium.RAW and cell.operation is Operation.REWRITE:
        raise ValueError("a raw device is not rewritten: fio has no such test")
    if size % cell.record:
        raise ValueError(f"{size} bytes are not whole records of {cell.record}")


class Counters(Protocol):
    """What the kernel counts of block devices, whoever used them."""

    def disk(self, device: DeviceNumber) -> DiskCounters:
        """What it has counted of this device since that was made.

        Raises:
            CommandError: there is no such device, or its counters cannot be read.
            UnexpectedOutput: the kernel says what we do not know.
        """

    def processors(self) -> ProcessorTimes:
        """What the processors have done since the system was started, all together.

        Raises:
            CommandError: it cannot be read.
            UnexpectedOutput: the kernel says what we do not know.
        """

    def number_of(self, path: Path) -> DeviceNumber:
        """The kernel's number of the block device that this path, or what it links to, names.

        Raises:
            CommandError: there is none.
        """
