"""What runs have left on this host, by the catalogue and by the marks on the things themselves.

Knows: where to look for it. Refuses to know which of these runs are dead, and releases nothing.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.operations.copies import spool_folder
from backupd.operations.tools import HostTools
from backupd.vocabulary.errors import BackupdError, Cancelled
from backupd.vocabulary.records import Holding, HoldingKind

log = logging.getLogger(__name__)

Marked = tuple[tuple[Holding, str], ...]  # things that bear our marks, each with its run's id


@dataclass(frozen=True, slots=True)
class HostLeftovers:
    """What bears our marks on this host, of dead runs and live ones, and what could not be asked for more of that."""

    marked: Marked
    unseen: tuple[tuple[str, BackupdError], ...]  # what was looked for, and why it could not be


def look_around(tools: HostTools, machine: str, spools: Iterable[Path], *, every_disk: bool) -> HostLeftovers:
    """Ask each of those that may know once: one that hangs takes its minute, and keeps nobody else from being asked.

    Without `every_disk` no disk is read for marks of groups, arrays and probes.
    """
    unseen: list[tuple[str, BackupdError]] = []

    def asked(what: str, look: Callable[[], Marked]) -> Marked:
        try:
            return look()
        except Cancelled:
            raise
        except BackupdError as error:
            log.error("%s of dead runs could not be looked for: %s", what, error.message)
            unseen.append((what, error))
            return ()

    return HostLeftovers(
        (
            *asked("volumes", lambda: _volumes(tools)),
            *(asked("probe files", lambda: _probe_files(tools)) if every_disk else ()),
            *_searched(spools, partial(spool_folder.left_by, tools, machine)),
            *(asked("groups and arrays", tools.scratch_disks.ours) if every_disk else ()),
        ),
        tuple(unseen),
    )


def drill_folders(tools: HostTools) -> tuple[Path, ...]:
    """Of live drills, and of dead ones; none where that cannot be read, which costs nobody else anything."""
    try:
        return tools.places.drill_folders()
    except OSError as error:
        log.warning("%s could not be searched for leftovers of dead drills: %s", tools.places.staging, error.strerror)
        return ()


def suspects(catalogue: Catalogue, seen: HostLeftovers) -> list[str]:
    """Runs that hold something, are said to be running, have copies to finish, or whose marks are here: dead and live
    ones.

    A bench's probes are runs of their own, RUN-1 and so on, with snapshots of RUN's scratch volumes: they come before
    it in this order, which is also that of time.
    """
    holding = [run_id for run_id, _ in catalogue.holdings()]
    marked = [run_id for _, run_id in seen.marked]
    return sorted({*catalogue.unfinished(), *catalogue.pending_manifests(), *holding, *marked}, reverse=True)


def holdings_of(catalogue: Catalogue, tools: HostTools, run_id: str, seen: HostLeftovers) -> list[Holding]:
    """By the catalogue, newest first; then by mark and name, for a host whose catalogue was lost."""
    known = [holding for _, holding in catalogue.holdings(run_id)]
    names = {(_as_marked(holding.kind), holding.name) for holding in known}
    mount = Holding(HoldingKind.MOUNT, str(tools.places.mount_point(run_id)), {"run": run_id})
    by_mark = [mount, *(holding for holding, marked in seen.marked if marked == run_id)]
    return known + [holding for holding in by_mark if (holding.kind, holding.name) not in names]


def _volumes(tools: HostTools) -> Marked:
    return tuple(
        (Holding(HoldingKind.SNAPSHOT, f"{vg}/{name}", {"run": run_id}), run_id)
        for vg, name, run_id in tools.snapshots.ours()
    )


def _probe_files(tools: HostTools) -> Marked:
    return _searched(tools.files.roots(), partial(_probe_folders, tools))


def _probe_folders(tools: HostTools, root: Path) -> Marked:
    places = tools.places
    return tuple(
        (Holding(HoldingKind.PROBE_FILES, str(places.probe_folder(root, run_id))), run_id)
        for run_id in places.probed_by(root)
    )


def _searched(roots: Iterable[Path], search: Callable[[Path], Iterable[tuple[Holding, str]]]) -> Marked:
    """What is found in those of these folders that can be read."""
    found: list[tuple[Holding, str]] = []
    for root in roots:
        try:
            found += search(root)
        except OSError as error:
            log.warning("%s could not be searched for leftovers of dead runs: %s", root, error.strerror)
    return tuple(found)


def _as_marked(kind: HoldingKind) -> HoldingKind:
    """What a volume of ours is taken for where only its tags tell of it; it is released in the same way."""
    return HoldingKind.SNAPSHOT if kind is HoldingKind.SCRATCH_VOLUME else kind
