"""A catalogue of a few weeks, plausible and made up, for pages that are looked at.

Knows: two shops' worth of runs, good and bad, and a run that goes on now. Every host and job is named so that nobody
takes it for a measurement. Instants count back from `now`, which pages are shown at.
"""

import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert, update

from backupd.catalogue import tables
from backupd.catalogue.columns import to_row
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, load
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.process import start_time
from backupd.host.run_log import RunLogs
from backupd.service.site import Site
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Sample, Throughput, Verdict
from backupd.vocabulary.records import Check, Drill, Phase, Pin, RunDetails, RunError, RunStatus, SnapshotFacts
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.servers import LockReceipt, Position
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout
from tests.binlog_segments import CHAIN, FIRST

NOW = datetime(2026, 11, 21, 2, 41, 30, tzinfo=UTC)
LIVE, FAILED, ATTENTION, GOOD = "sample-shop-live", "sample-shop-failed", "sample-shop-attention", "sample-shop-good"

_GIB, _MIB = 1 << 30, 1 << 20
_NIGHTS = 42


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    host: str
    hour: int
    size: int
    targets: tuple[str, ...]


_JOBS = (
    _Job("sample-shop", "sample-db1", 2, 41 * _GIB, ("vault", "offsite")),
    _Job("sample-archive", "sample-db2", 4, 180 * _GIB, ("vault",)),
)


@contextmanager
def sample_site(folder: Path, *, nights: int = _NIGHTS) -> Iterator[Site]:
    """The site at `NOW` after so many nights, with a run that is copying for as long as this process lives."""
    configuration = _configuration(folder)
    with Catalogue.open(configuration.catalogue.path) as catalogue:
        _Past(catalogue, random.Random(6)).write(nights)
        _live(catalogue, configuration)
        archived(catalogue)
        yield Site(configuration, catalogue, now=lambda: NOW)


def _configuration(folder: Path) -> Configuration:
    for target in ("vault", "offsite"):
        (folder / target).mkdir()
    path = folder / "backupd.toml"
    path.write_text(
        f"""
        [catalogue]
        path = "{folder}/catalogue.sqlite"
        [paths]
        run = "{folder}/run"
        staging = "{folder}/staging"
        log = "{folder}/log"
        [service]
        zone = "Europe/Berlin"
        [hosts.sample-db1]
        socket = "{folder}/mysqld.sock"
        user = "backupd"
        [hosts.sample-db2]
        address = "127.0.0.1"
        user = "backupd"
        [targets.vault]
        type = "directory"
        path = "{folder}/vault"
        [targets.offsite]
        type = "directory"
        path = "{folder}/offsite"
        [jobs.sample-shop]
        host = "sample-db1"
        targets = ["vault", "offsite"]
        drill_within = "30d"
        schedules.backup = {{ cron = "30 3 * * *" }}
        schedules.drill = {{ cron = "0 12 * * sun" }}
        schedules.probe = {{ cron = "0 13 * * sat" }}
        binlog.spool = "{folder}/binlog"
        [jobs.sample-archive]
        host = "sample-db2"
        targets = ["vault"]
        drill_within = "14d"
        schedules.backup = {{ cron = "0 5 * * *", spread = "20m" }}
        """
    )
    return load(path)


