"""A catalogue as it is after years: made in seconds, the same every time.

It has rows in every table but the pauses and, of benches, the snapshots: its benches made none.

Knows: what a host's runs look like, and how often which of them goes wrong. Refuses to know what is asked of it. Rows
are written past the store, which would make a durable transaction of each.
"""

import fcntl
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backupd.catalogue import audit
from backupd.catalogue.audit import Event
from backupd.catalogue.columns import InstantColumn, to_row
from backupd.catalogue.database import direct
from backupd.catalogue.schema import prepare
from backupd.catalogue.tables import metadata
from backupd.vocabulary.gauges import CurvePoint, Stage
from backupd.vocabulary.penalty import GateOutcome, Reason
from backupd.vocabulary.records import Phase, RunKind, RunStatus, SnapshotFacts
from backupd.vocabulary.schedule import Activity, NoticeKind, SlotState
from tests.fakes import benched, measured

NEWEST = datetime(2026, 11, 20, 12, tzinfo=UTC)  # when the last run began
APART = timedelta(minutes=20)  # from one run to the next, of whatever job
YEARS = 100_000  # runs
JOBS = ("nightly", "shop", "archive", "weekly", "replica")
KEPT = timedelta(days=10)  # what is older was removed; a thousand runs reach further back: all catalogues keep as much

_STATUSES = {
    RunStatus.SUCCESS: 930,
    RunStatus.ATTENTION: 30,
    RunStatus.FAILED: 30,
    RunStatus.REFUSED: 4,
    RunStatus.BUSY: 3,
    RunStatus.CANCELLED: 3,
}
_GOOD = (RunStatus.SUCCESS, RunStatus.ATTENTION)
_EXITS = {RunStatus.SUCCESS: 0, RunStatus.ATTENTION: 3, RunStatus.REFUSED: 5, RunStatus.BUSY: 4}
_PROBES, _DRILLS, _MISSED, _PINS = 200, 40, 300, 5000  # one of so many runs is, has, or comes after one of these
_BENCHES, _FIRST_BENCH = 400, 100  # one of so many, but none that is a probe
_BATCH = 1000
_TARGETS = ("vault", "offsite")
_GIB = 1 << 30


def make_catalogue(path: Path, runs: int, *, samples_per_run: int = 10, jobs: int = 3) -> None:
    """The file is a new catalogue with so many runs, the newest of which began at `NEWEST`.

    100,000 runs with a million samples take about 20 seconds and 440 MB.
    """
    prepare(path)
    with direct(path, busy_timeout_seconds=1) as connection:
        (machine,) = connection.execute("SELECT name FROM identities").fetchone()
        site = _Site(runs, samples_per_run, JOBS[:jobs], machine)
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN IMMEDIATE")
        for number in range(runs):
            site.run(number)
            if number % _BATCH == _BATCH - 1 or number == runs - 1:
                for table in metadata.sorted_tables:  # what others refer to comes first
                    for columns, rows in site.rows.pop(table.name, {}).items():
                        marks = ", ".join("?" * len(columns))
                        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"
                        connection.executemany(statement, rows)
        connection.execute("COMMIT")


