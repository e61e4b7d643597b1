"""Whether the server sees in its folders what we see there: it may have mounts that nobody else has.

Knows: the mounts of its process. A further volume of its container (`docker run -v /mnt/nvme/redo:/var/lib/mysql/redo`)
and BindPaths= of its unit leave an empty folder to everybody else, and to each snapshot. Folders are told apart by
where they lie, device and path in the file system, because their names may differ in a container.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from backupd.host.mountinfo import mounts, place, shown_at
from backupd.vocabulary.errors import ServerError


def require_same_view(process: int, datadir: Path, paths: Iterable[Path]) -> None:
    """This process, whose datadir that is, sees these (resolved) paths too, and within them only mounts that we see.

    Of a process that has ended, that is hidden, or whose mounts do not show the datadir, nothing is told.

    Raises:
        ServerError: it has something else there.
    """
    ours = mounts()
    with suppress(OSError):
        theirs = mounts(process)
        for path in dict.fromkeys((datadir, *paths)):
            there = place(path, ours)
            seen = tuple(shown_at(there, theirs)) if there is not None else ()
            if not seen and path == datadir:
                return
            if not seen:
                raise _other_files(path, process)
            for at in (path,) if path in seen else seen:
                for inner in (one.path for one in theirs if one.path != at and one.path.is_relative_to(at)):
                    here = path / inner.relative_to(at)
                    if place(inner, theirs) != place(here, ours):
                        raise _other_files(here, process)


def _other_files(path: Path, process: int) -> ServerError:
    return ServerError(
        f"the server (process {process}) has other files at {path} than are seen here: it has a mount of its own",
        hint="a snapshot would lack them: move them onto the datadir's volume, and remove that volume from the server's"
        f" container, or BindPaths= from its unit; see /proc/{process}/mountinfo",
    )
