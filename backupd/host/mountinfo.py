"""What is mounted, and where a path lies in its file system, by the kernel's own list (proc_pid_mountinfo(5)).

Knows: that a process may have mounts of its own, and that its list may be read without any privilege, unlike its files.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backupd.vocabulary.errors import UnexpectedOutput
from backupd.vocabulary.volumes import DeviceNumber

_OURS = Path("/proc/self/mountinfo")
_REMOVED = "//deleted"  # as no path ends
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of mountinfo."""

    device: DeviceNumber
    root: Path  # the folder of the file system that is seen here; not `/` for a bind mount
    path: Path
    filesystem: str
    options: tuple[str, ...] = ()  # of the file system, not of this mount of it
    read_only: bool = False  # the file system, or this mount of it
    removed: bool = False  # the root, which the kernel then tells as a folder `deleted` in it
    number: int = field(default=0, compare=False)  # the kernel's, of all mounts that there are: `mnt_id` in an fdinfo


def mounts(process: int | None = None) -> tuple[Mounted, ...]:
    """Everything that is mounted, as we see it or another process does, by its names of it, in the kernel's order.

    Raises:
        OSError: that process has ended, or is hidden from us.
    """
    file = _OURS if process is None else Path(f"/proc/{process}/mountinfo")
    return parse_mountinfo(os.fsdecode(file.read_bytes()))  # as text, a carriage return would end a line


def covering(path: Path, mounted: Sequence[Mounted], *, device: DeviceNumber | None = None) -> Mounted | None:
    """On which of these mounts a (resolved) path is, by its names alone where none of those has this device."""
    over = [one for one in mounted if path.is_relative_to(one.path)]
    over = [one for one in over if one.device == device] or over
    return max(enumerate(over), key=lambda pair: (len(pair[1].path.parts), pair[0]), default=(0, None))[1]  # the last


def place(path: Path, mounted: Sequence[Mounted]) -> tuple[DeviceNumber, Path] | None:
    """Where a (resolved) path of whoever has these mounts lies: the device, and the path in its file system."""
    top = covering(path, mounted)
    return None if top is None else (top.device, top.root / path.relative_to(top.path))


def shown_at(there: tuple[DeviceNumber, Path], mounted: Sequence[Mounted]) -> Iterator[Path]:
    """Under which paths whoever has these mounts sees what lies there."""
    device, path = there
    for one in mounted:
        if one.device == device and path.is_relative_to(one.root):
            at = one.path / path.relative_to(one.root)
            if place(at, mounted) == there:
                yield at


def parse_mountinfo(text: str) -> tuple[Mounted, ...]:
    """The lines of mountinfo (proc_pid_mountinfo(5)); a blank, tab, newline or backslash in a path is octal there.

    Only a newline ends a line. Whatever else Python takes for the end of one (a form feed, U+2028) stands in a path as
    it is, and any user who may mount by FUSE chooses one.

    Raises:
        UnexpectedOutput: with the line.
    """
    return tuple(_parse_line(line) for line in text.split("\n") if line)


def _parse_line(line: str) -> Mounted:
    try:
        before, _, after = line.partition(" - ")
        mount_id, _, device, root, path, of_mount, *_ = before.split(" ")
        major, _, minor = device.partition(":")
        filesystem, _, of_filesystem = (*after.split(" "), "", "")[:3]
        number, options = DeviceNumber(int(major), int(minor)), tuple(of_filesystem.split(","))
        read_only = "ro" in (*of_mount.split(","), *options)
        removed = root.endswith(_REMOVED)
        return Mounted(
            *(number, Path(_plain(root)), Path(_plain(path)), filesystem, options, read_only, removed),
            number=int(mount_id),
        )
    except ValueError as error:
        raise UnexpectedOutput(f"a line of mountinfo could not be parsed: {line}") from error


def _plain(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
