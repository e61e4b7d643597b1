"""Whether a run lives, by the process that the catalogue has of it.

Refuses to decide what may be taken away from a run: who does that asks for its lock.
"""

from backupd.catalogue.store import Catalogue
from backupd.host.process import is_alive


def live_process(catalogue: Catalogue, run_id: str) -> tuple[int, int] | None:
    """The run's pid, and its start in clock ticks since boot; None where the process is gone, or none is known.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    process = catalogue.process_of(run_id)
    return process if is_alive(process) else None


def run_is_alive(catalogue: Catalogue, run_id: str) -> bool:
    """Whether the run's process is there. Raises as `live_process` does."""
    return live_process(catalogue, run_id) is not None
