"""The write probe that sysbench's fileio test is: one file, random direct writes, short windows.

Knows: sysbench 1.0.20's options and what it prints. Refuses to know what a snapshot is and what the figures mean.

Looked up in sysbench 1.0.20 itself: it works in its current folder and takes no path; `--time` is a whole number of
seconds; `prepare` writes every block (no holes) and ends with an fsync; an fsync counts as an event.
"""

import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from backupd import command
from backupd.errors import CommandError, UnexpectedOutput
from backupd.model import Window

FOLDER_PREFIX = ".backupd-"  # no schema of a server can have such a name, and no archive of ours holds it

_LATE_SECONDS = 30.0  # past the window's end: a stalled disk delays the last write by that much and no more
_SLOWEST_PREPARE = 1 << 20  # bytes a second
_PROMPT_SECONDS = 0.2  # how soon an interruption is noticed
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HINTS = {
    "5": "look at the kernel's log: the disk or the volume under the file system fails",
    "22": "this file system takes no direct I/O: set settle.probe = false, and the gate watches the COW area alone",
    "28": "free some room on the file system of the datadir, or make the probe file smaller",
    "30": "the file system of the datadir is read-only: look at the kernel's log for the reason",
}


@dataclass(frozen=True, slots=True)
class FileioLoad:
    """What is written, where to, by how many.

    The file is small on purpose: a window has to come back to chunks that an earlier one has had copied, otherwise
    the probe only ever measures first writes and never sees the penalty settle.
    """

    file_size: int = 8 << 20  # bytes; a multiple of the block size
    block_size: int = 16 << 10  # bytes; InnoDB's page
    threads: int = 1

    def options(self) -> list[str]:
        """The options that `prepare` and `run` share; both open the file with O_DIRECT."""
        return [
            "--file-num=1",
            f"--file-total-size={self.file_size}",
            "--file-test-mode=rndwr",
            "--file-io-mode=sync",
            "--file-extra-flags=direct",
            "--file-fsync-freq=0",
            "--file-fsync-end=off",  # a direct write is on the disk already, an fsync would count as an event
            f"--file-block-size={self.block_size}",
            f"--threads={self.threads}",
            "--events=0",
            "--rand-type=uniform",
        ]


class SysbenchProbe:
    """`WriteProbe` by sysbench. Its child dies with the thread that started it."""

    def __init__(self, load: FileioLoad | None = None) -> None:
        self._load = load or FileioLoad()
        self._interrupted = threading.Event()

    def prepare(self, folder: Path) -> int:
        """The folder exists with mode 0700, and in it the probe file with every block written and synced.

        Returns the bytes written: 0 where the file was there already. A failure may leave the folder and a part of the
        file, for `remove`.

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
        return parse_prepared(self._run(argv, _LATE_SECONDS + self._load.file_size / _SLOWEST_PREPARE))

    def window(self, folder: Path, seconds: float) -> Window:
        """Write to the probe file for so long, rounded up to whole seconds, and say how it went.

        Raises:
            CommandError: sysbench failed, is missing, was interrupted, or did not end 30 s after its time.
            UnexpectedOutput: it printed what we do not know.
        """
        return parse_fileio(self._run(window_argv(self._load, folder, seconds), seconds + _LATE_SECONDS))

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
        if not command.found("sysbench"):
            raise CommandError("sysbench is not installed", hint="apt-get install sysbench")
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


def prepare_argv(load: FileioLoad, folder: Path) -> list[str]:
    """Make the probe file in this folder. `env` changes into it, since sysbench takes no path."""
    return ["env", f"--chdir={folder}", "sysbench", "fileio", *load.options(), "prepare"]


def window_argv(load: FileioLoad, folder: Path, seconds: float) -> list[str]:
    """Write for so long. Whole seconds: 1.0.20 refuses a fraction, and `--time=0` never ends."""
    whole = max(1, ceil(seconds))
    return ["env", f"--chdir={folder}", "sysbench", "fileio", *load.options(), f"--time={whole}", "run"]


def parse_fileio(text: str) -> Window:
    """What a fileio run says of itself. IOPS are requests (reads and writes, no fsyncs) by total time.

    The totals rather than the rates that it prints: those are cut to two decimals and count a little time after the
    last event.

    Raises:
        UnexpectedOutput: anything needed is missing or cannot be; the message carries the text.
    """
    seconds = _number(text, r"total time:\s+([\d.]+)s")
    if seconds <= 0:
        raise _unexpected(text)
    reads, writes, fsyncs = (_number(text, rf"{kind}/s:\s+([\d.]+)") for kind in ("reads", "writes", "fsyncs"))
    events = _number(text, r"total number of events:\s+(\d+)")
    all_kinds = reads + writes + fsyncs
    return Window(
        seconds=seconds,
        iops=events * _share(reads + writes, all_kinds) / seconds,
        bytes_written=round(events * _share(writes, all_kinds)) * _block_size(text),
        latency_avg_ms=_number(text, r"avg:\s+([\d.]+)"),
        latency_p95_ms=_number(text, r"95th percentile:\s+([\d.]+)"),
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
