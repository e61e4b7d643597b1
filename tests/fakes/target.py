"""A target in memory that keeps the contract, until it is told to fail, to lose bytes or to change one."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Lock

from backupd.policy import manifest as manifests
from backupd.policy.owner_record import OwnerRecord
from backupd.policy.trust import Trust
from backupd.targets import UploadLedger, chain
from backupd.targets.names import (
    BINLOG,
    already_there,
    backup_part,
    is_ours,
    is_proof,
    job_part,
    machine_part,
    object_part,
    part,
    segment_part,
)
from backupd.vocabulary.errors import NoRoom, TargetError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Manifest, StoredBackup

_CHUNK_BYTES = 64 << 10
_MANIFEST = "manifest.json"

BELIEVED = Trust(unsigned=True)  # for tests of what comes after

MACHINE = "db1-0a1b2c3d"  # whose backups the tests take, where nothing depends on whose

_Key = tuple[str, str, str]


@dataclass
class MemoryTarget:
    """One machine's objects by (job, backup, name), beside those of others in the same `storage`.

    Every step that a real target would ask storage for is a call that can fail.
    """

    name: str = "memory"
    machine: str = MACHINE
    free_bytes: int = 1 << 40
    access_ends: datetime | None = None
    fail_at_call: int | None = None  # counted from 1, over all calls
    drop_bytes: int = 0  # of the end of each object, as a disk that loses writes does
    flip_bit: int | None = None  # of each object as it is read
    calls: int = 0
    now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    stored: dict[_Key, bytes] = field(default_factory=dict)
    at: dict[_Key, datetime] = field(default_factory=dict)
    writing_now: set[_Key] = field(default_factory=set)
    counting: Lock = field(default_factory=Lock)
    storage: dict[str, "MemoryTarget"] = field(default_factory=dict)  # by machine, each bound to it
    records: dict[str, bytes] = field(default_factory=dict)  # the machine's owner records, by name

    folder = None

    def __post_init__(self) -> None:
        machine_part(self.machine)
        self.storage[self.machine] = self

    def of_machine(self, machine: str) -> "MemoryTarget":
        """The same storage; what it is told to fail at is its own."""
        return self.storage.get(machine) or MemoryTarget(self.name, machine, now=self.now, storage=self.storage)

    def machines(self) -> Sequence[str]:
        """Those that have something there."""
        self._call()
        return [machine for machine, target in self.storage.items() if target.stored or target.records]

    def location(self, job: str, backup_id: str) -> str:
        """Names the backup."""
        return f"memory:{self.machine}/{job_part(job)}/{part(backup_id)}"

    def require_usable(self) -> int:
        """The room that is left."""
        self._call()
        return self.free_bytes

    @contextmanager
    def writing(
        self,
        job: str,
        backup_id: str,
        name: str,
        *,
        at_most: int | None = None,
        ledger: UploadLedger | None = None,
        unwanted: Event | None = None,
    ) -> Iterator["_MemoryWriter"]:
        """Nobody sees the object until the block ends well."""
        key = (job_part(job), part(backup_id), object_part(backup_id, name))
        self._call()
        if (job, backup_id, _MANIFEST) in self.stored:
            raise TargetError(f"{backup_id} is finished already")
        writer = _MemoryWriter(self)
        self.writing_now.add(key)
        try:
            yield writer
            self._call()
            with self.counting:
                if backup_id == BINLOG and key in self.stored:
                    raise already_there(name, self.location(job, backup_id))
                self.at[key] = self.now
                self.stored[key] = bytes(writer.content[: len(writer.content) - self.drop_bytes])
        finally:
            self.writing_now.discard(key)

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """What was stored, with its bit flipped if so told."""
        key = (job_part(job), part(backup_id), part(name))
        self._call()
        if key not in self.stored:
            raise TargetError(f"no object {name} in {backup_id}")
        content = bytearray(self.stored[key])
        if self.flip_bit is not None and content:
            content[self.flip_bit // 8 % len(content)] ^= 1 << self.flip_bit % 8
        end = len(content) if size is None else offset + size
        yield self._chunks(bytes(content[offset:end]), missing=end - len(content))

    def publish(self, manifest: Manifest) -> None:
        """The backup exists."""
        with self.writing(manifest.job, manifest.run_id, _MANIFEST) as writer:
            writer.write(manifests.to_text(manifest).encode())

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """What was published."""
        self._call()
        if (job, backup_id, _MANIFEST) not in self.stored:
            raise TargetError(f"no backup {backup_id}, or it is unfinished")
        return manifests.from_chunks([self.stored[job, backup_id, _MANIFEST]])

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there, the manifest left out."""
        whole = (job_part(job), part(backup_id))
        self._call()
        mine = {key[2]: len(content) for key, content in self.stored.items() if key[:2] == whole}
        told = {name.partition("/")[0] + "/" * ("/" in name): size for name, size in mine.items()}
        return {name: 0 if name.endswith("/") else size for name, size in told.items() if name != _MANIFEST}

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there."""
        wanted = None if job is None else job_part(job)
        self._call()
        found = {key[:2] for key in self.stored if wanted in {None, key[0]} and key[1] != BINLOG}
        return [self._found(*key) for key in found]

    def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
        """What lies in their folder, behind that name."""
        return {name: size for name, size in self.objects(job, BINLOG).items() if name > after}

    def archived_jobs(self) -> Sequence[str]:
        """Those that have something there."""
        self._call()
        return sorted({job for job, backup_id, _ in self.stored if backup_id == BINLOG})

    def remove_segments(self, job: str, names: Sequence[str]) -> None:
        """One after the other."""
        for name in [segment_part(each) for each in names]:
            self._call()
            self.stored.pop((job_part(job), BINLOG, name), None)

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """What belongs to a finished backup, once."""
        self._call()
        key = (job_part(job), part(backup_id), part(name))
        if not is_proof(name) or (job, backup_id, _MANIFEST) not in self.stored or key in self.stored:
            raise TargetError(f"{name} cannot be attached to {backup_id}")
        self.stored[key], self.at[key] = content, self.now

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Nothing of a backup is left, and all that a person has put beside it. One after the other."""
        whole = (job_part(job), backup_part(backup_id))
        self._call()
        ours = [key for key in self.stored if key[:2] == whole and is_ours(key[2])]
        for key in sorted(ours, key=lambda key: key[2] != _MANIFEST):
            self._call()
            del self.stored[key]
            self.at.pop(key, None)

    def owner(self) -> OwnerRecord | None:
        """Who wrote last."""
        return chain.owner(_Records(self), self.machine)

    def last_owner_number(self) -> int:
        """The number of the last owner record."""
        return chain.last(_Records(self))

    def succeed(self, record: OwnerRecord) -> bool:
        """Write an owner record."""
        return chain.succeed(_Records(self), record)

    def _found(self, job: str, backup_id: str) -> StoredBackup:
        manifest = (job, backup_id, _MANIFEST)
        newest = max(at for key, at in self.at.items() if key[:2] == (job, backup_id))
        return StoredBackup(job, backup_id, manifest in self.stored, self.at.get(manifest, newest))

    def _chunks(self, content: bytes, *, missing: int) -> Iterator[bytes]:
        for start in range(0, len(content), _CHUNK_BYTES):
            self._call()
            yield content[start : start + _CHUNK_BYTES]
        if missing > 0:
            raise TargetError(f"the object ended {missing} bytes too early")

    def _call(self) -> None:
        with self.counting:
            self.calls += 1
            fails = self.calls == self.fail_at_call
        if fails:
            raise TargetError(f"target {self.name} failed at call {self.fail_at_call}", hint="it was told to")


@dataclass(frozen=True)
class _Records:
    target: MemoryTarget

    @property
    def where(self) -> str:
        return f"memory:{self.target.machine}/owner"

    def names(self) -> Collection[str]:
        self.target._call()
        return list(self.target.records)

    def content(self, name: str) -> bytes | None:
        self.target._call()
        return self.target.records.get(name)

    def create(self, name: str, content: bytes) -> None:
        self.target._call()
        if len(content) > self.target.free_bytes:
            raise NoRoom(f"no space left on target {self.target.name}", hint="give it more")
        self.target.records.setdefault(name, content)

    def remove(self, name: str) -> None:
        self.target._call()
        self.target.records.pop(name, None)


class _MemoryWriter:
    def __init__(self, target: MemoryTarget) -> None:
        self.content = bytearray()
        self._target = target

    def write(self, data: bytes) -> None:
        self._target._call()
        if len(self.content) + len(data) > self._target.free_bytes:
            raise NoRoom(f"no space left on target {self._target.name}", hint="give it more")
        self.content += data
