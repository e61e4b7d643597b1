"""Backups that were struck as no longer on their target, and are there again.

Knows: that a disk may not have been mounted for a night, or is one of several in turn. What it had counts as before as
soon as it is seen whole; what retention has removed and somebody has fetched back does not, or it would go again. With
the backups' rows went those of the segments that they are rolled forward by: these are known again as well.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from backupd.catalogue.store import Catalogue
from backupd.operations.restore.verify import manifest_of
from backupd.operations.upkeep.rebuild import recorded_here
from backupd.operations.upkeep.rebuild_segments import rebuild_segments
from backupd.targets import BackupSource, Target
from backupd.targets.listing import require_listed
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.records import RunDetails

log = logging.getLogger(__name__)

GONE = "no longer on the target"


def enter_again(
    catalogue: Catalogue, target: Target, job: str, unknown: Sequence[str], *, only_look: bool = False
) -> dict[str, RunDetails]:
    """Of these, which lie there finished and are not on record as being there, what is whole, with the manifest that
    was recorded, has its row as it had it before it was struck; then so have the job's segments there.
    Who is to `only_look` is told the same, and no row changes.

    Raises:
        TargetError: the target cannot be read.
        CatalogueError: it cannot be read or written.
    """
    found: dict[str, RunDetails] = {}
    recorded = catalogue.on_target(job, target.name, unknown) if unknown else {}
    for run_id in unknown:
        run = recorded.get(run_id)
        struck = None if run is None else run.backup_on(target.name)
        if run is None or struck is None or struck.removed_at is None or struck.removed_because != GONE:
            continue
        source = BackupSource(target, job, run_id, catalogue.trust(target.machine, struck))
        try:
            require_listed(target, manifest_of(source))
        except VerificationError as error:
            log.warning("backup %s of job %s is on target %s again, but %s", run_id, job, target.name, error.message)
            continue
        again = replace(struck, removed_at=None, removed_because="")
        if only_look or catalogue.import_run(replace(run, backups=(again,))):
            log.info("backup %s of job %s is on target %s again", run_id, job, target.name)
            found[run_id] = replace(run, backups=tuple(again if one is struck else one for one in run.backups))
    if found and not only_look:
        rebuild_segments(target, catalogue, catalogue.trust(target.machine), job=job, here=recorded_here(catalogue))
    return found
