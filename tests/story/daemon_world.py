"""A machine that goes by schedules: a real catalogue, a clock that is set by hand, and processes in memory.

Knows: how the daemon's parts are put together. Refuses to know what a daemon should do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.cli.failure_answers import failure_answers
from backupd.config import BackupScheduleConfig, Configuration, HostConfig, JobConfig, PathsConfig, ServiceConfig
from backupd.config import SchedulesConfig as Schedules
from backupd.config.targets import SftpConfig, TargetKind
from backupd.host.claims import Claims
from backupd.service.dispatch import Dispatch
from backupd.service.running_slots import Going
from backupd.service.site import Site
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.schedule import Activity, Notice, NoticeKind, Slot, SlotState
from tests.fakes.launcher import FakeChild, FakeLauncher

# Elsewhere, so that nobody looks for its room.
VAULT = SftpConfig(
    name="vault",
    type=TargetKind.SFTP,
    address="nas",
    user="backupd",
    path=Path("/backups"),
    key_file=Path("/etc/backupd/key"),
)

MORNING = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NIGHTLY = BackupScheduleConfig(cron="0 3 * * *")
HOURLY = BackupScheduleConfig(cron="0 * * * *", start_within_seconds=1800)


def job(name: str, *, host: str = "db1", **schedules: BackupScheduleConfig) -> JobConfig:
    """A job with these schedules."""
    return JobConfig(name=name, host=host, targets=("vault",), schedules=Schedules(**schedules))


@dataclass
class Machine:
    """What a daemon finds, and what stays when it ends."""

    folder: Path
    catalogue: Catalogue
    now: datetime = MORNING
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    told: list[Notice] = field(default_factory=list)
    configuration: Configuration = field(init=False)
    dispatch: Dispatch = field(init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.configuration = Configuration(
            paths=PathsConfig(run=self.folder / "run", log=self.folder / "log"),
            service=ServiceConfig(zone="UTC", max_runs=8),
            hosts={name: HostConfig(name=name) for name in ("db1", "db2", "db3")},
            targets={VAULT.name: VAULT},
        )

    def schedule(self, *jobs: JobConfig, max_runs: int = 8) -> None:
        """The configuration has these jobs from now on; a daemon that runs is told of it."""
        service = replace(self.configuration.service, max_runs=max_runs)
        self.configuration = replace(self.configuration, jobs={job.name: job for job in jobs}, service=service)
        if hasattr(self, "dispatch"):
            self.dispatch.go_by(self._site())

    def start(self, *jobs: JobConfig, max_runs: int = 8) -> None:
        """A daemon begins; one that ran before is gone, and what it had started is not."""
        if jobs:
            self.schedule(*jobs, max_runs=max_runs)
        site = self._site()
        going = Going(site, self.launcher, Claims(self.configuration.paths.run))
        self.dispatch = Dispatch(
            *(site, going, self.told.append, lambda: f"r{next(self._numbers)}"), began=self.now, answers=failure_answers
        )
        self.dispatch.go_by(site)
        self.dispatch.adopt()
        self.dispatch.look()

    def at(self, now: datetime) -> None:
        """The machine's clock shows this, and the daemon looks."""
        self.now = now
        self.dispatch.look()

    def after(self, **passed: float) -> None:
        """So much later."""
        self.at(self.now + timedelta(**passed))

    def fail_run(self, run_id: str, *, job: str = "nightly", after: Callable[[], None] = lambda: None) -> None:
        """A run is in the catalogue, and is at work while `after` is; then it fails as runs do."""
        with suppress(ServerError), self.catalogue.open_run(job, "db1", run_id=run_id):
            after()
            raise ServerError("the server has gone away")

    def slots(self, job: str | None = None, activity: Activity | None = None) -> list[tuple[datetime, SlotState]]:
        """What was decided, the oldest first."""
        found = self.catalogue.slots(job=job, activity=activity, limit=None)
        return sorted((slot.due_at, slot.state) for slot in found)

    def newest(self, job: str = "nightly") -> Slot:
        """The last that was decided of this job."""
        return self.catalogue.slots(job=job)[0]

    def process(self, job: str = "nightly") -> FakeChild:
        """What was started last for it."""
        return next(self.launcher.processes[slot] for slot in reversed(self.launcher.started) if slot.job == job)

    def _site(self) -> Site:
        return Site(self.configuration, self.catalogue, lambda: self.now)


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """One whose catalogue is in this folder; no daemon runs yet. Whatever failure it tells of, it answers questions."""
    with Catalogue.open(folder / "catalogue.sqlite") as catalogue:
        made = Machine(folder, catalogue)
        yield made
        require_answers(made.told)


def require_answers(told: Iterable[Notice]) -> None:
    """Whoever is woken is told whether there is another good copy, what is tried next, and what to type now."""
    for notice in told:
        if notice.kind in (NoticeKind.FAILED, NoticeKind.MISSED):
            assert {"another good copy", "next try", "type now"} <= notice.detail.keys(), notice
