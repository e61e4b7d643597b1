"""The probe that sysbench's fileio test is: one file, one kind of load, short windows.

Knows: sysbench 1.0.20's options and what it prints. Refuses to know what a snapshot is and what the figures mean.

Looked up in sysbench 1.0.20 itself, with strace: it works in its current folder and takes no path; `--time` is a whole
number of seconds; `prepare` writes every block (no holes) and ends with an fsync; it is content with a file that is
larger than `--file-total-size` and stays within that. What is an event: a read, a write and a periodic fsync are one
each; the fsync that `--file-fsync-all` does belongs to its write's event; the fsync at the end, one a thread, is none,
but lies within the total time. All fsyncs are in `fsyncs/s`.
"""

import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from math import ceil, gcd
from pathlib import Path

from backupd import command
from backupd.errors import CommandError, UnexpectedOutput
from backupd.measurement import FileLoad, Mode
from backupd.model import Window

FOLDER_PREFIX = ".backupd-"  # no schema of a server can have such a name, and no archive of ours holds it

_LATE_SECONDS = 30.0  # past the window's end: a stalled disk delays the last write by that much and no more
_SLOWEST_PREPARE = 1 << 20  # bytes a second
_SLOWEST_OVERWRITE = 64 << 10  # bytes a second: each 4 KiB chunk may have to be copied first, at some seeks each
_VERSION_SECONDS = 30.0
_PROMPT_SECONDS = 0.2  # how soon an interruption is noticed
_LARGEST_BLOCK = 1 << 20  # bytes; block-sized direct writes would take a seek each where speed is all that is wanted
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HINTS = {
    "5": "look at the kernel's log: the disk or the volume under the file system fails",
    "22": "this file system takes no direct I/O: a job with settle.probe = false watches the COW area alone",
    "28": "free some room on the file system, or make the probe file smaller",
    "30": "the file system is read-only: look at the kernel's log for the reason",
}
_TESTS = {
    Mode.DIRECT: "rndwr",
    Mode.SYNC: "rndwr",
    Mode.FSYNC_100: "rndwr",
    Mode.REWRITE: "rndwr",
    Mode.READ: "rndrd",
    Mode.SCAN: "seqrd",
}
_DIRECTLY = (
    "--file-extra-flags=direct",
    "--file-fsync-freq=0",
    "--file-fsync-end=off",  # a direct write is on the disk already, an fsync would count as an event
)
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
        if load.mode not in _TESTS:
            raise ValueError(f"sysbench has no test for the mode {load.mode}")
        self._load = load
        self._interrupted = threading.Event()

    def prepare(self, folder: Path) -> int:
        """The folder exists with mode 0700, and in it the probe file with every block of the area written and synced.

        Returns the bytes written: 0 where the file was there already and is large enough. A failure may leave the
        folder and a part of the file, for `remove`.

        Raises:
            CommandError: the folder bears no name of ours or cannot be made; sysbench failed or is missing.
            UnexpectedOutput: it printed what we do not know.
        """
        _require_ours(folder)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
        except OSError as error:
            raise CommandError(
                f"cannot make the probe folder {folder}: {error.strerror}", hint=_HINTS.get(str(error.errno), "")
            ) from error
        self._interrupted.clear()
        argv = prepare_argv(self._load, folder)
        return parse_prepared(self._run(argv, _LATE_SECONDS + self._load.area / _SLOWEST_PREPARE))

    def window(self, folder: Path, seconds: float) -> Window:
        """Load the probe file for so long, rounded up to whole seconds, and say how it went.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or did not end 30 s after its time.
            UnexpectedOutput: it printed what we do not know.
        """
        return parse_fileio(self._run(window_argv(self._load, folder, seconds), seconds + _LATE_SECONDS))

    def overwrite(self, folder: Path) -> int:
        """Every block of the load's area has been written once more, in order, directly; returns the bytes written.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or managed less than 64 KiB a second.
            UnexpectedOutput: it printed what we do not know, or that it wrote something else.
        """
        argv = overwrite_argv(self._load, folder)
        out = self._run(argv, _LATE_SECONDS + self._load.area / _SLOWEST_OVERWRITE)
        if parse_fileio(out).bytes_written != self._load.area:
            raise _unexpected(out)
        return self._load.area

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; so do later ones.

        Only a new `prepare` makes the probe usable again.
        """
        self._interrupted.set()

    def remove(self, folder: Path) -> None:
        """The folder is gone with all that is in it; nothing happens when it was.

        Raises:
            CommandError: it bears no name of ours (then it is not touched), or it could not be removed.
        """
        remove_folder(folder)

    def _run(self, argv: Sequence[str], deadline_seconds: float) -> str:
        _require_installed()
        if self._interrupted.is_set():
            raise CommandError("the probe was interrupted")
        with command.spawned(argv) as child:
            out, err = self._outcome(child, deadline_seconds)
        if child.returncode != 0:
            raise failure(child.returncode, f"{out}{err}")
        return out

    def _outcome(self, child: subprocess.Popen[bytes], deadline_seconds: float) -> tuple[str, str]:
        ends = time.monotonic() + deadline_seconds
        while True:
            try:
                out, err = child.communicate(timeout=_PROMPT_SECONDS)
            except subprocess.TimeoutExpired:
                if self._interrupted.is_set():
                    raise CommandError("the probe was interrupted") from None
                if time.monotonic() > ends:
                    raise CommandError(
                        f"sysbench did not end within {deadline_seconds:g} s",
                        hint="the disk may be stalled: look at the kernel's log",
                    ) from None
            else:
                return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def prepare_argv(load: FileLoad, folder: Path) -> list[str]:
    """Make the probe file in this folder, through the page cache."""
    return _argv(folder, *_file(load), f"--file-block-size={_large_block(load)}", "--file-test-mode=rndwr", "prepare")


def window_argv(load: FileLoad, folder: Path, seconds: float) -> list[str]:
    """Load the file for so long. Whole seconds: 1.0.20 refuses a fraction, and `--time=0` never ends."""
    mixed = load.mode.writes and load.write_share < 1
    return _argv(
        folder,
        *_file(load),
        *([f"--file-rw-ratio={(1 - load.write_share) / load.write_share:.6g}"] if mixed else []),  # reads ÷ writes
        f"--file-test-mode={'rndrw' if mixed else _TESTS[load.mode]}",
        "--file-io-mode=sync",
        *_SYNCING.get(load.mode, _DIRECTLY),
        f"--file-block-size={load.block_size}",
        f"--threads={load.threads}",
        "--rand-type=uniform",
        "--events=0",
        f"--time={max(1, ceil(seconds))}",
        "run",
    )


def overwrite_argv(load: FileLoad, folder: Path) -> list[str]:
    """Write every block of the area once, however long it takes."""
    block = _large_block(load)
    return _argv(
        folder,
        *_file(load),
        "--file-test-mode=seqrewr",
        "--file-io-mode=sync",
        *_DIRECTLY,
        f"--file-block-size={block}",
        "--threads=1",
        f"--events={load.area // block}",
        "--time=0",
        "run",
    )


def require_version() -> str:
    """The version of the sysbench that is installed.

    Raises:
        CommandError: it is missing, fails or is too old.
        UnexpectedOutput: it does not say its version; the message carries the text.
    """
    _require_installed()
    return parse_version(command.run(["sysbench", "--version"], timeout_seconds=_VERSION_SECONDS).stdout)


def parse_version(text: str) -> str:
    """The version that sysbench says it has. Before 1.0 its options and what it prints were others.

    Raises:
        CommandError: it is too old.
        UnexpectedOutput: it says none; the message carries the text.
    """
    found = re.match(r"sysbench ((\d+)\.\d[\w.-]*)", text)
    if found is None:
        raise _unexpected(text)
    if int(found.group(2)) < 1:
        raise CommandError(f"sysbench {found.group(1)} is too old", hint="backupd needs 1.0 or later")
    return found.group(1)


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
        raise _unexpected(text)
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
        f"sysbench ended with status {status}: {said}", hint=_HINTS.get(number.group(1), "") if number else ""
    )


def remove_folder(folder: Path) -> None:
    """A probe folder is gone; nothing happens when it was. Needs no sysbench, so recovery can use it as well.

    Raises:
        CommandError: it bears no name of ours (then it is not touched), or it could not be removed.
    """
    _require_ours(folder)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"cannot remove the probe folder {folder}: {error}") from error


def _require_ours(folder: Path) -> None:
    if not folder.name.startswith(FOLDER_PREFIX):
        raise CommandError(f"{folder} is no probe folder of ours: its name does not begin with {FOLDER_PREFIX}")
    try:
        foreign = not stat.S_ISDIR(folder.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"cannot look at the probe folder {folder}: {error.strerror}") from error
    if foreign:
        raise CommandError(f"{folder} is no folder but something else, which is not ours")


def _require_installed() -> None:
    if not command.found("sysbench"):
        raise CommandError("sysbench is not installed", hint="apt-get install sysbench")


def _argv(folder: Path, *options: str) -> list[str]:
    """`env` changes into the folder, since sysbench takes no path."""
    return ["env", f"--chdir={folder}", "sysbench", "fileio", *options]


def _file(load: FileLoad) -> tuple[str, str]:
    return "--file-num=1", f"--file-total-size={load.area}"


def _large_block(load: FileLoad) -> int:
    """The largest block that the area is a multiple of, up to 1 MiB."""
    return gcd(load.area, _LARGEST_BLOCK)


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
        raise _unexpected(text)
    return float(found.group(1))


def _block_size(text: str) -> int:
    found = re.search(r"^Block size ([\d.]+)(B|KiB|MiB|GiB)$", text, re.MULTILINE)
    if found is None:
        raise _unexpected(text)
    return int(float(found.group(1)) * _SIZES[found.group(2)])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _unexpected(text: str) -> UnexpectedOutput:
    return UnexpectedOutput(
        f"sysbench printed what backupd does not know:\n{text}",
        hint="backupd knows sysbench 1.0.20: sysbench --version",
    )
