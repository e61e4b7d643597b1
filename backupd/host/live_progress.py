"""How a live run gets on, told by its process to others: a small file in `paths.run`, which is in memory.

Knows: where the file is and how it is read while it is written. Not in the catalogue: its writes are made durable,
and the disk may be the one whose cost is being measured.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from backupd.host.own_files import replace_file, run_folder
from backupd.vocabulary.records import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands."""

    phase: Phase
    since: float  # seconds since the epoch: when the phase began
    at: float  # seconds since the epoch: when this was told
    done: int = 0  # plain bytes of the copy
    total: int = 0  # at most; 0 while it is unknown
    cow_fill: float | None = None  # of the snapshot's COW area, or of its pool, 0 to 1; None in a phase without one


class LiveRuns:
    """The files below one folder (`paths.run`)."""

    def __init__(self, folder: Path) -> None:
        self._run = folder
        self._folder = folder / "live"

    def tell(self, run_id: str, progress: Progress) -> None:
        """Others see this from now on.

        Raises:
            OSError: the file cannot be written, or its folder is somebody else's.
        """
        run_folder(self._run, self._folder.name)
        replace_file(self._path(run_id), json.dumps(asdict(progress)).encode(), mode=0o600)

    def forget(self, run_id: str) -> None:
        """Nothing is told of it any more, and no half-written file is left; nothing happens when nothing was told.

        Raises:
            OSError: a file cannot be removed.
        """
        for path in self._folder.glob(f"{run_id}.*"):
            if path.stem == run_id:  # an id may be the beginning of another
                path.unlink(missing_ok=True)

    def told(self) -> tuple[str, ...]:
        """The ids of the runs of which something is here: live ones, and dead ones."""
        return tuple(sorted({path.stem for path in self._folder.glob("*.*")}))

    def of(self, run_id: str) -> Progress | None:
        """What was told last; None where nothing was, or what is there cannot be parsed."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            told = json.loads(self._path(run_id).read_text())
            return Progress(**{**told, "phase": Phase(told["phase"])})
        return None

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"
