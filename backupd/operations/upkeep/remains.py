"""What runs have left on this host, by the catalogue and by the marks on the things themselves.

Knows: where to look for it. Refuses to know which of these runs are dead, and releases nothing.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.operations.backup import spool_folder
from backupd.operations.tools import HostTools
from backupd.vocabulary.records import Holding, HoldingKind

log = logging.getLogger(__name__)

Marked = tuple[tuple[Holding, str], ...]  # groups, arrays and spools that bear our marks, each with its run's id


def suspects(catalogue: Catalogue, tools: HostTools, on_disks: Marked) -> list[str]:
    """Runs that hold something, are said to be running, or whose marks or probe folder are here: dead and live ones.

    A bench's probes are runs of their own, RUN-1 and so on, with snapshots of RUN's scratch volumes: they come before
    it in this order, which is also that of time.
    """
    holding = [run_id for run_id, _ in catalogue.holdings()]
    tagged = [run_id for _, _, run_id in tools.snapshots.ours()]
    marked = [run_id for _, run_id in on_disks]
    probing = [run_id for root in tools.files.roots() for run_id in tools.places.probed_by(root)]
    return sorted({*catalogue.unfinished(), *holding, *tagged, *marked, *probing}, reverse=True)


def holdings_of(catalogue: Catalogue, tools: HostTools, run_id: str, on_disks: Marked) -> list[Holding]:
    """By the catalogue, newest first; then by mark and name, for a host whose catalogue was lost."""
    known = [holding for _, holding in catalogue.holdings(run_id)]
    names = {(_as_marked(holding.kind), holding.name) for holding in known}
    mount = Holding(HoldingKind.MOUNT, str(tools.places.mount_point(run_id)), {"run": run_id})
    by_mark = [mount] + [
        Holding(HoldingKind.SNAPSHOT, f"{vg}/{name}", {"run": run_id})
        for vg, name, tagged in tools.snapshots.ours()
        if tagged == run_id
    ]
    by_mark += [
        Holding(HoldingKind.PROBE_FILES, str(tools.places.probe_folder(root, run_id)))
        for root in tools.files.roots()
        if run_id in tools.places.probed_by(root)
    ]
    by_mark += [holding for holding, marked in on_disks if marked == run_id]
    return known + [holding for holding in by_mark if (holding.kind, holding.name) not in names]


def spooled(tools: HostTools, machine: str, roots: Iterable[Path]) -> Marked:
    """What runs of this machine have read and not sent yet, of live ones and dead ones, where a disk tells of it."""
    found: list[tuple[Holding, str]] = []
    for root in roots:
        try:
            found += spool_folder.left_by(tools, machine, root)
        except OSError as error:
            log.warning("%s could not be searched for leftovers of dead runs: %s", root, error.strerror)
    return tuple(found)


def _as_marked(kind: HoldingKind) -> HoldingKind:
    """What a volume of ours is taken for where only its tags tell of it; it is released in the same way."""
    return HoldingKind.SNAPSHOT if kind is HoldingKind.SCRATCH_VOLUME else kind
