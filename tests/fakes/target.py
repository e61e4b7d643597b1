"""A target in memory that keeps the contract, until it is told to fail, to lose bytes or to change one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from backupd import manifest as manifests
from backupd.errors import TargetError
from backupd.model import Holding, Manifest, StoredBackup
from backupd.targets import UploadLedger

_CHUNK_BYTES = 64 << 10
_MANIFEST = "manifest.json"


@dataclass
class MemoryTarget:
    """Objects by (job, backup, name). Every step that a real target would ask storage for is a call that can fail."""

    name: str = "memory"
    free_bytes: int = 1 << 40
    fail_at_call: int | None = None  # counted from 1, over all calls
    drop_bytes: int = 0  # of the end of each object, as a disk that loses writes does
    flip_bit: int | None = None  # of each object as it is read
    calls: int = 0
    now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    stored: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    at: dict[tuple[str, str, str], datetime] = field(default_factory=dict)
    writing_now: set[tuple[str, str, str]] = field(default_factory=set)
    counting: Lock = field(default_factory=Lock)

    folder = None

    def location(self, job: str, backup_id: str) -> str:
        """Names the backup."""
        return f"memory:{_part(job)}/{_part(backup_id)}"

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
    ) -> Iterator["_MemoryWriter"]:
        """Nobody sees the object until the block ends well."""
        key = (_part(job), _part(backup_id), _part(name))
        self._call()
        if (job, backup_id, _MANIFEST) in self.stored:
            raise TargetError(f"{backup_id} is finished already")
        writer = _MemoryWriter(self)
        self.writing_now.add(key)
        try:
            yield writer
            self._call()
            self.at[key] = self.now
            self.stored[key] = bytes(writer.content[: len(writer.content) - self.drop_bytes])
        finally:
            self.writing_now.discard(key)

    @contextmanager
    def reading(
        self, job: str, backup_id: str, name: str, *, offset: int = 0, size: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """What was stored, with its bit flipped if so told."""
        key = (_part(job), _part(backup_id), _part(name))
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
        return manifests.from_text(self.stored[job, backup_id, _MANIFEST])

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What lies there, the manifest left out."""
        self._call()
        mine = {key[2]: len(content) for key, content in self.stored.items() if key[:2] == (job, backup_id)}
        return {name: size for name, size in mine.items() if name != _MANIFEST}

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there."""
        self._call()
        found = {key[:2] for key in self.stored if job in {None, key[0]}}
        return [self._found(*key) for key in found]

    def abandon(self, upload: Holding) -> None:
        """There are no uploads."""

    def remove(self, job: str, backup_id: str) -> None:
        """Nothing of a backup is left."""
        self._call()
        self.stored = {key: content for key, content in self.stored.items() if key[:2] != (job, backup_id)}
        self.at = {key: at for key, at in self.at.items() if key in self.stored}

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


class _MemoryWriter:
    def __init__(self, target: MemoryTarget) -> None:
        self.content = bytearray()
        self._target = target

    def write(self, data: bytes) -> None:
        self._target._call()
        if len(self.content) + len(data) > self._target.free_bytes:
            raise TargetError(f"no room left on target {self._target.name}", hint="give it more")
        self.content += data


def _part(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise TargetError(f"{name!r} cannot be a name on a target")
    return name
