"""Where a job's binlog segments wait: whether they would outlive the server's data, and leave it its room.

Knows: that it stops no backup, for an archive that stands in the server's way is told, and a backup is not.
"""

from collections.abc import Iterator

from backupd.config import BinlogConfig
from backupd.host.filesystem import existing
from backupd.operations.findings import HOST_FAULTS, ok, reason
from backupd.operations.tools import HostTools
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.volumes import MountPoint, Volume

_NAME = "binlog spool"


def examine(archive: BinlogConfig | None, tools: HostTools, *, mount: MountPoint, volume: Volume) -> Iterator[Finding]:
    """A warning where the spool is on the volume that has the server's data and is mounted there."""
    if archive is None:
        return
    try:
        there = tools.files.mount_of(existing(archive.spool))
    except (OSError, *HOST_FAULTS) as error:
        told = f"{archive.spool} cannot be used ({reason(error)})"
        yield Finding(_NAME, Level.WARNING, told, "check its disk: binlog.spool")
        return
    if there.device == mount.device:
        yield Finding(
            _NAME,
            Level.WARNING,
            f"{archive.spool} is on the volume of the server's data ({volume.full_name}): the archive would be lost"
            " with it, take its space, and fill the snapshot's COW area",
            "set binlog.spool to a folder on other disks",
        )
    else:
        yield ok(_NAME, f"{archive.spool}, not on {volume.full_name}")
