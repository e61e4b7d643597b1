"""The phases of one run, as hooks, people and the record hear of them.

Knows: in which order these hear of a phase, and that the last hooks hear what became of the run, whatever that is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from backupd.catalogue import RunJournal
from backupd.catalogue.endings import as_told, status_of
from backupd.config import JobConfig
from backupd.host.hooks import Hooks
from backupd.host.signals import require_going_on, shielded
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.records import Phase, RunStatus


@dataclass(frozen=True, slots=True)
class BackupTelling:
    """Whom a run tells how it goes: a progress bar, a test, nobody."""

    phase: Callable[[Phase], None] = lambda _phase: None
    copied: Callable[[int, int], None] = lambda _done, _total: None  # plain bytes
    filled: Callable[[float], None] = lambda _share: None  # of the snapshot's COW area, or of its pool; 0 to 1
    begun: Callable[[tuple[str, ...]], None] = lambda _dead: None  # it has the job, and has cleaned up after these runs


@dataclass(frozen=True, slots=True)
class RunPhases:
    """Where a run stands: the job's hooks, whoever is told, and the record hear of each phase, in that order."""

    run: RunJournal
    telling: BackupTelling
    hooks: Hooks

    @contextmanager
    def enter(
        self,
        phase: Phase,
        *,
        waiting: Callable[[], None] = lambda: None,
        afterwards: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        """The block is this phase; `waiting` looks after the server while a hook runs, and `afterwards` behind it."""
        require_going_on()
        self.hooks.before(phase, waiting=waiting)
        self.telling.phase(phase)
        with self.run.phase(phase):
            yield
        self.hooks.after(phase, waiting=waiting if afterwards is None else afterwards)


@contextmanager
def phases_of(job: JobConfig, run: RunJournal, telling: BackupTelling) -> Iterator[RunPhases]:
    """The block is the run, between its first and its last hooks; the last ones hear what became of it, always."""
    hooks = Hooks(job.hooks.values(), run)
    try:
        hooks.before_run()
        yield RunPhases(run, telling, hooks)
    except BaseException as error:
        with shielded():  # the run is over: a signal that comes now must not take the error's place
            _tell_last_hooks(hooks, run, error)
            raise
    hooks.after_run(run.so_far().status, None)


def _tell_last_hooks(hooks: Hooks, run: RunJournal, error: BaseException) -> None:
    told = as_told(error)
    try:
        row = run.so_far()
        if row.status is RunStatus.RUNNING:
            hooks.after_run(RunStatus.ATTENTION if row.backups else status_of(told), told)
        else:  # the error came after the run was complete
            hooks.after_run(row.status, told)
    except CatalogueError as second:
        error.add_note(second.message)
