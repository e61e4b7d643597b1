"""Who used the machine's processor: by the kernel's own counters, before a backup and after it.

Source: proc(5), /proc/PID/stat and /proc/stat; a tick is 1/100 s everywhere (`sysconf(SC_CLK_TCK)`).
"""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in include/linux/sched.h
_SERVERS = ("mariadbd", "mysqld")
_DISKS = ("nbdkit", "nbd-client")  # the slowed disks are programs of this machine
_FLAGS, _USER, _SYSTEM, _STARTED = 6, 11, 12, 19  # fields of /proc/PID/stat after the name
_IDLE, _WAITING = 3, 4  # columns of /proc/stat's first line after the word


class Owner(StrEnum):
    """Whose time it was, in the table's order."""

    BACKUP = "backup"
    SERVER = "server"
    DISKS = "disks"  # what serves them: in this lab a program
    KERNEL = "kernel threads"  # device-mapper's copies, write-back, XFS
    OTHER = "load, other"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Seconds that each process has used since it started, and the seconds that nobody did."""

    processes: Mapping[tuple[int, int], tuple[Owner, float]]  # by process id and start, so that no id counts twice
    ended: float  # seconds of the children of this process, and of theirs, that have ended
    idle: float

    @classmethod
    def now(cls, proc: Path = Path("/proc")) -> "ProcessorUse":
        """What the kernel has counted until now."""
        ticks = os.sysconf("SC_CLK_TCK")
        processes = {}
        for folder in proc.iterdir():
            if folder.name.isdecimal():
                try:
                    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it has ended meanwhile
                started, owner, used = parse_process(text)
                processes[int(folder.name), started] = (owner, used / ticks)
        idle = (proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(processes, children.ru_utime + children.ru_stime, (int(idle[_IDLE]) + int(idle[_WAITING])) / ticks)

    def since(self, earlier: "ProcessorUse") -> dict[str, float]:
        """Seconds by owner. What lives through it all is told apart; the backup is what was started and has ended."""
        seconds = dict.fromkeys(map(str, Owner), 0.0)
        for process, (owner, used) in self.processes.items():
            seconds[owner] += used - earlier.processes.get(process, (owner, 0.0))[1]
        seconds[Owner.BACKUP] += self.ended - earlier.ended
        seconds[Owner.IDLE] = self.idle - earlier.idle
        return seconds


def parse_process(text: str) -> tuple[int, Owner, int]:
    """When it started (ticks since boot), whose it is, and how many ticks it has used, by /proc/PID/stat."""
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    used = int(fields[_USER]) + int(fields[_SYSTEM])
    return int(fields[_STARTED]), _owner(name, int(fields[_FLAGS])), used


def _owner(name: str, flags: int) -> Owner:
    if flags & _KERNEL_THREAD:
        return Owner.KERNEL
    if name in _SERVERS:
        return Owner.SERVER
    return Owner.DISKS if name in _DISKS else Owner.OTHER