@dataclass
class _Past:
    """Night after night."""

    catalogue: Catalogue
    chance: random.Random

    def write(self, nights: int) -> None:
        for night in range(nights, 0, -1):
            for job in _JOBS:
                self._night(job, night)
        missed = Slot(
            "sample-archive", Activity.BACKUP, self._at(_JOBS[1], 2), SlotState.MISSED, self._at(_JOBS[1], 2),
            reason="the machine was off until 11:20 UTC, later than start_within (4 h)",
        )  # fmt: skip
        self.catalogue.take_slot(missed)
        self.catalogue.pause("sample-archive", "until the new disks are in")

    def _at(self, job: _Job, night: int) -> datetime:
        return (NOW - timedelta(days=night)).replace(hour=job.hour, minute=30, second=0)

    def _night(self, job: _Job, night: int) -> None:
        if job.name == "sample-archive" and night == 2:
            return
        run_id = f"{self._at(job, night):%Y%m%d-%H%M%S}-{job.host[-1]}{night:03x}"
        if job.name == "sample-shop":
            run_id = {1: GOOD, 3: FAILED, 4: ATTENTION}.get(night, run_id)
        self._slot(job, night, run_id, exit_status={FAILED: 7, ATTENTION: 3}.get(run_id, 0))
        run = self._good(job, night, run_id)
        if run_id == FAILED:
            run = self._given_up(run)
        if run_id == ATTENTION:
            run = replace(
                run, status=RunStatus.ATTENTION,
                verdict=Verdict(GateOutcome.START, Reason.MAX_WAIT, "ratio 1.61 over 3 windows", 1800.0),
                attention=(
                    "the copy started before the penalty had settled (max-wait): ratio 1.61 over 3 windows",
                    "target offsite dropped out of this run: connection reset by peer",
                ),
                backups=run.backups[:1],
            )  # fmt: skip
        if night > 30:
            gone = self._at(job, night - 30)
            run = replace(
                run,
                backups=tuple(
                    replace(one, removed_at=gone, removed_because="not kept by keep_last 30") for one in run.backups
                ),
            )
        if night == 20 and job.name == "sample-shop":
            run = replace(run, pin=Pin("before the migration to 11.4", self._at(job, 20)))
        record(self.catalogue, run)
        self.catalogue.slot_ended(
            self._slot_of(job, night, run_id), exit_status={FAILED: 7, ATTENTION: 3}.get(run_id, 0)
        )

    def _slot_of(self, job: _Job, night: int, run_id: str) -> Slot:
        at = self._at(job, night)
        return Slot(job.name, Activity.BACKUP, at, SlotState.STARTED, at, run_id=run_id)

    def _slot(self, job: _Job, night: int, run_id: str, *, exit_status: int) -> None:
        self.catalogue.take_slot(self._slot_of(job, night, run_id))

    def _good(self, job: _Job, night: int, run_id: str) -> RunDetails:
        began = self._at(job, night)
        grown = job.size * (1 + (_NIGHTS - night) / 150)
        first, settle = self._about(3.4, 0.15), self._about(95, 0.25)
        hold = self._about(0.031, 0.3) * (6.5 if (job.name, night) == ("sample-shop", 12) else 1)
        rate = self._about(118 * _MIB, 0.08) * (0.45 if (job.name, night) == ("sample-archive", 9) else 1)
        phases = {
            Phase.PREFLIGHT: self._about(1.4), Phase.BASELINE: 9.6, Phase.LOCK_WAIT: self._about(0.2),
            Phase.LOCK_HOLD: hold, Phase.SNAPSHOT: hold * 0.7, Phase.SETTLE: settle, Phase.COPY: grown / rate,
            Phase.RELEASE: self._about(1.8), Phase.VERIFY: grown / rate * 0.4,
        }  # fmt: skip
        ended = began + timedelta(seconds=sum(phases.values()))
        backups = tuple(
            Backup(
                target, f"/srv/{target}/{job.name}/{run_id}", int(grown), int(grown * 0.31), 1204,
                f"{self.chance.getrandbits(256):064x}", verified_at=ended,
            )
            for target in job.targets
        )  # fmt: skip
        drills: tuple[Drill, ...] = ()
        if night % 7 == 6 and job.name == "sample-shop":
            drills = (Drill(run_id, True, _CHECKS, 412.0, ended + timedelta(hours=9)),)
        return RunDetails(
            run_id, job.name, job.host, "", RunStatus.SUCCESS, began, ended,
            phases=phases,
            verdict=Verdict(GateOutcome.START, Reason.SETTLED, "ratio 1.19 over 3 windows", settle),
            position=Position(
                f"binlog.{1200 - night:06d}", 4 * _MIB + night * 991, f"0-1-{9_000_000 - night * 71_113}"
            ),
            lock=LockReceipt("backup-stage", 1, phases[Phase.LOCK_WAIT], hold, "metadata-locks", 1 << 33, stalled=6),
            bill=Bill(
                settle + grown / rate, self._about(0.4 * settle), int(self._about(1.9 * _GIB)), 3, settle, grown / rate
            ),
            losses=Losses(Counted.LOGGED, settle + grown / rate, 412.0, 408.0, int(380 * (settle + grown / rate)), 900),
            snapshot=SnapshotFacts(
                f"backupd-{run_id}", "vg0/mysql", Layout.STRIPED, 3, 64 << 10, 64 << 10, 8 * _GIB,
                int(self._about(1.9 * _GIB, 0.2)),
            ),
            samples=self._samples(first, settle, grown / rate), backups=backups, drills=drills,
            throughput=(
                Throughput("read", int(grown), grown / (410 * _MIB)), Throughput("compress", int(grown), grown / rate),
                Throughput("write:vault", int(grown * 0.31), grown * 0.31 / (190 * _MIB)),
            ),
        )  # fmt: skip

    def _given_up(self, run: RunDetails) -> RunDetails:
        shown = tuple(sample for sample in run.samples if sample.stage != "copy")
        return replace(
            run, status=RunStatus.FAILED, ended_at=run.started_at + timedelta(seconds=131), backups=(), throughput=(),
            phases={
                **{phase: run.phases[phase] for phase in run.phases if phase not in (Phase.COPY, Phase.VERIFY)},
                Phase.SETTLE: 64.0,
            },
            samples=tuple(_worsening(sample) for sample in shown if sample.at_seconds < 64),
            verdict=Verdict(GateOutcome.GIVE_UP, Reason.LIMIT, "penalty 6.31 is above limits.max_penalty (6.0)", 64.0),
            error=RunError(
                "gave-up", "backup aborted (limit): penalty 6.31 is above limits.max_penalty (6.0)",
                "see `backupd show RUN`; extend the volume group, raise the job's limits, or choose a quieter hour", 7,
            ),
        )  # fmt: skip

    def _samples(self, first: float, settle: float, copy: float) -> tuple[Sample, ...]:
        found = [
            Sample(-9.0 + 3 * i, "baseline", iops=self._about(410, 0.03), ratio=1.0, write_latency_ms=2.2)
            for i in range(3)
        ]
        used = 0
        for at in _steps(settle, 30):
            value = 1.12 + (first - 1.12) * math.exp(-at / (settle / 3.6)) * self._about(1, 0.04)
            used += int(30 * _MIB * value)
            found.append(self._sample("settle", at, value, used))
        for at in _steps(copy, 40):
            used += int(12 * _MIB)
            found.append(self._sample("copy", settle + at, self._about(1.22, 0.03), used))
        return tuple(found)

    def _sample(self, stage: str, at: float, value: float, used: int) -> Sample:
        return Sample(
            at, stage, iops=410 / value, ratio=value, latency_p95_ms=3.1 * value, probe_bytes=_MIB, cow_used=used,
            cow_rate=self._about(14 * _MIB, 0.15) * (value - 1) * 2, write_latency_ms=2.2 * value,
        )  # fmt: skip

    def _about(self, typical: float, spread: float = 0.1) -> float:
        return typical * self.chance.lognormvariate(0, spread)


