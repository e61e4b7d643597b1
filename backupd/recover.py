"""Give back what dead runs left: the same releases that a run's own end uses.

Knows: which runs are dead (their lock can be taken), and that either the catalogue or a tag on the host is enough.
Refuses to touch what bears no tag of ours and what belongs to a run that is alive.
"""

import logging
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from backupd.catalogue.store import Catalogue
from backupd.errors import Busy, CleanupIncomplete, ExitStatus, UsageError
from backupd.holding import give_back
from backupd.interruption import shielded
from backupd.live import LiveRuns
from backupd.model import Holding, HoldingKind, RunDetails, RunError, RunKind, RunStatus
from backupd.tools import HostTools

log = logging.getLogger(__name__)

Marked = tuple[tuple[Holding, str], ...]  # groups and arrays that bear our marks, each with its run's id

_AGAIN = {
    RunKind.BACKUP: "start the job again when it suits",
    RunKind.PROBE: "no figure of it is kept: probe again when it suits",
    RunKind.BENCH: "no figure of it is kept: `backupd bench layouts` again when it suits",
}


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found of dead runs, and what could not be given back."""

    runs: tuple[str, ...]
    given_back: tuple[Holding, ...]
    left: tuple[tuple[Holding, str], ...]

    def require_complete(self) -> None:
        """Raise when anything of ours is left.

        Raises:
            CleanupIncomplete: naming each thing.
        """
        if self.left:
            raise CleanupIncomplete(
                "; ".join(f"{holding.kind} {holding.name} is left: {why}" for holding, why in self.left),
                hint="remove what keeps it busy, then `backupd recover` again",
            )


def dead_runs(catalogue: Catalogue, tools: HostTools, *, every_disk: bool = True) -> Recovery:
    """Everything that dead runs left is given back, as far as it lets itself be; their rows say so.

    Without `every_disk` no disk is read for marks of groups and arrays, and the catalogue's rows tell of them alone: a
    disk that hangs, and is none of the job's, must not keep a backup waiting.

    Runs that are alive are left alone. Nothing is raised for a thing that resists: it is in `left`, logged as ERROR.
    """
    runs: list[str] = []
    given_back: list[Holding] = []
    left: list[tuple[Holding, str]] = []
    on_disks = tools.scratch_disks.ours() if every_disk else ()
    for run_id in _suspects(catalogue, tools, on_disks):
        with ExitStack() as claimed:
            try:
                claimed.enter_context(tools.claims.run(run_id))
            except Busy:
                continue
            journal, resisted = _DeadRun(catalogue, run_id), len(left)
            for holding in _holdings(catalogue, tools, run_id, on_disks):
                if holding.kind is HoldingKind.PARTIAL and journal.has_backup_on(holding.detail["target"]):
                    journal.released(holding)  # it died between its row's success and this row's end
                    continue
                with shielded():
                    failure = give_back(journal, holding, tools.releases)
                if failure is None:
                    given_back.append(holding)
                else:
                    left.append((holding, failure.message))
            journal.end(whole=len(left) == resisted)
            runs.append(run_id)
            log.info("recovered run %s", run_id)
    for folder in tools.places.drill_folders():
        with ExitStack() as claimed:
            try:
                claimed.enter_context(tools.claims.run(folder.name))
            except Busy:
                continue
            holding = Holding(HoldingKind.STAGING, str(folder))
            with shielded():
                failure = give_back(_DeadRun(catalogue, folder.name), holding, tools.releases)
            if failure is None:
                given_back.append(holding)
            else:
                left.append((holding, failure.message))
    _forget_progress(tools)
    return Recovery(tuple(runs), tuple(given_back), tuple(left))


def _forget_progress(tools: HostTools) -> None:
    """Nobody is told any more how a dead run gets on. It is no holding: the folder is in memory, and may be full."""
    live = LiveRuns(tools.places.run)
    for run_id in live.told():
        with suppress(Busy, OSError), tools.claims.run(run_id):
            live.forget(run_id)


@dataclass(frozen=True, slots=True)
class _DeadRun:
    """The journal of a run that cannot keep one any more."""

    catalogue: Catalogue
    run_id: str

    def hold(self, holding: Holding) -> None:
        """A dead run takes nothing."""
        raise AssertionError(holding)

    def released(self, holding: Holding) -> None:
        """Strike the row."""
        self.catalogue.released(self.run_id, holding)

    def attention(self, text: str) -> None:
        """Said by the log and by `Recovery.left`."""

    def has_backup_on(self, target: str) -> bool:
        """Whether its objects there were verified and recorded: then they are no remains."""
        row = self._row()
        return row is not None and any(backup.target == target for backup in row.backups)

    def end(self, *, whole: bool) -> None:
        """A run that was still `running` is `failed` now; `whole`: nothing that it held is left."""
        row = self._row()
        if row is not None and row.status is RunStatus.RUNNING:
            self.catalogue.end_dead_run(self.run_id, _died(row.kind, whole=whole))

    def _row(self) -> RunDetails | None:
        """None where it is known by its tag only."""
        try:
            row = self.catalogue.run(self.run_id)
        except UsageError:
            return None
        return row if row.run_id == self.run_id else None  # an id may be the beginning of another


def _died(kind: RunKind, *, whole: bool) -> RunError:
    held = "what it held was given back" if whole else "something that it held is left: `backupd recover`"
    return RunError(
        code="died",  # `notices` knows it by this
        message="the run's process ended without a word (killed, or the host went down)",
        hint=f"{held}; {_AGAIN[kind]}",
        exit_status=ExitStatus.INTERNAL,
    )


def _suspects(catalogue: Catalogue, tools: HostTools, on_disks: Marked) -> list[str]:
    """Runs that hold something, are said to be running, or whose marks or probe folder are here: dead and live ones.

    A bench's probes are runs of their own, RUN-1 and so on, with snapshots of RUN's scratch volumes: they come before
    it in this order, which is also that of time.
    """
    holding = [run_id for run_id, _ in catalogue.holdings()]
    tagged = [run_id for _, _, run_id in tools.snapshots.ours()]
    marked = [run_id for _, run_id in on_disks]
    probing = [run_id for root in tools.files.roots() for run_id in tools.places.probed_by(root)]
    return sorted({*catalogue.unfinished(), *holding, *tagged, *marked, *probing}, reverse=True)


def _holdings(catalogue: Catalogue, tools: HostTools, run_id: str, on_disks: Marked) -> list[Holding]:
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


def _as_marked(kind: HoldingKind) -> HoldingKind:
    """What a volume of ours is taken for where only its tags tell of it; it is given back in the same way."""
    return HoldingKind.SNAPSHOT if kind is HoldingKind.SCRATCH_VOLUME else kind
