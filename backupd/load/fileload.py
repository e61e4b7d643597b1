"""The loads of a bench on a file: by sysbench, and the one that sysbench has no test for by ourselves.

Knows: which test each operation is.
"""

from pathlib import Path

from backupd.load import PROBE_FILE, require_possible
from backupd.load.rewriting import DirectRewriter
from backupd.load.sectors import explained
from backupd.load.sysbench import FileTest, Sysbench
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.scratch_layouts import Medium, Operation

_TESTS = {
    Operation.WRITE: "seqrewr",  # seqwr would make the file anew, past the clock, and then do the same
    Operation.READ: "seqrd",
    Operation.RANDOM_WRITE: "rndwr",
    Operation.RANDOM_READ: "rndrd",
}


class FileLoads:
    """`BenchLoad` on the one file of a folder, which is there already: the scratch volume's mount point."""

    def __init__(self) -> None:
        self._sysbench = Sysbench()
        self._rewriter = DirectRewriter()

    def prepare(self, where: Path, size: int) -> None:
        """The folder has the file, `size` bytes or more, every block written and synced.

        Raises:
            CommandError: sysbench failed or is missing; there may be a part of the file.
            UnexpectedOutput: it printed what we do not know.
        """
        self._rewriter.allow()
        self._sysbench.prepare(where, size)

    def window(self, where: Path, cell: Cell, *, size: int, seconds: float) -> Window:
        """Put this load on the file's first `size` bytes for so long, and until its last request has ended.

        What it says of its length is what it took: whole seconds by sysbench, and longer where a record takes long.

        Raises:
            CommandError: the load failed, was interrupted, or its records are no whole sectors of the disk.
            UnexpectedOutput: sysbench printed what we do not know.
            ValueError: another medium's load, or records that the size is no multiple of.
        """
        require_possible(cell, Medium.FILE, size)
        with explained(where, cell.record):
            if cell.operation is Operation.REWRITE:
                file = where / PROBE_FILE
                return self._rewriter.window(file, seconds, size=size, record=cell.record, threads=cell.threads)
            test = FileTest(_TESTS[cell.operation], size, cell.record, cell.threads)
            return self._sysbench.window(where, test, seconds)

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; none begins until `prepare`."""
        self._sysbench.interrupt()
        self._rewriter.interrupt()
