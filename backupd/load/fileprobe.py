"""The probe that sysbench's fileio test is: one file of ours, one kind of load, short windows.

Knows: which test each mode is, and which folders are ours to make and to remove.
"""

import os
import stat
from pathlib import Path

from backupd.host import process
from backupd.load.program import LATE_SECONDS, acting_as
from backupd.load.sysbench import DIRECTLY, FileTest, Sysbench, hint_for
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.gauges import FileLoad, Mode
from backupd.vocabulary.penalty import Window

# No schema of a server can have such a name, and no archive of ours holds it. What a row of an older backupd names as a
# probe's folder has no more than this.
FOLDER_PREFIX = ".backupd-"

_REMOVAL_SECONDS = 120.0  # of a file system that is at work
_TESTS = {
    Mode.DIRECT: "rndwr",
    Mode.SYNC: "rndwr",
    Mode.FSYNC_100: "rndwr",
    Mode.REWRITE: "rndwr",
    Mode.READ: "rndrd",
    Mode.SCAN: "seqrd",
}
_SYNCING = {
    Mode.SYNC: ("--file-fsync-all=on", "--file-fsync-freq=0", "--file-fsync-end=off"),
    Mode.FSYNC_100: (
        "--file-fsync-freq=100",
        "--file-fsync-end=on",  # what is dirty at its end is this window's to pay, not the next one's
    ),
}


class SysbenchProbe:
    """`FileProbe` by sysbench, for one load. Its child dies with the thread that started it.

    A gate's file is small on purpose: a window has to come back to chunks that an earlier one has had copied, otherwise
    the probe only ever measures first writes and never sees the penalty settle.
    """

    def __init__(self, load: FileLoad) -> None:
        """Raises ValueError for a mode that sysbench has no test for."""
        self._test = sysbench_test(load)
        self._sysbench = Sysbench()

    def prepare(self, folder: Path) -> int:
        """The folder exists with mode 0700, and in it the probe file with every block of the area written and synced.

        Both are of the user whose the folder above is: what he may write to, root does not.

        Returns the bytes written: 0 where the file was there already and is large enough. A failure may leave the
        folder and a part of the file, for `remove`.

        Raises:
            CommandError: the folder bears no name of ours or cannot be made; sysbench failed or is missing.
            UnexpectedOutput: it printed what we do not know.
        """
        _require_ours(folder)
        _make(folder)
        return self._sysbench.prepare(folder, self._test.area)

    def window(self, folder: Path, seconds: float) -> Window:
        """Load the probe file for so long, rounded up to whole seconds, and say how it went.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or did not end 30 s after its time.
            UnexpectedOutput: it printed what we do not know.
        """
        return self._sysbench.window(folder, self._test, seconds)

    def overwrite(self, folder: Path) -> int:
        """Every block of the load's area has been written once more, in order, directly; returns the bytes written.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or managed less than 64 KiB a second.
            UnexpectedOutput: it printed what we do not know, or that it wrote something else.
        """
        return self._sysbench.overwrite(folder, self._test.area)

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; so do later ones.

        Only a new `prepare` makes the probe usable again.
        """
        self._sysbench.interrupt()

    def remove(self, folder: Path) -> None:
        """The folder is gone with all that is in it; nothing happens when it was.

        Raises:
            CommandError: it bears no name of ours (then it is not touched), or it could not be removed.
        """
        remove_folder(folder)


def sysbench_test(load: FileLoad) -> FileTest:
    """The test of sysbench that this load is.

    Raises:
        ValueError: it has none for the load's mode.
    """
    if load.mode not in _TESTS:
        raise ValueError(f"sysbench has no test for the mode {load.mode}")
    name, options = _TESTS[load.mode], _SYNCING.get(load.mode, DIRECTLY)
    if load.mode.writes and load.write_share < 1:
        reads_per_write = (1 - load.write_share) / load.write_share
        name, options = "rndrw", (f"--file-rw-ratio={reads_per_write:.6g}", *options)
    return FileTest(name, load.area, load.block_size, load.threads, options)


def remove_folder(folder: Path) -> None:
    """A probe folder is gone; nothing happens when it was. Needs no sysbench, so recovery can use it as well.

    Whoever owns the folder above may have filled it, as deep as he likes: `rm` follows no link, and does not recurse.

    Raises:
        CommandError: it bears no name of ours (then it is not touched), or it could not be removed.
    """
    _require_ours(folder)
    try:
        process.run(["rm", "-rf", "--one-file-system", "--", str(folder)], timeout_seconds=_REMOVAL_SECONDS)
    except CommandError as error:
        raise CommandError(f"cannot remove the probe folder {folder}: {error.message}") from error


def _make(folder: Path) -> None:
    """It is there, with mode 0700, made by whoever the folder above belongs to: he may put another one in its place.

    Raises:
        CommandError: it cannot be made.
    """
    try:
        above = folder.parent.stat()
        if above.st_uid == os.geteuid() or os.geteuid() != 0:
            folder.mkdir(mode=0o700, exist_ok=True)
        elif not folder.is_dir():
            process.run([*acting_as(above), "mkdir", "--mode=700", "--", str(folder)], timeout_seconds=LATE_SECONDS)
    except OSError as error:
        raise CommandError(
            f"cannot create the probe folder {folder}: {error.strerror}", hint=hint_for(error.errno)
        ) from error


def _require_ours(folder: Path) -> None:
    if not folder.name.startswith(FOLDER_PREFIX):
        raise CommandError(
            f"{folder} is not one of backupd's probe folders: its name does not begin with {FOLDER_PREFIX}"
        )
    try:
        foreign = not stat.S_ISDIR(folder.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"cannot read the probe folder {folder}: {error.strerror}") from error
    if foreign:
        raise CommandError(f"{folder} is not a folder, so it is not backupd's")
