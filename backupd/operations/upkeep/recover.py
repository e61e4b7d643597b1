"""Give back what dead runs left: the same releases that a run's own end uses.

Knows: which runs are dead (their lock can be taken), and that either the catalogue or a tag on the host is enough.
Refuses to touch what has no tag of this machine's and what belongs to a run that is alive. A machine that has lost
its catalogue, and with it its name, finds what it had made by tag again once it has adopted that name.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.host.holdings import give_back, not_waiting_for_ever
from backupd.host.live_progress import LiveRuns
from backupd.host.signals import shielded
from backupd.operations.ownership import Ownership, ownership_of
from backupd.operations.recorded_copy import copy_on
from backupd.operations.restore.verify import manifest_of
from backupd.operations.tools import HostTools
from backupd.operations.upkeep.dead_run_journal import DeadRunJournal, died
from backupd.operations.upkeep.finishing import MaxRate, finish
from backupd.operations.upkeep.leftovers import HostLeftovers, drill_folders, holdings_of, look_around, suspects
from backupd.operations.upkeep.recovery import Recovery, Remains
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource, Target
from backupd.targets.listing import finished_there, require_listed
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    CatalogueError,
    TargetError,
    Unreadable,
    VerificationError,
)
from backupd.vocabulary.records import DEATH, Holding, HoldingKind

log = logging.getLogger(__name__)

_UNREADABLE = "the catalogue is damaged, not the target: restore a copy of the catalogue, then `backupd recover`"
_ON_TARGETS = (HoldingKind.PARTIAL, HoldingKind.UPLOAD)
_ON_STORAGE = (*_ON_TARGETS, HoldingKind.SPOOL)
_NOT_YET = (
    "its run started before this boot: the machine that this one was cloned from may work on it for two more minutes"
)


def clean_up_dead_runs(
    catalogue: Catalogue,
    tools: HostTools,
    *,
    every_disk: bool = True,
    targets: Collection[str] | None = None,
    spool: Path | None = None,
    finishing: MaxRate | None = None,
    released: Callable[[], None] = lambda: None,
) -> Recovery:
    """Everything that dead runs left is released, as far as it lets itself be; their rows say so.

    Without `every_disk` no disk is read for marks of groups, arrays, probes and spools but this `spool`, and the
    catalogue's rows tell of them alone: a disk that hangs, and is none of the job's, must not keep a backup waiting.
    Nor must the temporary folder, where any user can put any number of files under a name of ours. So it is with
    targets: where some are named (`targets`), what is on others stays for `backupd recover`.

    What is on targets comes behind all that host and server wait for, and one that does not answer is waited for some
    minutes, once. `released` is called after that: whoever begins then finds as much room there as there will be.

    Copies whose bytes may be whole are read back last, at the rate that `finishing` tells, for as long as that takes,
    and become backups. Without it they stay as they are: a run that begins cannot wait for that.

    Runs that are alive are left alone. Nothing is raised for a thing that resists: it is in `left`, logged as ERROR.
    Nor is it where LVM or a disk cannot be asked for marks: what the catalogue's rows tell of is released all the
    same, and what was not looked for is in `unseen`.

    Raises:
        Refused: the catalogue is another machine's: what it says is held is that one's, and may be in use there.
    """
    ownership = ownership_of(catalogue, tools)
    machine = ownership.require_here().name
    spools = tools.places.spools if every_disk else (spool,) if spool is not None else ()
    seen = look_around(tools, machine, spools, every_disk=every_disk)
    found = Remains(unseen=seen.unseen)
    dead: dict[str, bool] = {}
    for run_id in suspects(catalogue, seen):
        with suppress(Busy), tools.claims.run(run_id):
            dead[run_id] = _give_back_host(catalogue, tools, run_id, seen, found)
            if not _on_targets(catalogue, run_id):
                _end(DeadRunJournal(catalogue, run_id), found, whole=dead.pop(run_id))
    for folder in drill_folders(tools):
        with suppress(Busy), tools.claims.run(folder.name):
            holding = Holding(HoldingKind.STAGING, str(folder))
            _give_back(DeadRunJournal(catalogue, folder.name), tools, holding, found)
    if every_disk:
        found.given_back += _abandoned(tools)
    _forget_progress(tools)
    tools.claims.forget_dead()
    for run_id, whole in dead.items():
        with suppress(Busy), tools.claims.run(run_id):
            _recover_targets(ownership, tools, run_id, found, targets=targets, whole=whole)
    released()
    if finishing is None:
        for holding in found.pending:
            log.warning("copy %s of a dead run may be complete: `backupd recover` reads it back", holding.name)
        return found.recovery(pending=found.pending)
    for run_id, copies in found.copies.items():
        with suppress(Busy), tools.claims.run(run_id):
            _finish(ownership, tools, run_id, copies, finishing, found)
    return found.recovery()


def _give_back_host(catalogue: Catalogue, tools: HostTools, run_id: str, seen: HostLeftovers, found: Remains) -> bool:
    """Whether all that this dead run left is released now but what is on targets."""
    journal, resisted = DeadRunJournal(catalogue, run_id), len(found.left)
    at_work: BackupdError | None = None  # a program of the dead run's that must finish, and has not yet
    for holding in holdings_of(catalogue, tools, run_id, seen):
        if holding.kind in _ON_TARGETS:
            continue
        if holding.kind is HoldingKind.FILESYSTEM and at_work is not None:
            found.left.append((holding, at_work))  # it bears no mark of ours: nobody would find it once it is made
        else:
            failure = _give_back(journal, tools, holding, found)
            at_work = failure if holding.kind is HoldingKind.CHILD and failure is not None else at_work
    return len(found.left) == resisted


def _recover_targets(
    ownership: Ownership,
    tools: HostTools,
    run_id: str,
    found: Remains,
    *,
    targets: Collection[str] | None,
    whole: bool,
) -> None:
    """What this dead run left on these targets is released, but for its copies that may be whole; its row says so.

    `whole`: it has left nothing else.
    """
    catalogue = ownership.catalogue
    journal, resisted = DeadRunJournal(catalogue, run_id), len(found.left) + len(found.kept)
    for holding in _on_targets(catalogue, run_id):
        is_copy, target = holding.kind is HoldingKind.PARTIAL, holding.detail["target"]
        if is_copy and journal.has_backup_on(target):
            journal.released(holding)  # it died between its row's success and this row's end
            continue
        elsewhere = targets is not None and target not in targets
        try:
            if not elsewhere and _is_no_remains(ownership, tools, journal, holding, found):
                continue
        except Cancelled:
            raise
        except BackupdError as error:
            found.left.append((holding, error))
            continue
        if is_copy and catalogue.pending_manifest(run_id) is not None:
            found.copies.setdefault(run_id, []).append(holding)
        elif elsewhere:
            whole = False
        else:
            _give_back(journal, tools, holding, found)
    whole = whole and len(found.left) + len(found.kept) == resisted
    _end(journal, found, whole=whole)


def _end(journal: DeadRunJournal, found: Remains, *, whole: bool) -> None:
    """The dead run's row says what became of it."""
    journal.end(whole=whole, pending=found.copies.get(journal.run_id, ()))
    catalogue = journal.catalogue
    if not _copies(catalogue, journal.run_id) and catalogue.pending_manifest(journal.run_id) is not None:
        catalogue.strike_manifest(journal.run_id)  # what was to be finished others have recorded: a rebuild, say
    found.runs.append(journal.run_id)
    log.info("recovered run %s", journal.run_id)