_CHECKS = (
    Check("server starts", True, "ready", "ready"),
    Check("tables", True, "214 tables whole", "214 tables whole"),
    Check("canary row", True, "written before the lock", "written before the lock"),
    Check("position", True, "binlog.001194:4200250", "binlog.001194:4200250"),
)


def _worsening(sample: Sample) -> Sample:
    ratio = (sample.ratio or 1.0) + max(0.0, sample.at_seconds) * 0.081
    return replace(sample, ratio=ratio, write_latency_ms=2.2 * ratio)


def record(catalogue: Catalogue, run: RunDetails) -> None:
    """All of a run, as if it had told it at its time: `import_run` takes no more than manifests have."""
    catalogue.import_run(replace(run, machine=catalogue.identity().name))
    with catalogue._engine.begin() as connection:
        if run.samples:
            connection.execute(
                insert(tables.samples), [{**to_row(sample), "run_id": run.run_id} for sample in run.samples]
            )
        if run.error is not None:
            connection.execute(insert(tables.errors).values({**to_row(run.error), "run_id": run.run_id}))


def end(catalogue: Catalogue, run_id: str) -> None:
    """The run has failed, as far as the catalogue knows."""
    catalogue.end_dead_run(
        run_id, RunError("died", "the run's process died without reporting an error", "start it again", 1)
    )


