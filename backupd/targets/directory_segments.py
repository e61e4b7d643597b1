"""Segments of a binlog archive in a folder of this host: how one gets its name, how they are removed.

Knows: MACHINE/JOB/binlog/NAME, and MACHINE/JOB/.NAME.TOKEN.partial while it is written: beside the backups, of which
there are few, so that nobody has to look through half a million segments for what a dead writer left.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backupd.host.filesystem import sync_folder
from backupd.targets.directory_root import NO_LINKS
from backupd.targets.names import segment_of


def name_segment(unfinished: Path, final: Path) -> None:
    """The segment has its name, and no other; FileExistsError where another one has it.

    A hard link never replaces (link(2)). Where the file system knows none (exFAT, SMB), it is looked for before it is
    renamed: then the last of several writers at the same moment wins, instead of half a segment having the name after
    a power cut.
    """
    try:
        final.hardlink_to(unfinished)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(final):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
        unfinished.rename(final)
    else:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def remove_segments(folder: Path, names: Sequence[str], *, beside: Path) -> None:
    """They are durably not there, nor what dead writers have left of them and of older ones `beside` the folder; at
    least one is named.
    """
    for name in names:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    with os.scandir(beside) as entries:
        unfinished = [(segment_of(entry.name), Path(entry)) for entry in entries]
    for segment, path in unfinished:
        if segment is not None and segment <= max(names):
            path.unlink(missing_ok=True)
