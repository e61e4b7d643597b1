"""The loads of a bench on a volume's device itself, by fio: sysbench's fileio test takes no block device.

Knows: fio 3's options and its JSON.

Looked up in fio 3.33 itself: its jobs are processes in sessions of their own, but for `--thread`; it ends well although
it did nothing where the device is too small, so that what it did has to be looked at; it refuses to write to a mounted
device only where that was mounted by the same name, which a volume with two names need not be; `allow_file_create=0`
keeps it from making a file in /dev where the device is gone. What is under way when the time is over is waited for and
counted. No two jobs of it share one sequence of positions: several threads that take the next record in turn are one
job that keeps as many requests under way (`iodepth`); random ones are as many jobs, each of which waits for its own, as
sysbench's threads do.
"""

import errno
import json
import os
import re
from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any

from backupd.load import require_possible
from backupd.load.program import LATE_SECONDS, KnownProgram, LoadProgram
from backupd.load.sectors import explained
from backupd.vocabulary.benches import Cell
from backupd.vocabulary.errors import CommandError
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.scratch_layouts import Medium, Operation

# Before 3.0 it told latencies in other units.
FIO = KnownProgram("fio", "fio-", oldest_major=3, looked_up="3.33")

_TESTS = {
    Operation.WRITE: "write",
    Operation.READ: "read",
    Operation.RANDOM_WRITE: "randwrite",
    Operation.RANDOM_READ: "randread",
}
_SLOWEST = 1 << 20  # bytes a second
_LARGEST_BLOCK = 1 << 20  # bytes
_HINTS = {
    "5": "check the kernel log (dmesg): the disk or the volume is failing",
    "28": "it is too small for the test",
    "30": "the device is read-only: check the kernel log for the reason (dmesg)",
}


class FioLoads:
    """`BenchLoad` on a block device of ours. What is on it is lost; one that is in use is refused."""

    def __init__(self) -> None:
        self._program = LoadProgram("fio", failure)

    def prepare(self, where: Path, size: int) -> None:
        """The device's first `size` bytes have been written: a block that never was is read without its disk.

        Raises:
            CommandError: fio failed or is missing; the device is missing, in use, or smaller.
            UnexpectedOutput: it printed what we do not know.
        """
        self._program.allow()
        require_unused(where)
        written = parse_job(self._program.run(prepare_argv(where, size), LATE_SECONDS + size / _SLOWEST)).bytes_written
        if written != size:
            raise CommandError(f"fio wrote {written} of {size} bytes to {where}", hint=f"check its size: lsblk {where}")

    def window(self, where: Path, cell: Cell, *, size: int, seconds: float) -> Window:
        """Put this load on the device's first `size` bytes for so long, and until its last request has ended.

        Raises:
            CommandError: fio failed, is missing, was interrupted, made no request, or did not end in time: 30 s after
                its own, and what its last requests take at 1 MiB a second; the device is missing or in use; records
                are no whole sectors of the disk.
            UnexpectedOutput: it printed what we do not know.
            ValueError: see `require_possible`.
        """
        require_possible(cell, Medium.RAW, size)
        require_unused(where)
        late = LATE_SECONDS + cell.threads * cell.record / _SLOWEST
        with explained(where, cell.record):
            window = parse_job(self._program.run(window_argv(where, cell, size, seconds), seconds + late))
        if window.iops == 0:
            raise CommandError(f"fio made no request to {where}", hint=f"check its size: lsblk {where}")
        return window

    def interrupt(self) -> None:
        """A window that runs now, in whatever thread, ends at once with CommandError; none begins until `prepare`."""
        self._program.interrupt()


def require_unused(device: Path) -> None:
    """Nothing is mounted from the device, and nothing is on it: the kernel lets us have it for ourselves.

    Source: open(2), O_EXCL without O_CREAT on a block device.

    Raises:
        CommandError: it is in use, or cannot be opened.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise CommandError(f"{device} is in use", hint=f"check what uses it: lsblk {device}") from error
        raise CommandError(f"cannot open {device}: {error.strerror}") from error


def prepare_argv(device: Path, size: int) -> list[str]:
    """Write every block once, in large pieces."""
    return _argv(device, size, "--rw=write", f"--bs={gcd(size, _LARGEST_BLOCK)}", *_at_once(4), "--end_fsync=1")


def window_argv(device: Path, cell: Cell, size: int, seconds: float) -> list[str]:
    """Put the load on the device for so long."""
    waiting = ("--ioengine=psync", f"--numjobs={cell.threads}", "--norandommap", "--randrepeat=0")
    return _argv(
        device,
        size,
        f"--rw={_TESTS[cell.operation]}",
        f"--bs={cell.record}",
        *(waiting if cell.operation.is_random else _at_once(cell.threads)),
        "--time_based",
        f"--runtime={round(1000 * seconds)}ms",
    )


def parse_job(text: str) -> Window:
    """What fio's report says of its only group of jobs, which reads or writes and does not do both.

    Raises:
        UnexpectedOutput: anything needed is missing or cannot be; the message carries the text.
    """
    try:
        [job] = json.loads(text[text.index("{") :])["jobs"]  # what it has to complain of comes before
        read, written = int(job["read"]["io_bytes"]), int(job["write"]["io_bytes"])
        return _window(job["read"] if read else job["write"], read=read, written=written)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FIO.unexpected(text) from error


def failure(status: int, text: str) -> CommandError:
    """Why fio failed, in its own words where it has any, and what to do about it."""
    said = re.search(r"^fio: (?!pid=)(.*)$", text, re.MULTILINE)
    number = re.search(r"^fio: pid=\d+, err=(\d+)/", text, re.MULTILINE)
    return CommandError(
        f"fio ended with status {status}: {said.group(1) if said else text.strip() or '(it printed nothing)'}",
        hint=_HINTS.get(number.group(1), "") if number else "",
    )


def _window(done: Mapping[str, Any], *, read: int, written: int) -> Window:
    """Requests by the time that they took, to the end of the last one; nothing at all where there was none."""
    requests, seconds = int(done["total_ios"]), float(done["runtime"]) / 1000
    percentiles = done["lat_ns"].get("percentile", {})
    return Window(
        seconds=seconds,
        iops=requests / seconds if requests else 0.0,
        bytes_written=written,
        latency_avg_ms=float(done["lat_ns"]["mean"]) / 1e6,
        latency_p95_ms=float(percentiles["95.000000"]) / 1e6 if requests else 0.0,
        bytes_read=read,
    )


def _argv(device: Path, size: int, *options: str) -> list[str]:
    return [
        *("fio", "--name=backupd", "--output-format=json", "--group_reporting", "--thread"),
        *(f"--filename={device}", "--allow_file_create=0", f"--size={size}", "--direct=1"),
        *("--lat_percentiles=1", "--clat_percentiles=0", "--percentile_list=95"),
        *options,
    ]


def _at_once(requests: int) -> tuple[str, str]:
    return "--ioengine=libaio", f"--iodepth={requests}"
