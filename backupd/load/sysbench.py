"""sysbench's fileio test: its options, and what it prints.

Knows: sysbench 1.0.20.

Looked up in sysbench 1.0.20 itself, with strace: it works in its current folder and takes no path; `--time` is a whole
number of seconds; `prepare` writes every block (no holes) and ends with an fsync; it is content with a file that is
larger than `--file-total-size` and stays within that. Where the test is a sequential one, its threads take the next
block in turn from one sequence, over and over; what is under way when the time is over is waited for and counted. What
is an event: a read, a write and a periodic fsync are one each; the fsync that `--file-fsync-all` does belongs to its
write's event; the fsync at the end, one a thread, is none, but lies within the total time. All fsyncs are in
`fsyncs/s`.

Who owns the folder above may put another in its place at any time, and whoever owns the folder may put links into it:
so sysbench acts as the owner of the folder above, with nothing of our environment, in a folder that is held open.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, gcd
from pathlib import Path

from backupd.load.program import LATE_SECONDS, KnownProgram, LoadProgram, acting_as
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.penalty import Window

# Before 1.0 its options and what it prints were others.
SYSBENCH = KnownProgram("sysbench", "sysbench ", oldest_major=1, looked_up="1.0.20")

DIRECTLY = (
    "--file-extra-flags=direct",
    "--file-fsync-freq=0",
    "--file-fsync-end=off",  # a direct write is on the disk already, an fsync would count as an event
)

_SLOWEST_PREPARE = 1 << 20  # bytes a second
_SLOWEST_OVERWRITE = 64 << 10  # bytes a second: each 4 KiB chunk may have to be copied first, at some seeks each
_LARGEST_BLOCK = 1 << 20  # bytes; block-sized direct writes would take a seek each where speed is all that is wanted
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HINTS = {
    5: "check the kernel log (dmesg): the disk or the volume under the file system is failing",
    22: (
        "this file system does not support direct I/O: set settle.probe = false, so that the gate watches the COW"
        " area only"
    ),
    28: "free some space on the file system, or use a smaller probe file",
    30: "the file system is read-only: check the kernel log for the reason (dmesg)",
}


@dataclass(frozen=True, slots=True)
class FileTest:
    """What is done to the file, again and again."""

    name: str  # sysbench's own: rndwr, rndrd, rndrw, seqrd, seqrewr
    area: int  # bytes from the file's start; a multiple of the block size
    block_size: int
    threads: int = 1
    options: tuple[str, ...] = DIRECTLY


class Sysbench:
    """Its tests, run one at a time on the file of a folder."""

    def __init__(self) -> None:
        self._program = LoadProgram("sysbench", failure)

    def prepare(self, folder: Path, area: int) -> int:
        """The folder, which is there, has the file with every block of the area written and synced.

        Returns the bytes written: 0 where the file was there already and is large enough. Makes an interrupted one
        usable again. A failure may leave a part of the file.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or managed less than 1 MiB a second.
            UnexpectedOutput: it printed what we do not know.
        """
        self._program.allow()
        with _working_in(folder) as prefix:
            argv = [*prefix, *prepare_argv(area)]
            return parse_prepared(self._program.run(argv, LATE_SECONDS + area / _SLOWEST_PREPARE))

    def window(self, folder: Path, test: FileTest, seconds: float) -> Window:
        """Run the test for so long, rounded up to whole seconds, and until the last request has ended.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or did not end in time: 30 s after its own, and
                what its last requests take at 1 MiB a second.
            UnexpectedOutput: it printed what we do not know.
        """
        last = test.threads * test.block_size / _SLOWEST_PREPARE
        with _working_in(folder) as prefix:
            argv = [*prefix, *window_argv(test, seconds)]
            return parse_fileio(self._program.run(argv, seconds + LATE_SECONDS + last))

    def overwrite(self, folder: Path, area: int) -> int:
        """Every block of the area has been written once more, in order, directly; returns the bytes written.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or managed less than 64 KiB a second.
            UnexpectedOutput: it printed what we do not know, or that it wrote something else.
        """
        with _working_in(folder) as prefix:
            argv = [*prefix, *overwrite_argv(area)]
            out = self._program.run(argv, LATE_SECONDS + area / _SLOWEST_OVERWRITE)
        if parse_fileio(out).bytes_written != area:
            raise SYSBENCH.unexpected(out)
        return area

    def interrupt(self) -> None:
        """What runs now, in whatever thread, ends at once with CommandError; nothing begins until `prepare`."""
        self._program.interrupt()


def prepare_argv(area: int) -> list[str]:
    """Make the file in the working folder, through the page cache."""
    return _argv(area, f"--file-block-size={_large_block(area)}", "--file-test-mode=rndwr", "prepare")


def window_argv(test: FileTest, seconds: float) -> list[str]:
    """Run the test for so long. Whole seconds: 1.0.20 refuses a fraction, and `--time=0` never ends."""
    return _test_argv(test, "--events=0", f"--time={max(1, ceil(seconds))}")


def overwrite_argv(area: int) -> list[str]:
    """Write every block of the area once, however long it takes."""
    test = FileTest("seqrewr", area, _large_block(area))
    return _test_argv(test, f"--events={area // test.block_size}", "--time=0")


def parse_fileio(text: str) -> Window:
    """What a fileio run says of itself. IOPS are requests (reads and writes, no fsyncs) by total time.

    The totals rather than the rates that it prints: those are cut to two decimals and count a little time after the
    last event. The mean latency is that of a request with its share of the fsyncs; the 95th percentile is sysbench's
    own, over events.

    Raises:
        UnexpectedOutput: anything needed is missing or cannot be; the message carries the text.
    """
    seconds = _number(text, r"total time:\s+([\d.]+)s")
    if seconds <= 0:
        raise SYSBENCH.unexpected(text)
    reads, writes, fsyncs = (_number(text, rf"{kind}/s:\s+([\d.]+)") for kind in ("reads", "writes", "fsyncs"))
    events = _number(text, r"total number of events:\s+(\d+)")
    requests = _requests(text, events, reads + writes, fsyncs)
    written = round(requests * _share(writes, reads + writes))
    return Window(
        seconds=seconds,
        iops=requests / seconds,
        bytes_written=written * _block_size(text),
        latency_avg_ms=_number(text, r"avg:\s+([\d.]+)") * _share(events, requests),
        latency_p95_ms=_number(text, r"95th percentile:\s+([\d.]+)"),
        bytes_read=(requests - written) * _block_size(text),
    )


def parse_prepared(text: str) -> int:
    """How many bytes `prepare` wrote.

    Raises:
        UnexpectedOutput: it does not say; the message carries the text.
    """
    if re.search(r"^No bytes written\.$", text, re.MULTILINE):
        return 0
    return int(_number(text, r"(\d+) bytes written in"))


def failure(status: int, text: str) -> CommandError:
    """Why sysbench failed, in its own words where it has any, and what to do about it."""
    fatal = re.search(r"^FATAL: (.*)$", text, re.MULTILINE)
    said = fatal.group(1) if fatal else text.strip() or "(it printed nothing)"
    number = re.search(r"errno = (\d+)", said)
    return CommandError(
        f"sysbench ended with status {status}: {said}", hint=hint_for(int(number.group(1))) if number else ""
    )


def hint_for(error: int | None) -> str:
    """What to do about a number of errno(3) that a file of ours met; empty for one that explains itself."""
    return _HINTS.get(error or 0, "")


def _test_argv(test: FileTest, *until: str) -> list[str]:
    return _argv(
        test.area,
        f"--file-test-mode={test.name}",
        "--file-io-mode=sync",
        *test.options,
        f"--file-block-size={test.block_size}",
        f"--threads={test.threads}",
        "--rand-type=uniform",
        *until,
        "run",
    )


def _argv(area: int, *options: str) -> list[str]:
    return ["sysbench", "fileio", "--file-num=1", f"--file-total-size={area}", *options]


@contextmanager
def _working_in(folder: Path) -> Iterator[list[str]]:
    """Within the block, what a command line begins with that works in this folder, as the owner of the one above.

    Raises:
        CommandError: it is not there, or not a folder that backupd has made.
    """
    descriptor, above = _held(folder)
    try:
        yield acting_as(above, folder=f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _held(folder: Path) -> tuple[int, os.stat_result]:
    """A descriptor of the folder, and what is known of the one above."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"cannot open the probe folder {folder}: {error.strerror}") from error
    try:
        found, above = os.fstat(descriptor), os.stat("..", dir_fd=descriptor)
        _require_made(folder, found, above)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, above


