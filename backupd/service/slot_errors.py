"""Why what was due has failed, in the words of its run: once for the page and for `backupd schedule list`."""

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.schedule import Slot


def error_of_slot(catalogue: Catalogue, slot: Slot | None) -> str:
    """The first line of it; empty where there is none: a drill, a verification or a prune has no run of its own.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    return "" if slot is None or not slot.exit_status else error_of(catalogue, slot.run_id)


def error_of(catalogue: Catalogue, run_id: str) -> str:
    """The same of a run; empty for one that has no row.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    if not run_id:
        return ""
    try:
        run = catalogue.run(run_id)
    except UsageError:
        return ""
    return "" if run.error is None else run.error.first_line
