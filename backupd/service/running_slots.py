"""What was started and has not ended: by this daemon, by one before it, and by people.

Knows: which of it is alive, and what is in the way of starting more.

One run of a job and one in a volume group is what the runs' own claims see to. They are looked at here all the same: a
run that is told that it is busy has used up its slot, and one that waits has not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backupd.config import Configuration
from backupd.host.claims import Claims
from backupd.operations.liveness import run_is_alive
from backupd.service.launch import Child, Launcher, mark_of
from backupd.service.site import Site
from backupd.vocabulary.errors import ExitStatus, UsageError
from backupd.vocabulary.records import RunDetails, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, Slot, SlotState

RUNS = (Activity.BACKUP, Activity.PROBE)  # each has a row of its own among the runs
_ALONE = (Activity.BACKUP, Activity.PROBE, Activity.PRUNE)  # of one job never two at a time
_BESIDE_NONE = (*_ALONE, Activity.CHECK)  # waits for these; nothing waits for a check, which may hang as a target does
_COMING_SECONDS = 60.0  # so long may it take until something that was started shows itself
_NO_START = (None, 1)  # nobody saw that it began: systemd-run ends with 1 where systemd takes too long to answer
_UNSURE = (*_NO_START, 0)  # nobody saw its end: systemd-run ends with 0 where systemd executes itself anew


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of something that was started in a slot."""

    slot: Slot
    exit_status: int | None  # None: nobody saw it
    run: RunDetails | None  # its row; None where it made none, or is no run
    retry_at: datetime | None = None  # when it is tried again; None: it is not