def _is_no_remains(
    ownership: Ownership, tools: HostTools, journal: DeadRunJournal, holding: Holding, found: Remains
) -> bool:
    """Whether this upload or copy stays where it is: it is a backup, or might be at work elsewhere.

    Raises:
        NotOurs: somebody else has written to its folder.
        TargetError: nobody can tell.
    """
    target = tools.target_of(holding)
    if found.answer_of(target, partial(_may_be_at_work, ownership, journal.run_id, target)):
        found.kept.append((holding, _NOT_YET))
        return True
    if holding.kind is not HoldingKind.PARTIAL:
        return False
    is_backup = found.answer_of(target, partial(_is_backup, journal.catalogue, journal.run_id, target, holding))
    if is_backup and _entered(journal.catalogue, journal.run_id, target, holding):
        found.finished.append(holding)
    return is_backup


def _may_be_at_work(ownership: Ownership, run_id: str, target: Target) -> bool:
    """Whether a run whose lock is free here may be alive elsewhere; the folder is this machine's where this returns.

    Raises:
        NotOurs: it is not: whoever has written there last may be the one who is at work.
        TargetError: nobody can tell.
    """
    ownership.take_as_room_allows(target)
    return ownership.may_live_elsewhere(run_id, target)


def _is_backup(catalogue: Catalogue, run_id: str, target: Target, holding: Holding) -> bool:
    """Whether the copy was published although this catalogue knows nothing of that.

    No process of ours publishes what has no manifest in the catalogue yet. The machine was set back since, or is the
    clone of the one that went on with the run.

    Raises:
        TargetError: nobody knows.
    """
    if catalogue.pending_manifest(run_id) is not None:
        return False
    return bool(finished_there(target, holding.detail["job"], [holding.detail["backup"]]))