def _live(catalogue: Catalogue, configuration: Configuration) -> None:
    """A run that is copying: its process is this one."""
    past = _Past(catalogue, random.Random(7))
    began = NOW - timedelta(seconds=690)
    run = past._good(_JOBS[0], 0, LIVE)
    done = (Phase.PREFLIGHT, Phase.BASELINE, Phase.LOCK_WAIT, Phase.LOCK_HOLD, Phase.SNAPSHOT, Phase.SETTLE)
    run = replace(
        run, status=RunStatus.RUNNING, started_at=began, ended_at=None, backups=(), drills=(), throughput=(),
        phases={phase: run.phases[phase] for phase in done},
        samples=tuple(sample for sample in run.samples if sample.at_seconds < 300),
    )  # fmt: skip
    record(catalogue, run)
    with catalogue._engine.begin() as connection:
        mine = {"pid": os.getpid(), "process_start": start_time(os.getpid())}
        connection.execute(update(tables.runs).where(tables.runs.c.run_id == LIVE).values(mine))
    at = NOW.timestamp()
    total = int(_JOBS[0].size * 1.28)
    LiveRuns(configuration.paths.run).tell(
        LIVE, Progress(Phase.COPY, since=at - 210, at=at - 0.5, done=int(total * 0.43), total=total)
    )
    log = RunLogs(configuration.paths.log).path(LIVE)
    log.parent.mkdir()
    log.write_text(
        "".join(
            f"{began + timedelta(seconds=after):%Y-%m-%dT%H:%M:%S}.000Z {level:7} [{LIVE}] {text}\n"
            for after, level, text in (
                (0.1, "INFO", "preflight: begun"),
                (1.2, "WARNING", "binlog: it expires after 3 days; hint: keep it for as long as the newest backup"),
                (1.5, "INFO", "preflight: ended after 1.4 s"),
                (1.5, "INFO", "baseline: begun"),
                (11.1, "INFO", "baseline: ended after 9.6 s"),
                (11.4, "INFO", "lock: held for 0.031 s; confirmed by metadata-locks"),
                (11.4, "INFO", "settle: begun"),
                (106.0, "INFO", "gate opened after 1 min 35 s (settled): penalty 1.19 (threshold 1.25)"),
                (106.0, "INFO", "settle: ended after 95.2 s"),
                (106.1, "INFO", "copy: begun"),
                (107.0, "INFO", 'a statement of <somebody\'s> & "others" is escaped'),
            )
        )
    )


def archived(catalogue: Catalogue) -> None:
    """The binlog of `sample-shop` is archived for nine nights, with a gap of two days; a target lacks the newest."""
    machine = catalogue.identity().name
    told: list[BinlogSegment] = []
    segment = replace(FIRST, machine=machine, job="sample-shop", gtid_start="", gtid_end="")
    for night in range(9, 0, -1):
        began = (NOW - timedelta(days=night)).replace(hour=2, minute=30, second=0) - timedelta(hours=5.5)
        for part in range(12):
            at = began + timedelta(hours=2 * part + 2)
            if at > NOW or night == 3 or (night == 4 and part > 7) or (night == 2 and part < 2):
                continue
            lost = (night, part) == (2, 2)
            segment = replace(
                segment, chain="20261119T020000Z-89abcdef" if night < 3 else CHAIN,
                number=1 if not told or lost else segment.number + 1,
                previous="" if not told or lost else segment.digest, digest=f"{len(told) + 1:064x}",
                file=f"binlog.{1200 - night:06}", start=4 + part * 1_468_006, end=4 + (part + 1) * 1_468_006,
                file_ended=part == 11, first_at=at - timedelta(hours=2), last_at=at - timedelta(seconds=1),
                received_at=at,
            )  # fmt: skip
            told.append(segment)
    newest = replace(
        segment, number=segment.number + 1, previous=segment.digest, digest="f" * 64, received_at=NOW,
        file="binlog.001200", start=4, end=900_004, file_ended=False,
        first_at=segment.last_at, last_at=NOW - timedelta(seconds=7),
    )  # fmt: skip
    for target in ("vault", "offsite"):
        catalogue.import_segments(told, target, at=NOW)
    catalogue.add_segment(newest)
    catalogue.segment_stored(newest.name, "vault", at=NOW)
    reason = "the server no longer has binlog.001196 up to byte 11744052"
    last = next(one.last_at for one in reversed(told) if one.chain == CHAIN)
    resumed = next(one.first_at for one in told if one.chain != CHAIN)
    catalogue.archive_gap("sample-shop", ArchiveGap(CHAIN, reason, NOW - timedelta(days=3), last, resumed))
    catalogue.archive_contact("sample-shop", at=NOW - timedelta(seconds=19), behind_bytes=18_432)


def _steps(length: float, count: int) -> list[float]:
    return [length * (i + 0.5) / count for i in range(count)]
