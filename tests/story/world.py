"""A whole host for stories: the fakes, a real catalogue, a real folder as target, a real folder as datadir.

Knows: how the pieces are put together as `wiring` puts the real ones, what happens when (`at`), and what of ours exists
now (`left`). Refuses to know what a story should do.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, SettleConfig
from backupd.host.claims import Claims
from backupd.host.filesystem import remove_tree
from backupd.host.holdings import Releases
from backupd.host.process import end_stray
from backupd.lvm import disks_of
from backupd.operations.backup.phases import BackupTelling
from backupd.operations.backup.run import run_backup
from backupd.operations.copies import spool_folder
from backupd.operations.server_holdings import put_back, start_again
from backupd.operations.tools import FilesystemRoom, HostFiles, Places, Tools
from backupd.operations.upkeep.finishing import MaxRate
from backupd.policy.signing import KEY_FILE, signer_at
from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.gauges import DiskCounters, InFlight
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.penalty import Window
from backupd.vocabulary.records import Holding, HoldingKind, RunDetails
from backupd.vocabulary.servers import DataPath, Preflush
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.volumes import DeviceNumber, MountPoint
from tests.fakes.lvm_host import LvmHost
from tests.fakes.probe import FakeProbe
from tests.fakes.scratch_disks import FakeScratchDisks
from tests.fakes.server import (
    FACTS,
    FakeApplier,
    FakeCanary,
    FakeDatabase,
    FakeFlusher,
    FakeHeldLock,
    FakeLock,
    FakeServer,
    FakeWorkCounters,
)
from tests.fakes.target import MACHINE, MemoryTarget

Happened = Callable[[str], None]

FILES = {  # of the datadir, in bytes
    "ibdata1": 100_000,
    "ib_logfile0": 50_000,
    "shop/orders.ibd": 50_000,
    "bin.000001": 20_000,
    "bin.000002": 20_000,
    "ibtmp1": 5_000,
}


@dataclass
class ToldProbe(FakeProbe):
    """Says what it is about to do."""

    happened: Happened = lambda what: None

    def prepare(self, folder: Path) -> int:
        self.happened("probe.prepare")
        return super().prepare(folder)

    def window(self, folder: Path, seconds: float) -> Window:
        self.happened("probe.window")
        return super().window(folder, seconds)


class ToldTarget(DirectoryTarget):
    """A real folder that says what is about to be done to it."""

    def __init__(self, name: str, path: Path, happened: Happened, *, machine: str) -> None:
        super().__init__(name, path, machine=machine)
        self.happened = happened

    def of_machine(self, machine: str) -> "ToldTarget":
        return ToldTarget(self.name, self.folder, self.happened, machine=machine)

    @contextmanager
    def writing(self, job: str, backup_id: str, name: str, **how: Any) -> Iterator[Any]:
        self.happened("target.writing")
        with super().writing(job, backup_id, name, **how) as writer:
            self.happened("target.begun")
            yield writer

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        self.happened("target.reading")
        with super().reading(job, backup_id, name, **which) as chunks:
            yield chunks

    def publish(self, manifest: Manifest) -> None:
        self.happened("target.publish")
        super().publish(manifest)
        self.happened("target.published")


class ToldLock(FakeLock):
    """Says when it is asked for, and when it has ended."""

    def __init__(self, database: FakeDatabase, happened: Happened) -> None:
        super().__init__(database)
        self.happened = happened

    @contextmanager
    def held(self, of: Path) -> Iterator[FakeHeldLock]:
        self.happened("lock.asked")
        try:
            with super().held(of) as held:
                self.happened("lock.granted")
                yield held
        finally:
            self.happened("lock.ended")


class ToldApplier(FakeApplier):
    """Says when it is about to stop and start, and when it has stopped."""

    def __init__(self, database: FakeDatabase, happened: Happened) -> None:
        super().__init__(database)
        self.happened = happened

    def stop(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        self.happened("applier.stop")
        super().stop(channels, of=of)
        self.happened("applier.stopped")

    def start(self, channels: Sequence[str], *, of: Mapping[str, str]) -> None:
        self.happened("applier.start")
        super().start(channels, of=of)


class ToldFlusher(FakeFlusher):
    """Says when it is about to touch a setting, and when all dirty pages are written."""

    def __init__(self, database: FakeDatabase, happened: Happened) -> None:
        super().__init__(database)
        self.happened = happened

    def set_setting(self, name: str, value: float) -> None:
        self.happened(f"flusher.set {name}")
        super().set_setting(name, value)

    def flush(self) -> Preflush:
        done = super().flush()
        self.happened("flusher.flushed")
        return done

    def put_back(self, saved: Mapping[str, str]) -> None:
        self.happened("flusher.put_back")
        super().put_back(saved)


_ROOT, _SPOOL_S = DeviceNumber(8, 1), DeviceNumber(8, 17)


@dataclass
class World:
    """One host with one job.

    `at[EVENT]` is called when that is about to happen, in the thread in which it does.
    """

    base: Path
    host: LvmHost = field(default_factory=LvmHost)
    database: FakeDatabase = field(default_factory=FakeDatabase)
    memory: MemoryTarget | None = None  # in place of the folder
    others: list[MemoryTarget] = field(default_factory=list)  # the job's further targets
    filesystem: str = "xfs"  # on the volume
    bound: str = ""  # the folder of the volume's file system that is mounted alone, as a bind mount
    nested: tuple[Path, ...] = ()  # where the same file system is mounted once more,
    nested_device: DeviceNumber | None = None  # or another one
    at: dict[str, Callable[[], object]] = field(default_factory=dict)
    room: FilesystemRoom = field(default_factory=lambda: FilesystemRoom(free=8 << 30, total=10 << 30, read_only=False))
    spool_device: DeviceNumber = _SPOOL_S  # of its file system
    with_probe: bool = True
    with_canary: bool = True
    with_applier: bool = False  # the job has `lock.stop_applier`
    with_preflush: bool = False  # the job has `lock.preflush`
    scratch_disks: FakeScratchDisks = field(default_factory=FakeScratchDisks)
    undisturbed_seconds: float = 0.0  # that the server is watched for before anything of ours disturbs it
    write_milliseconds: float = 5.0  # what a write to the volume takes
    machine: Machine = field(default_factory=lambda: Machine("db1", {"machine-id": "a1"}, boot_id="first boot"))
    renewal_seconds: float = 60.0
    remove_abandoned: Callable[[], tuple[Path, ...]] = tuple  # temporary folders of killed processes
    also_released: Releases = field(default_factory=dict)  # kinds of holdings that only some tests know

    def __post_init__(self) -> None:
        for folder in (self.datadir, self.vault, self.places.run, self.places.staging):
            folder.mkdir(parents=True, exist_ok=True)
        self.spool.mkdir(mode=0o700)
        for name, size in FILES.items():
            (self.datadir / name).parent.mkdir(exist_ok=True)
            (self.datadir / name).write_bytes(name.encode() + bytes(size - len(name)))
        self.counted = DiskCounters()
        self.host.folder = self.base / "volume"
        self.host.on_call = lambda verb: self.happened(f"host.{verb}")
        self.probe = ToldProbe(happened=self.happened)
        self.lock = ToldLock(self.database, self.happened)
        self.work_counters = FakeWorkCounters()
        self.applier = ToldApplier(self.database, self.happened)
        self.flusher = ToldFlusher(self.database, self.happened)
        self.vault_target = ToldTarget("vault", self.vault, self.happened, machine=self.name)
        self.database.facts = replace(FACTS, datadir=self.datadir, binlog_basename=self.datadir / "bin")
        self.database.paths = (
            DataPath("datadir", self.datadir, must_share=True),
            DataPath("system tablespace", self.datadir / "ibdata1", must_share=True),
            DataPath("binlog", self.datadir / "bin", must_share=False),
        )

    # --- where things are --------------------------------------------------------------------------------------------

    @property
    def mount_root(self) -> Path:
        return self.base / "volume" / self.bound

    @property
    def datadir(self) -> Path:
        return self.mount_root / "mysql"

    @property
    def vault(self) -> Path:
        return self.base / "vault"

    @property
    def name(self) -> str:
        """Of the machine, as its catalogue's first identity has it (`tests/conftest.py`)."""
        return f"{self.machine.host}-{MACHINE.rpartition('-')[2]}"

    @property
    def public_key(self) -> str:
        """Of the machine's signing key."""
        return signer_at(self.places.catalogue.with_name(KEY_FILE)).public

    @property
    def spool(self) -> Path:
        """On other disks than all else; a job has it where it is told to."""
        return self.base / "spool"

    @property
    def backups(self) -> Path:
        """The job's own folder in the vault."""
        return self.vault / self.name / "nightly"

    @property
    def places(self) -> Places:
        own = self.base / "own"
        places = {"run": own / "run", "staging": own / "staging", "catalogue": own / "catalogue.sqlite"}
        return Places(**places, spools=(self.spool,))

    @property
    def target(self) -> Target:
        return self.memory if self.memory is not None else self.vault_target

    @property
    def tools(self) -> Tools:
        """As `wiring.tools` makes them."""
        return self.tools_of(self.name)

    def tools_of(self, machine: str) -> Tools:
        """The same for whoever goes by this name: what is made on the host bears it."""
        return Tools(
            snapshots=self.host.snapshots_of(machine),
            mounts=self.host.mounts,
            files=HostFiles(
                mount_of=self.mount_of,
                mounts_below=lambda folder: tuple(at for at in self.nested if at.is_relative_to(folder)),
                identity=self.host.identity,
                sync=lambda path: self.happened("sync"),
                used_bytes=_used_bytes,
                room=lambda path: self.room,
                write_counters=self.write_counters,
                disk_counters=lambda path: DiskCounters(),
                in_flight=lambda _device: InFlight(),
                roots=lambda: (self.mount_root,),
                remove_abandoned=self.remove_abandoned,
            ),
            places=self.places,
            claims=Claims(self.places.run),
            releases=self.releases_of(machine),
            scratch_disks=self.scratch_disks,
            target_of=self.target_of,
            machine=self.machine,
            renewal_seconds=self.renewal_seconds,
            server=FakeServer(self.database),
            lock=self.lock,
            applier=self.applier if self.with_applier else None,
            flusher=self.flusher if self.with_preflush else None,
            canary=FakeCanary(self.database) if self.with_canary else None,
            work_counters=self.work_counters,
            undisturbed_seconds=self.undisturbed_seconds,
            probe=self.probe if self.with_probe else None,
            targets=(self.target, *self.others),
        )

    @property
    def finishing(self) -> MaxRate:
        """As `wiring` makes it."""
        return lambda _job: None

    @property
    def releases(self) -> Releases:
        """As `wiring` makes them."""
        return self.releases_of(self.name)

    def releases_of(self, machine: str) -> Releases:
        """The same for whoever goes by this name."""

        def remove_volume(holding: Holding) -> None:
            vg, _, name = holding.name.partition("/")
            self.host.snapshots_of(machine).remove(vg, name, holding.detail["run"])

        def remove_objects(holding: Holding) -> None:
            self.target_of(holding).remove(holding.detail["job"], holding.detail["backup"])

        def end_child(holding: Holding) -> None:
            end_stray(int(holding.name), int(holding.detail["start_time"]))

        return {
            HoldingKind.SNAPSHOT: remove_volume,
            HoldingKind.SCRATCH_VOLUME: remove_volume,
            HoldingKind.SCRATCH_GROUP: lambda holding: self.scratch_disks.remove_group(
                holding.name, disks_of(holding), holding.detail["run"]
            ),
            HoldingKind.SCRATCH_ARRAY: lambda holding: self.scratch_disks.remove_array(
                holding.name, disks_of(holding), holding.detail["run"]
            ),
            HoldingKind.MOUNT: lambda holding: self.host.mounts.unmount(Path(holding.name)),
            HoldingKind.STAGING: lambda holding: remove_tree(Path(holding.name)),
            HoldingKind.PROBE_FILES: lambda holding: self.probe.remove(Path(holding.name)),
            HoldingKind.PARTIAL: remove_objects,
            HoldingKind.SPOOL: spool_folder.remove,
            HoldingKind.CHILD: end_child,
            HoldingKind.APPLIER: lambda holding: start_again(holding, {"db1": self.applier}.__getitem__),
            HoldingKind.FLUSH_SETTINGS: lambda holding: put_back(holding, {"db1": self.flusher}.__getitem__),
            **self.also_released,
        }

    def target_of(self, holding: Holding) -> Target:
        """As `wiring` finds it."""
        target = {target.name: target for target in (self.target, *self.others)}[holding.detail["target"]]
        ours = target.machine == holding.detail["machine"]
        return target if ours else target.of_machine(holding.detail["machine"])

    def mount_of(self, path: Path) -> MountPoint:
        """What is below the volume's folder lies on the volume, wherever a link to it stands."""
        if path.resolve().is_relative_to(self.mount_root):
            at = next((at for at in self.nested if path.resolve().is_relative_to(at)), self.mount_root)
            device = (at in self.nested and self.nested_device) or self.host.volume.device
            return MountPoint(at, device, self.filesystem, PurePosixPath("/", self.bound))
        if path.is_relative_to(self.spool):
            return MountPoint(self.spool, self.spool_device, "ext4")
        return MountPoint(Path("/"), _ROOT, "ext4")

    def write_counters(self, device: DeviceNumber) -> DiskCounters:
        """The server has done ten writes since somebody last looked, to the volume and nothing else."""
        assert device == self.host.volume.device
        self.counted = replace(
            self.counted,
            writes=self.counted.writes + 10,
            write_seconds=self.counted.write_seconds + 10 * self.write_milliseconds / 1000,
        )
        return self.counted

    # --- what a test does --------------------------------------------------------------------------------------------

    def make_orders_large(self) -> None:
        """So that a copy has a middle: its blocks have 1 MiB each."""
        (self.datadir / "shop" / "orders.ibd").write_bytes(bytes(4 << 20))

    def happened(self, what: str) -> None:
        self.at.get(what, lambda: None)()

    def catalogue(self, **how: Any) -> Catalogue:
        return Catalogue.open(self.places.catalogue, machine=lambda: self.machine, **how)

    def job(self, **changes: Any) -> JobConfig:
        """A job whose gate opens at the first window, unless it is told otherwise."""
        settle = SettleConfig(windows=1, baseline_windows=1, patience=1e9)
        return JobConfig(
            **{"name": "nightly", "host": "db1", "targets": ("vault",), "canary": True, "settle": settle, **changes}
        )

    def back_up(
        self, run_id: str = "r1", *, job: JobConfig | None = None, telling: BackupTelling | None = None
    ) -> RunDetails:
        """What `backupd run` does; the run's row is returned."""
        with self.catalogue() as catalogue:
            run_backup(job or self.job(), self.tools, catalogue, run_id=run_id, telling=telling)
            return catalogue.run(run_id)

    def go_on_from(self, other: "World") -> None:
        """The catalogue and the stored backups are a copy of the other host's, to do with as one likes."""
        self.places.catalogue.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(other.places.catalogue, self.places.catalogue)
        shutil.copytree(other.vault, self.vault, dirs_exist_ok=True)

    def try_to_back_up(self, run_id: str = "r1", *, job: JobConfig | None = None) -> BackupdError | None:
        """The error that ended the run; None when there is a backup."""
        try:
            self.back_up(run_id, job=job)
        except BackupdError as error:
            return error
        return None

    def row(self, run_id: str = "r1") -> RunDetails:
        with self.catalogue() as catalogue:
            return catalogue.run(run_id)

    def left(self) -> list[str]:
        """Everything of ours that exists on the host now, in words; backups on the target are none of it."""
        with self.catalogue() as catalogue:
            rows = [f"row of {holding.kind} {holding.name}" for _, holding in catalogue.holdings()]
        mounts, locks = self.places.run / "mnt", self.places.run / "lock"
        return [
            *rows,
            *(f"volume {vg}/{name}" for vg, name, _ in self.host.snapshots_of(self.name).ours()),
            *(f"{holding.kind} {holding.name}" for holding, _ in self.scratch_disks.ours()),
            *(f"mount {at}" for at in self.host.mounted),
            *(f"shell {number}" for number in range(self.host.shells)),
            *(f"folder {path}" for path in (*self.mount_root.glob("**/.backupd-*"), *mounts.glob("*"))),
            *(f"staging {path}" for path in self.places.staging.iterdir()),
            *(f"spooled {path}" for path in self.spool.glob("*")),
            *(f"lock file {path}" for path in locks.glob("run-*")),
            *(
                f"thread {thread.name}"
                for thread in threading.enumerate()
                if thread.name.startswith(("observer", "backupd", "guard", "disk-watch"))
            ),
            *(["the server's lock"] if self.database.locked else []),
        ]

    def stored(self) -> list[str]:
        """The names of everything in the machine's folder but its owner records, half-written things included."""
        memories = self.others if self.memory is None else [self.memory, *self.others]
        in_memory = [str(key) for memory in memories for key in [*memory.stored, *memory.writing_now]]
        ours = self.vault / self.name
        in_folder = [path.relative_to(ours) for path in ours.rglob("*")] if self.memory is None else []
        return sorted(in_memory + [str(path) for path in in_folder if path.parts[0] != "owner"])


def _used_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