@dataclass(slots=True)
class Going:
    """Slots whose work goes on, each with its process."""

    site: Site
    launcher: Launcher
    claims: Claims
    _children: dict[Slot, Child] = field(default_factory=dict)

    def adopt(self) -> tuple[Slot, ...]:
        """What earlier daemons have started is watched from now on.

        Raises:
            CatalogueError: the catalogue cannot be read.
        """
        found = self.site.catalogue.slots(state=SlotState.STARTED, limit=None)
        known = {mark_of(slot) for slot in self._children}  # what is about to end has written into its row
        adopted = tuple(slot for slot in found if mark_of(slot) not in known)
        self._children.update({slot: self.launcher.find(slot) for slot in adopted})
        return adopted

    def start(self, slot: Slot) -> None:
        """It continues from now on. The slot has been taken.

        Raises:
            CommandError: it could not be started.
        """
        self._children[slot] = self.launcher.start(slot)

    def slots(self) -> tuple[Slot, ...]:
        """What goes on, the oldest first."""
        return tuple(sorted(self._children, key=lambda slot: (slot.decided_at, slot.job)))

    def ended(self) -> Iterator[Ended]:
        """What has ended since the last look; the catalogue says so before it is told here.

        Raises:
            CatalogueError: the catalogue cannot be read or written; then the next look tells it.
        """
        for slot, child in list(self._children.items()):
            if not child.ended():
                continue
            run = self.run_of(slot)
            if child.exit_status in _NO_START and self._may_still_come(slot, run):
                continue
            status = self._status(slot, run, child.exit_status)
            retry_at = self.site.catalogue.slot_ended(slot, exit_status=status)
            del self._children[slot]
            yield Ended(slot, status, run, retry_at)

    def dead_runs(self) -> tuple[str, ...]:
        """Runs that are said to be running, and whose process is gone."""
        catalogue = self.site.catalogue
        return tuple(run_id for run_id in catalogue.unfinished() if not run_is_alive(catalogue, run_id))

    def leftovers(self) -> Mapping[str, str]:
        """What runs still hold for which no process acts any more, whatever became of them: its name, and its run."""
        held = self.site.catalogue.holdings()
        nobody = {run_id for run_id in {run_id for run_id, _ in held} if not self._is_acted_for(run_id)}
        return {f"{holding.kind} {holding.name}": run_id for run_id, holding in held if run_id in nobody}

    def _is_acted_for(self, run_id: str) -> bool:
        """By the run itself, or by a restore of it, which holds things in its name."""
        return self.claims.holder_of_run(run_id) is not None or run_is_alive(self.site.catalogue, run_id)

    def obstacle(self, job: str, activity: Activity) -> str | None:
        """What is in the way of starting this now, in words; None where nothing does.

        Raises:
            CatalogueError: the catalogue cannot be read.
        """
        if any((slot.job, slot.activity) == (job, activity) for slot in self._children):
            return f"the {activity} before it was still running"
        if activity not in _BESIDE_NONE:
            return None
        for slot in self._children:
            if slot.job == job and slot.activity in _ALONE:
                return f"the {slot.activity} of job {job} was still running"
        if holder := self.claims.holder_of_job(job):
            return f"job {job} was held by {holder}"
        return self._of_runs(job) if activity in RUNS else None

    def _of_runs(self, job: str) -> str | None:
        live = self._live()
        if job in live.values():
            return f"another run of job {job} was still running"
        host = self.site.configuration.jobs[job].host
        for run_id, other in live.items():
            if _host(self.site.configuration, other) == host:  # the same server, so the same volume group
                return f"run {run_id} of job {other} was still running on host {host}"
        vg = self.site.catalogue.last_volume_group(job)
        if vg is not None and (holder := self.claims.holder_of_volume_group(vg)):
            return f"volume group {vg} was held by {holder}"
        most = self.site.configuration.service.max_runs
        if len(live) >= most:
            return f"{len(live)} of at most {most} runs were running: {', '.join(live)}"
        return None

    def _live(self) -> dict[str, str]:
        """Runs that go on, whoever began them, each with its job. The probe that a bench is at counts as the bench."""
        catalogue = self.site.catalogue
        ours = {slot.run_id: slot.job for slot in self._children if slot.activity in RUNS}
        others = [catalogue.run(run_id) for run_id in catalogue.unfinished() if run_is_alive(catalogue, run_id)]
        benches = {run.pid for run in others if run.kind is RunKind.BENCH}
        return ours | {
            run.run_id: run.job
            for run in others
            if run.run_id not in ours and not (run.kind is RunKind.PROBE and run.pid in benches)
        }

    def run_of(self, slot: Slot) -> RunDetails | None:
        """Of the slot's newest try; None where there is none.

        Raises:
            CatalogueError: the catalogue cannot be read.
        """
        if slot.activity not in RUNS:
            return None
        try:
            return self.site.catalogue.run(slot.run_id)
        except UsageError:
            return None

    def _status(self, slot: Slot, run: RunDetails | None, seen: int | None) -> int | None:
        """What it ended with: where that may not be what was seen, it is asked itself. A 1 that was seen is no success:
        a run that is good may fail afterwards, as it prunes.
        """
        told = self._told_by_itself(slot, run) if seen in _UNSURE else None
        return seen if told is None or (seen == 1 and told in (ExitStatus.OK, ExitStatus.ATTENTION)) else told

    def _told_by_itself(self, slot: Slot, run: RunDetails | None) -> int | None:
        """Of a run by its own row, of all else by the slot's; None where it died."""
        if slot.activity in RUNS:
            return None if run is None else _status_of(run)
        here = self.site.catalogue.slots(job=slot.job, activity=slot.activity, since=slot.due_at, until=slot.due_at)
        return here[0].exit_status

    def _may_still_come(self, slot: Slot, run: RunDetails | None) -> bool:
        """It was started a moment ago, by a daemon that is gone or by what gave up on it: it may be no process yet."""
        begun = slot.decided_at
        now: datetime = self.site.now()
        return run is None and begun <= now < begun + timedelta(seconds=_COMING_SECONDS)


def _host(configuration: Configuration, job: str) -> str | None:
    known = configuration.jobs.get(job)
    return None if known is None else known.host


def _status_of(run: RunDetails) -> int:
    """What a run's row tells of it."""
    if run.status is RunStatus.RUNNING:
        return int(ExitStatus.INTERNAL)  # it has died, as `recover` will find
    if run.error is not None:
        return run.error.exit_status
    attention = run.status is RunStatus.ATTENTION and run.kind is RunKind.BACKUP
    return int(ExitStatus.ATTENTION if attention else ExitStatus.OK)
