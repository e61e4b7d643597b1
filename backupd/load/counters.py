"""What the kernel has counted of a block device, and of the processors.

Source: the kernel's Documentation/block/stat.rst, and for processors Documentation/filesystems/proc.rst. A sector has
512 bytes there, whatever the disk's own have; the ticks are milliseconds, summed over requests, so that two requests at
once count twice. An older kernel has 11 fields, 4.18 added discards, 5.5 flushes.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from backupd.vocabulary.errors import CommandError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters, InFlight, ProcessorTimes
from backupd.vocabulary.volumes import DeviceNumber

_SECTOR = 512  # bytes
_FEWEST_FIELDS = 11
_FEWEST_TICKS = 7  # a kernel before 2.6.11 has no stolen time


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """`Counters` from sysfs."""

    folder: Path = Path("/sys/dev/block")  # in it a link to each block device, named by its number
    processor_file: Path = Path("/proc/stat")

    def disk(self, device: DeviceNumber) -> DiskCounters:
        """What the kernel has counted of this device since that was made: requests as the device saw them, merged.

        Raises:
            CommandError: there is no such device, or its counters cannot be read.
            UnexpectedOutput: the kernel says what we do not know.
        """
        return parse_stat(self._text(device, "stat"))

    def in_flight(self, device: DeviceNumber) -> InFlight:
        """What this device has taken and not answered yet; of device-mapper's, what came to it and not to its parts.

        Raises:
            CommandError: there is no such device, or it cannot be read.
            UnexpectedOutput: the kernel says what we do not know.
        """
        return parse_inflight(self._text(device, "inflight"))

    def _text(self, device: DeviceNumber, name: str) -> str:
        try:
            return (self.folder / str(device) / name).read_text()
        except FileNotFoundError as error:
            raise CommandError(
                f"the kernel has no block device {device}", hint="lsblk shows those that it has"
            ) from error
        except OSError as error:
            raise CommandError(f"cannot read the counters of block device {device}: {error.strerror}") from error

    def processors(self) -> ProcessorTimes:
        """What the processors have done since the system was started, all together.

        Raises:
            CommandError: it cannot be read.
            UnexpectedOutput: the kernel says what we do not know.
        """
        try:
            return parse_processors(self.processor_file.read_text())
        except OSError as error:
            raise CommandError(f"cannot read {self.processor_file}: {error.strerror}") from error

    def number_of(self, path: Path) -> DeviceNumber:
        """The kernel's number of the block device that this path, or what it links to, names.

        Raises:
            CommandError: there is nothing, or something else.
        """
        try:
            found = path.stat()
        except OSError as error:
            raise CommandError(f"cannot read the device {path}: {error.strerror}") from error
        if not stat.S_ISBLK(found.st_mode):
            raise CommandError(f"{path} is not a block device")
        return DeviceNumber(os.major(found.st_rdev), os.minor(found.st_rdev))


def parse_processors(text: str) -> ProcessorTimes:
    """The first line of `/proc/stat`: all processors together, in ticks of USER_HZ. A guest's time is in user time.

    Raises:
        UnexpectedOutput: this is not it; the message carries the text.
    """
    found = re.match(r"cpu +([\d ]+)\n", text)
    ticks = [int(field) for field in found.group(1).split()] if found else []
    if len(ticks) < _FEWEST_TICKS:
        raise UnexpectedOutput(f"unexpected format of the kernel's processor times: {text[:200]!r}")
    user, nice, system, idle, iowait, interrupts, soft_interrupts, stolen = (*ticks, 0)[:8]
    hertz = os.sysconf("SC_CLK_TCK")
    return ProcessorTimes(
        user=(user + nice + stolen) / hertz,
        system=(system + interrupts + soft_interrupts) / hertz,
        idle=idle / hertz,
        iowait=iowait / hertz,
    )


def parse_inflight(text: str) -> InFlight:
    """The `inflight` file of sysfs: reads, then writes (Documentation/ABI/stable/sysfs-block).

    Raises:
        UnexpectedOutput: this is not it; the message carries the text.
    """
    fields = text.split()
    if len(fields) != 2 or not all(field.isdecimal() for field in fields):
        raise UnexpectedOutput(f"unexpected format of the kernel's count of requests in flight: {text!r}")
    return InFlight(int(fields[0]), int(fields[1]))


def parse_stat(text: str) -> DiskCounters:
    """The counters in a `stat` file of sysfs.

    Raises:
        UnexpectedOutput: these are not they; the message carries the text.
    """
    fields = text.split()
    if len(fields) < _FEWEST_FIELDS or not all(field.isdecimal() for field in fields):
        raise UnexpectedOutput(
            f"unexpected format of the kernel's block device counters: {text!r}",
            hint="expected the format of Documentation/block/stat.rst",
        )
    numbers = [int(field) for field in fields[:_FEWEST_FIELDS]]
    reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, busy_ms, _ = numbers
    return DiskCounters(
        reads=reads,
        read_bytes=read_sectors * _SECTOR,
        writes=writes,
        write_bytes=write_sectors * _SECTOR,
        read_seconds=read_ms / 1000,
        write_seconds=write_ms / 1000,
        busy_seconds=busy_ms / 1000,
    )