@contextmanager
def catalogue_of(runs: int, *, samples_per_run: int = 10, jobs: int = 3) -> Iterator[Path]:
    """Such a catalogue, in memory where there is room for it; for a fixture of a whole session."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="backupd-runs-", dir=shared if shared.is_dir() else None) as folder:
        path = Path(folder) / "catalogue.db"
        make_catalogue(path, runs, samples_per_run=samples_per_run, jobs=jobs)
        yield path


def catalogue_of_years(shared: Path) -> Path:
    """One of `YEARS` runs in this folder: whoever comes first makes it, others wait for it. Nobody changes it."""
    path = shared / "years.db"
    with (shared / "years.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = shared / "unfinished.db"
            make_catalogue(unfinished, YEARS, samples_per_run=4)
            unfinished.rename(path)
    return path


def run_id_of(number: int, runs: int) -> str:
    """The id of the run of this number, the oldest being 0: made from its time, as ids are."""
    return f"{_began(number, runs):%Y%m%dT%H%M%S}-{number:06x}"


def _began(number: int, runs: int) -> datetime:
    return NEWEST - (runs - 1 - number) * APART


def _kind_of(number: int) -> RunKind:
    if number % _PROBES == _PROBES - 1:
        return RunKind.PROBE
    return RunKind.BENCH if number % _BENCHES == _FIRST_BENCH else RunKind.BACKUP


def _text(at: datetime | None) -> str | None:
    return None if at is None else InstantColumn.text(at)


@dataclass
class _Site:
    """What goes on, run after run; rows as they are stored, by table and columns."""

    runs: int
    samples: int
    jobs: Sequence[str]
    machine: str
    rows: dict[str, dict[tuple[str, ...], list[tuple[Any, ...]]]] = field(default_factory=lambda: defaultdict(dict))
    chance: random.Random = field(default_factory=lambda: random.Random(6))
    head: str = ""
    told: int = 0

    def run(self, number: int) -> None:
        """A backup, or now and then a probe or a bench, with all that it leaves."""
        run_id, began = run_id_of(number, self.runs), _began(number, self.runs)
        kind = _kind_of(number)
        job, host = (self.jobs[number % len(self.jobs)], "db1") if kind is not RunKind.BENCH else ("", "")
        status = self.chance.choices(list(_STATUSES), list(_STATUSES.values()))[0]
        if kind is not RunKind.BACKUP and status is RunStatus.ATTENTION:
            status = RunStatus.SUCCESS
        ended = began + timedelta(seconds=self._about(900) if status in _GOOD else 20)
        self._add(
            "runs", run_id=run_id, job=job, host=host, machine=self.machine, status=status.value,
            pid=4711, process_start=99, started_at=_text(began), ended_at=_text(ended), kind=kind.value,
        )  # fmt: skip
        self._tell(Event.RUN_STARTED, run_id, began, kind=kind.value, job=job, host=host)
        if kind is not RunKind.BENCH:  # no schedule starts one
            self._slot(job, kind, began, ended, run_id=run_id, status=status)
        sums: Mapping[str, str] = {}
        if status not in _GOOD:
            self._failed(run_id, status)
            if kind is RunKind.BACKUP and status is RunStatus.FAILED:
                self._samples(run_id)
        elif kind is RunKind.PROBE:
            self._probed(run_id)
        elif kind is RunKind.BENCH:
            self._benched(run_id)
        else:
            sums = self._backed_up(run_id, job, number, began, ended, attention=status is RunStatus.ATTENTION)
        self._tell(Event.RUN_ENDED, run_id, ended, status=status.value, backups=sums)

    def _backed_up(
        self, run_id: str, job: str, number: int, began: datetime, ended: datetime, *, attention: bool
    ) -> Mapping[str, str]:
        """The digest of each backup, by target."""
        size = int((20 + 5 * self.jobs.index(job)) * _GIB * (1 + number / max(self.runs, 1)))
        peak = self._samples(run_id)
        self._phases(run_id, copying=(ended - began).total_seconds() * 0.8)
        outcome, reason = (GateOutcome.START, Reason.SETTLED if number % 10 else Reason.MAX_WAIT)
        self._add(
            "verdicts", run_id=run_id, outcome=outcome.value, reason=reason.value,
            detail="3 windows within 10 %", waited_seconds=self._about(60),
        )  # fmt: skip
        self._add(
            "positions", run_id=run_id, binlog_file=f"binlog.{number:06d}", binlog_offset=4242,
            gtid=f"0-1-{number}", replicas="[]", derived=0,
        )  # fmt: skip
        self._add(
            "locks", run_id=run_id, strategy="backup-stage", tries=1, wait_seconds=self._about(0.2),
            hold_seconds=self._about(0.03) * (6 if number % 997 == 0 else 1), proof="metadata-locks", lsn=number << 20,
            position_seconds=0.001, flush_seconds=0.003, proof_seconds=0.001, unlock_seconds=0.001, stalled=4,
        )  # fmt: skip
        self._add(
            "bills", run_id=run_id, seconds=300.0, penalty_seconds=self._about(20), copied_on_write=peak, disks=3,
            disk_seconds=self._about(90), disk_read_seconds=self._about(30),
        )  # fmt: skip
        self._add(
            "losses", run_id=run_id, counted="logged", seconds=300.0, rate_before=400.0, rate_after=395.0,
            done=int(self._about(100_000)), noise=900.0,
        )  # fmt: skip
        facts = SnapshotFacts(
            f"bk_{run_id}", "vg0/mysql", measured.VOLUME.layout, 3, 64 << 10, 64 << 10, 8 * _GIB, peak
        )
        self._add("snapshots", run_id=run_id, **{**to_row(facts), "layout": facts.layout.value})
        sums = self._backups(run_id, size, began, ended, targets=_TARGETS[: 1 + (job == JOBS[1])])
        for ordinal, (stage, seconds) in enumerate((("read", 300.0), ("compress", 600.0), ("write:vault", 200.0))):
            self._add(
                "throughput", run_id=run_id, stage=stage, ordinal=ordinal, bytes=size,
                busy_seconds=self._about(seconds),
            )  # fmt: skip
        self._add(
            "holdings", run_id=run_id, kind="snapshot", name=f"vg0/bk_{run_id}", detail=json.dumps({"run": run_id}),
            held_at=_text(began), released_at=_text(ended),
        )  # fmt: skip
        if attention:
            self._add("attentions", run_id=run_id, text="clean-up incomplete: unmount failed")
        if number % _DRILLS == 0:
            self._drilled(run_id, ended + timedelta(hours=3))
        if number % _PINS == 0:
            self._add("pins", run_id=run_id, note="before the migration", at=_text(ended))
            self._tell(Event.PINNED, run_id, ended, note="before the migration")
        return sums

    def _samples(self, run_id: str) -> int:
        """Two before the snapshot, two during the copy, the others a penalty that decays; the most of COW in use."""
        used = 0
        first = 2 + 3 * self.chance.random()
        settling = max(self.samples - 4, 0)
        for i in range(self.samples):
            place = i - 2
            stage = "baseline" if place < 0 else "settle" if place < settling else "copy"
            ratio = None if stage == "baseline" else 1 + first * 0.7 ** max(place, 0)
            used += 0 if stage == "baseline" else int(self._about(100 << 20))
            self._add(
                "samples", run_id=run_id, at_seconds=5.0 * place, stage=stage, iops=400 / (ratio or 1.0), ratio=ratio,
                latency_p95_ms=2.5 * (ratio or 1.0), probe_bytes=1 << 20,
                cow_used=None if stage == "baseline" else used, cow_rate=self._about(20 << 20),
                replica_lag_seconds=None, write_latency_ms=1.1 * (ratio or 1.0),
            )  # fmt: skip
        return used

    def _phases(self, run_id: str, *, copying: float) -> None:
        typical = {
            **{Phase.PREFLIGHT: 1.5, Phase.BASELINE: 10.0, Phase.LOCK_WAIT: 0.2, Phase.LOCK_HOLD: 0.03},
            **{Phase.SNAPSHOT: 0.02, Phase.SETTLE: 60.0, Phase.COPY: copying, Phase.VERIFY: 90.0, Phase.RELEASE: 2.0},
        }
        for phase, seconds in typical.items():
            self._add("phases", run_id=run_id, phase=phase.value, seconds=self._about(seconds))

    def _backups(
        self, run_id: str, size: int, began: datetime, ended: datetime, *, targets: Sequence[str]
    ) -> Mapping[str, str]:
        sums = {target: f"{self.chance.getrandbits(256):064x}" for target in targets}
        gone = _text(ended + KEPT) if NEWEST - began > KEPT else None
        for ordinal, target in enumerate(targets):
            self._add(
                "backups", run_id=run_id, target=target, location=f"/{target}/{run_id}", bytes_read=size,
                bytes_stored=int(self._about(size * 0.3)), files=1200, sha256=sums[target],
                ordinal=ordinal, verified_at=_text(ended), broken="", removed_at=gone,
                removed_because="" if gone is None else f"older than keep_within {KEPT.days}d",
            )  # fmt: skip
        return sums

    def _drilled(self, run_id: str, at: datetime) -> None:
        ok = self.chance.random() > 0.03
        checks = [{"name": "tables", "ok": ok, "expected": "120", "found": "120" if ok else "119"}]
        self._add(
            "drills", run_id=run_id, ok=int(ok), checks=json.dumps(checks), seconds=self._about(400), at=_text(at)
        )
        self._tell(Event.DRILLED, run_id, at, ok=ok)

    def _failed(self, run_id: str, status: RunStatus) -> None:
        self._add(
            "errors", run_id=run_id, code="lock-not-granted", message="the lock was not granted within 60 s",
            hint="see who holds it", exit_status=_EXITS.get(status, 6),
        )  # fmt: skip
        self._add("phases", run_id=run_id, phase=Phase.PREFLIGHT.value, seconds=self._about(1.5))
        if status is RunStatus.FAILED:
            self._add("phases", run_id=run_id, phase=Phase.LOCK_WAIT.value, seconds=60.0)

    def _probed(self, run_id: str) -> None:
        penalty = 2 + 3 * self.chance.random()
        volume, settings = to_row(measured.VOLUME), to_row(measured.SETTINGS)
        volume["volume"], volume["volume_size"] = volume.pop("name"), volume.pop("size")
        lists = {"pvs": json.dumps(volume["pvs"]), "cow_pvs": "[]", "notes": "[]"}
        probed = {**volume, **settings, **lists, "layout": volume["layout"].value, "thin": 0}
        self._add("probes", run_id=run_id, **probed)
        for stage, slower in ((Stage.BASELINE, None), (Stage.FIRST, penalty), (Stage.SETTLED, 1.2)):
            self._add(
                "probe_rows", run_id=run_id, mode="direct", threads=1, block_size=16 << 10, chunk_size=64 << 10,
                cow_pvs="[]", snapshots=1, phase=stage.value, iops=400 / (slower or 1.0), spread=0.05, penalty=slower,
                repeats=3,
            )  # fmt: skip
        points = [to_row(CurvePoint(5.0 * i, 400 / penalty, penalty)) for i in range(1, 5)]
        self._add(
            "probe_curves", run_id=run_id, mode="direct", threads=1, chunk_size=64 << 10, cow_pvs="[]", snapshots=1,
            repeat=1, reason="settled", points=json.dumps(points),
        )  # fmt: skip
        cells = [{"chunk_size": size << 10, "cow_pvs": [], "speeds": [400 / penalty] * 3} for size in (16, 64, 512)]
        self._add(
            "tunings", run_id=run_id, made_at=_text(NEWEST), volume_uuid="data", group_uuid="vg0", stripes=3,
            stripe_size=64 << 10, devices=json.dumps(measured.PVS), pvs=json.dumps({pv: pv for pv in measured.PVS}),
            cells=json.dumps(cells),
        )  # fmt: skip

    def _benched(self, run_id: str) -> None:
        found = benched.a_bench()
        lists = {name: json.dumps(getattr(found.settings, name)) for name in ("disks", "tables")}
        layouts = {"layouts": json.dumps([to_row(layout) for layout in found.layouts]), "notes": "[]"}
        self._add("benches", run_id=run_id, **{**to_row(found.host), **to_row(found.settings), **lists, **layouts})
        for cell in found.cells:
            words = {"operation": cell.operation.value, "medium": cell.medium.value}
            self._add("bench_cells", run_id=run_id, **{**to_row(cell), **words, "shares": json.dumps(cell.shares)})
        for sample in found.samples:
            rates = {"read": json.dumps(sample.read), "written": json.dumps(sample.written)}
            self._add("bench_samples", run_id=run_id, **{**to_row(sample), **rates})

    def _slot(self, job: str, kind: RunKind, due: datetime, ended: datetime, *, run_id: str, status: RunStatus) -> None:
        activity = Activity.PROBE if kind is RunKind.PROBE else Activity.BACKUP
        row = {"job": job, "activity": activity.value, "due_at": _text(due), "decided_at": _text(due)}
        self._add(
            "slots", **row, state=SlotState.ENDED.value, run_id=run_id, reason="", ended_at=_text(ended),
            exit_status=_EXITS.get(status, 6),
        )  # fmt: skip
        if self.chance.randrange(_MISSED) == 0:
            missed = due + APART / 2
            self._add(
                "slots", **{**row, "due_at": _text(missed), "decided_at": _text(missed + APART)},
                state=SlotState.MISSED.value, run_id="", reason="the machine was off",
            )  # fmt: skip
            self._add("notices", kind=NoticeKind.MISSED.value, job=job, subject=_text(missed), at=_text(missed + APART))
            self._tell(Event.MISSED, job, missed + APART, activity=activity.value, due=missed.isoformat(), reason="")

    def _tell(self, event: Event, subject: str, at: datetime, **detail: Any) -> None:
        """A row of the audit chain, bound to the one before."""
        self.told += 1
        row = {
            **{"number": self.told, "at": InstantColumn.text(at), "event": event.value, "subject": subject},
            **{"detail": json.dumps(detail, sort_keys=True, separators=(",", ":")), "previous": self.head},
        }
        self.head = audit.digest(row)
        self._add("audit", **row, digest=self.head)

    def _add(self, table: str, /, **row: Any) -> None:
        self.rows[table].setdefault(tuple(row), []).append(tuple(row.values()))

    def _about(self, typical: float) -> float:
        return typical * self.chance.lognormvariate(0, 0.2)