def _entered(catalogue: Catalogue, run_id: str, target: Target, holding: Holding) -> bool:
    """The catalogue knows of this backup, unless it is not whole: then it stays as well, and is nobody's copy.

    Raises:
        TargetError: nobody knows.
    """
    try:
        trust = catalogue.trust(target.machine)
        manifest = manifest_of(BackupSource(target, holding.detail["job"], holding.detail["backup"], trust))
        require_listed(target, manifest)
    except VerificationError as error:
        log.warning(
            "copy %s was published by another machine, or before this machine was reset to an earlier state: %s",
            holding.name,
            error,
        )
        catalogue.released(run_id, holding)
        return False
    backup, source = copy_on(target, manifest), holding.detail.get("source")
    if source is not None:  # the run itself had ended well long before: only the process that copied it has died
        catalogue.copied(run_id, backup, holding, source=source)
        return True
    text = f"{DEATH}; the copy on {target.name} is complete, and `backupd recover` added it to the catalogue"
    catalogue.finish_dead_run(run_id, backup, holding, text)
    return True


def _finish(
    ownership: Ownership,
    tools: HostTools,
    run_id: str,
    asked: Sequence[Holding],
    finishing: MaxRate,
    found: Remains,
) -> None:
    """What is whole of these copies of a dead run is a backup, what is not is released; the rest waits.

    The run's other copies are not asked: they may be at work elsewhere.
    """
    catalogue = ownership.catalogue
    text = catalogue.pending_manifest(run_id)
    copies = [holding for holding in _copies(catalogue, run_id) if holding in asked]
    if text is None or not copies:  # another `recover` was quicker
        return
    try:
        manifest = manifests.to_publish(manifests.from_text(text.encode()))
    except VerificationError as error:
        hint = error.hint if isinstance(error, Unreadable) else _UNREADABLE
        unread = CatalogueError(f"the catalogue's record of run {run_id} cannot be read: {error.message}", hint=hint)
        log.error("%s", unread.message)
        found.left += [(holding, unread) for holding in copies]
        return
    done = finish(
        catalogue,
        manifest,
        copies[::-1],
        target_of=tools.target_of,
        max_rate=finishing,
        require_ours=ownership.require_ours,
    )
    found.finished += done.finished
    found.left += done.left
    for holding in done.broken:
        try:
            _require_there(ownership, tools.target_of(holding), holding)
        except Cancelled:
            raise
        except BackupdError as error:
            found.left.append((holding, error))
            continue
        _give_back(DeadRunJournal(catalogue, run_id), tools, holding, found)
    if not _copies(catalogue, run_id):
        catalogue.strike_manifest(run_id)
        kind = catalogue.run(run_id).kind
        catalogue.advise(run_id, died(kind, whole=not catalogue.holdings(run_id), pending=()).hint)


def _require_there(ownership: Ownership, target: Target, holding: Holding) -> None:
    """The copy can be removed: nobody else has written to its folder since, and nothing is mounted in its place.

    Raises:
        NotOurs: somebody has.
        TargetError: nobody can tell.
    """
    ownership.require_ours(target)
    if ownership.was_emptied(target) and not target.objects(holding.detail["job"], holding.detail["backup"]):
        raise TargetError(
            f"nothing of it is on target {target.name}, which has been found empty since",
            hint="mount its file system; if it is lost for good: `backupd identity adopt`",
        )


def _give_back(journal: DeadRunJournal, tools: HostTools, holding: Holding, found: Remains) -> BackupdError | None:
    """It is released now, or left with the reason."""
    releases = tools.releases
    if holding.kind in _ON_STORAGE:
        bounded = not_waiting_for_ever(releases[holding.kind], where=_where(holding))
        releases = {**releases, holding.kind: bounded}
    with shielded():
        failure = give_back(journal, holding, releases)
    if failure is None:
        found.given_back.append(holding)
    else:
        found.left.append((holding, failure))
    return failure


def _where(holding: Holding) -> str:
    """The storage that this is on, in words."""
    on_target = holding.kind in _ON_TARGETS
    return f"target {holding.detail['target']}" if on_target else f"the spool {Path(holding.name).parent}"


def _on_targets(catalogue: Catalogue, run_id: str) -> list[Holding]:
    """What a run has written to targets, or begun to."""
    return [holding for _, holding in catalogue.holdings(run_id) if holding.kind in _ON_TARGETS]


def _copies(catalogue: Catalogue, run_id: str) -> list[Holding]:
    """What a run has written to targets, and was not recorded as a backup yet."""
    return [holding for holding in _on_targets(catalogue, run_id) if holding.kind is HoldingKind.PARTIAL]


def _abandoned(tools: HostTools) -> list[Holding]:
    """Temporary folders of processes that were killed; those that are left, if any, are not told from a stranger's."""
    try:
        return [Holding(HoldingKind.STAGING, str(folder)) for folder in tools.files.remove_abandoned()]
    except OSError as error:
        log.warning("temporary folders could not be searched for leftovers of dead processes: %s", error.strerror)
        return []


def _forget_progress(tools: HostTools) -> None:
    """Nobody is told any more how a dead run gets on. It is no holding: the folder is in memory, and may be full."""
    live = LiveRuns(tools.places.run)
    for run_id in live.told():
        with suppress(Busy, OSError), tools.claims.run(run_id):
            live.forget(run_id)