def _require_made(folder: Path, found: os.stat_result, above: os.stat_result) -> None:
    if found.st_uid != above.st_uid or stat.S_IMODE(found.st_mode) & 0o022:
        raise CommandError(
            f"the probe folder {folder} is not the one that backupd created: its owner or mode differs",
            hint="somebody who can write to the parent folder created it; check it before you remove it",
        )


def _large_block(area: int) -> int:
    """The largest block that the area is a multiple of, up to 1 MiB."""
    return gcd(area, _LARGEST_BLOCK)


def _requests(text: str, events: float, requests_per_second: float, fsyncs_per_second: float) -> int:
    """How many of the events were reads or writes: see the module's docstring for what counts as which."""
    if "Calling fsync() after each write operation." in text:
        return round(events)
    if "Calling fsync() at the end of test, Enabled." in text:
        events += _number(text, r"Number of threads: (\d+)")
    return round(events * _share(requests_per_second, requests_per_second + fsyncs_per_second))


def _number(text: str, pattern: str) -> float:
    found = re.search(rf"^\s*{pattern}", text, re.MULTILINE)
    if found is None:
        raise SYSBENCH.unexpected(text)
    return float(found.group(1))


def _block_size(text: str) -> int:
    found = re.search(r"^Block size ([\d.]+)(B|KiB|MiB|GiB)$", text, re.MULTILINE)
    if found is None:
        raise SYSBENCH.unexpected(text)
    return int(float(found.group(1)) * _SIZES[found.group(2)])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
