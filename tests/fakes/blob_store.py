"""A container of blobs in memory, of either kind of cloud, until it is told what to refuse."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from backupd.targets.blob_store import BlobFailure, BlobParts, StoredBlob, Trouble
from backupd.targets.keyed import BucketItem

Fault = Callable[[Callable[[], None]], None]  # is given what the request would have done


@dataclass
class MemoryBlobStore:
    """The blobs by their keys, and the parts that were not committed. `faults` meet the requests of their name."""

    sends_parts_at_once: bool = True
    access_ends: datetime | None = None
    blobs: dict[str, tuple[bytes, StoredBlob, datetime]] = field(default_factory=dict)
    parts: dict[str, dict[tuple[str, int], bytes]] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    renewed: int = 0
    url = "memory://container"
    permissions = "backupd needs everything there"
    _lock: Lock = field(default_factory=Lock)
    _version: int = 0

    def part_bytes(self, least: int, at_most: int | None) -> int:
        return least

    def renew(self) -> None:
        self.renewed += 1

    def listed(self, prefix: str, *, after: str = "") -> Sequence[BucketItem]:
        self._meet("listed", lambda: None)
        with self._lock:
            return [
                BucketItem(key, stored.version, at, stored.size)
                for key, (_, stored, at) in sorted(self.blobs.items())
                if key.startswith(prefix) and key >= after
            ]

    def uploads(self, prefix: str) -> Sequence[BucketItem]:
        with self._lock:
            return [
                BucketItem(key, "", datetime.now(UTC))
                for key in self.parts
                if key.startswith(prefix) and key not in self.blobs
            ]

    def folders(self, prefix: str) -> Sequence[str]:
        self._meet("listed", lambda: None)
        with self._lock:
            below = [
                key.removeprefix(prefix).partition("/") for key in (*self.blobs, *self.parts) if key.startswith(prefix)
            ]
        return sorted({name for name, slash, _ in below if slash})

    def look(self, key: str) -> StoredBlob:
        self._meet("look", lambda: None)
        with self._lock:
            if key not in self.blobs:
                raise BlobFailure(Trouble.MISSING, "none")
            return self.blobs[key][1]

    def read(self, key: str, at: int, size: int, version: str) -> bytes:
        self._meet("read", lambda: None)
        with self._lock:
            if key not in self.blobs:
                raise BlobFailure(Trouble.MISSING, "none")
            body, stored, _ = self.blobs[key]
            if stored.version != version:
                raise BlobFailure(Trouble.TAKEN, "another version")
            return body[at : at + size]

    def put(self, key: str, body: bytes, *, mark: str = "", only_new: bool = False) -> None:
        self._meet("put", lambda: self._keep(key, body, mark, only_new=only_new))

    def upload(self, key: str, mark: str, *, only_new: bool = False) -> BlobParts:
        return _Parts(self, key, mark, only_new)

    def delete(self, key: str) -> None:
        self._meet("delete", lambda: self._forget(key))

    def checksum(self, body: bytes, before: str) -> str:
        return str(zlib.crc32(body, int(before or 0)))

    def _keep(self, key: str, body: bytes, mark: str, *, only_new: bool) -> None:
        with self._lock:
            if only_new and key in self.blobs:
                raise BlobFailure(Trouble.TAKEN, "there is one")
            self._version += 1
            stored = StoredBlob(len(body), str(self._version), mark, str(zlib.crc32(body)))
            self.blobs[key] = bytes(body), stored, datetime.now(UTC)
            self.parts.pop(key, None)

    def _forget(self, key: str) -> None:
        with self._lock:
            self.blobs.pop(key, None)

    def _meet(self, name: str, do: Callable[[], None]) -> None:
        with self._lock:
            waiting = self.faults.get(name)
            fault = waiting.pop(0) if waiting else None
        if fault is None:
            do()
        else:
            fault(do)


@dataclass
class _Parts:
    store: MemoryBlobStore
    key: str
    mark: str
    only_new: bool

    def part(self, number: int, at: int, body: bytes) -> None:
        def keep() -> None:
            with self.store._lock:
                self.store.parts.setdefault(self.key, {})[self.mark, number] = bytes(body)

        self.store._meet("part", keep)

    def commit(self, number: int, at: int, body: bytes) -> None:
        def keep() -> None:
            every = self.store.parts.get(self.key, {})
            kept = {each: part for (mark, each), part in every.items() if mark == self.mark}
            if sorted(kept) != list(range(number)):
                raise BlobFailure(Trouble.OTHER, "there are no such parts")
            self.store._keep(
                self.key, b"".join([*(kept[each] for each in range(number)), body]), self.mark, only_new=self.only_new
            )

        self.store._meet("commit", keep)

    def discard(self) -> None:
        def forget() -> None:
            with self.store._lock:
                every = self.store.parts.pop(self.key, {})
                others = {place: part for place, part in every.items() if self.mark not in ("", place[0])}
                if others:
                    self.store.parts[self.key] = others

        self.store._meet("discard", forget)
