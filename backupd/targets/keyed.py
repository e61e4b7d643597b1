"""A target whose storage has keys instead of folders: a bucket, a container. What it does whoever keeps it.

Knows: PREFIX/MACHINE/JOB/RUN_ID/NAME, that an object is there when it is whole, and that a finished backup is written
to by nobody: its manifest is created only where there is none. Refuses to know how a storage is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backupd.policy import manifest as manifests
from backupd.targets.chain import OwnedFolder, OwnerRecords
from backupd.targets.names import (
    BINLOG,
    MANIFEST,
    already_finished,
    is_backups,
    is_jobs,
    is_left_trial,
    is_machines,
    is_ours,
    is_partial,
    is_proof,
    job_part,
    not_attachable,
    part,
    segment_part,
    sizes_told,
    unfinished_backup,
)
from backupd.targets.outages import Unwanted, wanted
from backupd.targets.told_times import told_time
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.storage import Manifest, StoredBackup


@dataclass(frozen=True, slots=True)
class BucketItem:
    """An object, one version of it, the mark that it was deleted, or an upload."""

    key: str
    version: str  # or the upload's id; empty where no version is told
    at: datetime
    size: int = 0  # of an object that can be read


@dataclass(frozen=True, slots=True)
class Bucket:
    """Which bucket or container a target writes to, and how a person is told."""

    name: str  # of the target
    url: str  # s3://BUCKET
    prefix: str = ""

    @property
    def where(self) -> str:
        """For sentences."""
        return f"target {self.name} ({self.url})"

    def key(self, *parts: str) -> str:
        """The key of these parts, below the target's prefix."""
        return "/".join((self.prefix, *parts) if self.prefix else parts)


class KeyedTarget(OwnedFolder, ABC):
    """The part of the contract `Target` that is the same for every storage of keys."""

    folder = None

    def __init__(self, bucket: Bucket, machine: str, records: OwnerRecords) -> None:
        super().__init__(machine, records)
        self._bucket = bucket

    @abstractmethod
    def _listed(self, prefix: str, *, patiently: bool) -> Sequence[BucketItem]:
        """The objects below a prefix; `patiently` an outage is waited for."""

    @abstractmethod
    def _sizes(self, prefix: str, *, after: str) -> Iterable[tuple[str, int]]:
        """Key and bytes of each object below a prefix, behind that key where the storage can begin there."""

    @abstractmethod
    def _remove_segments(self, prefix: str, names: Sequence[str]) -> None:
        """These are gone from below the prefix, and unfinished uploads of them and of those before the last of them."""

    @abstractmethod
    def _uploads(self, prefix: str) -> Sequence[BucketItem]:
        """Uploads below a prefix that were begun and not completed, as far as the storage tells."""

    @abstractmethod
    def _folders(self, prefix: str) -> Sequence[str]:
        """What the keys go on with after a prefix, up to the next slash."""

    @abstractmethod
    def _small(
        self, job: str, backup_id: str, name: str, *, unwanted: Unwanted = wanted, patiently: bool = True
    ) -> bytes | None:
        """All of a small object; None where there is none."""

    @abstractmethod
    def _put_once(self, job: str, backup_id: str, name: str, body: bytes, *, taken: TargetError) -> None:
        """A small object is there; or `taken` is raised where another one was."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self._bucket.name

    def machines(self) -> Sequence[str]:
        """Those that have something there."""
        return [name for name in self._folders(self._bucket.key("")) if is_machines(name)]

    def location(self, job: str, backup_id: str) -> str:
        """As the storage's own tools write it."""
        return f"{self._bucket.url}/{self._key(job, backup_id)}"

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest; see the contract."""
        job, run_id = manifest.job, manifest.run_id
        self._require_unfinished(job, run_id)
        taken = already_finished(self.location(job, run_id))
        self._put_once(job, run_id, MANIFEST, manifests.to_text(manifest).encode(), taken=taken)

    def attach(self, job: str, backup_id: str, name: str, content: bytes) -> None:
        """Write a small object beside a finished backup; see the contract."""
        refusal = not_attachable(name, self.location(job, backup_id))
        if not is_proof(name) or self._small(job, backup_id, MANIFEST) is None:
            raise refusal
        self._put_once(job, backup_id, name, content, taken=refusal)

    def manifest(self, job: str, backup_id: str) -> Manifest:
        """Read it back; see the contract."""
        text = self._small(job, backup_id, MANIFEST, patiently=False)
        if text is not None:
            return manifests.from_chunks([text])
        if any(backup.backup_id == backup_id for backup in self.backups(job)):
            raise unfinished_backup(backup_id, self.name)
        raise TargetError(
            f"no backup {backup_id} of job {job} on {self._bucket.where}",
            hint="see `backupd history`; are the target's settings the ones it was written with?",
        )

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        """What can be read of it, and its bytes; see the contract."""
        prefix = self._key(job, backup_id) + "/"
        listed = ((stored.key, stored.size) for stored in self._listed(prefix, patiently=True))
        return sizes_told(_below(prefix, listed), where=self._bucket.where)

    def segments(self, job: str, *, after: str = "") -> Mapping[str, int]:
        """What lies among them; see the contract."""
        prefix = self._key(job, BINLOG) + "/"
        told = _below(prefix, self._sizes(prefix, after=prefix + after))
        return sizes_told((one for one in told if one[0] > after), where=self._bucket.where)

    def archived_jobs(self) -> Sequence[str]:
        """Those that have something there; see the contract."""
        ours = self._bucket.key(self._machine, "")
        return [job for job in self._folders(ours) if is_jobs(job) and BINLOG in self._folders(f"{ours}{job}/")]

    def remove_segments(self, job: str, names: Sequence[str]) -> None:
        """Remove them, and what is left of their uploads; see the contract."""
        if wanted := [segment_part(name) for name in names]:
            self._remove_segments(self._key(job, BINLOG) + "/", wanted)

    def backups(self, job: str | None = None) -> Sequence[StoredBackup]:
        """What lies there, by the store's clock; an upload that was not completed is an unfinished backup."""
        ours = self._bucket.key(self._machine, "")
        jobs = filter(is_jobs, self._folders(ours)) if job is None else [job_part(job)]
        beginnings = [begin for each in jobs for begin in self._beginnings(f"{ours}{each}/")]
        found: dict[tuple[str, str], dict[str, datetime]] = {}
        unfinished = self._uploads_below(ours if job is None else f"{ours}{job_part(job)}/", beginnings)
        for stored in (*unfinished, *(each for begin in beginnings for each in self._listed(begin, patiently=False))):
            match stored.key.removeprefix(ours).split("/"):
                case [of_job, backup_id, name] if is_jobs(of_job) and is_backups(backup_id) and name:
                    at = told_time(stored.at, where=f"{self._bucket.url}/{stored.key}")
                    found.setdefault((of_job, backup_id), {})[name] = at
        return [
            StoredBackup(*place, finished=MANIFEST in names, at=names.get(MANIFEST) or max(names.values()))
            for place, names in found.items()
        ]

    def _beginnings(self, prefix: str) -> list[str]:
        """What the keys of a job's backups begin with, and none of its segments, of which there may be a million: a
        listing of all would take a request for each thousand.
        """
        backups = sorted(filter(is_backups, self._folders(prefix)))
        alike = [f"{name}/" for name in backups if name[0] == BINLOG[0]]
        return [prefix + begin for begin in (*sorted({name[0] for name in backups} - {BINLOG[0]}), *alike)]

    def _uploads_below(self, prefix: str, beginnings: Iterable[str]) -> Iterator[BucketItem]:  # noqa: ARG002
        """Those below the prefix that backups' keys begin so; where a storage lists nothing else for that, all."""
        for begin in beginnings:
            yield from self._uploads(begin)

    def _key(self, job: str, backup_id: str) -> str:
        return self._bucket.key(self._machine, job_part(job), part(backup_id))

    def _require_unfinished(self, job: str, backup_id: str, *, unwanted: Unwanted = wanted) -> None:
        if self._small(job, backup_id, MANIFEST, unwanted=unwanted) is not None:
            raise already_finished(self.location(job, backup_id))


def _below(prefix: str, listed: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """What is told of these keys, by their names below the prefix."""
    for key, size in listed:
        name, slash, _ = key.removeprefix(prefix).partition("/")
        # A key that ends here is how consoles make a folder.
        if name + slash not in ("", MANIFEST) and not is_partial(name):
            yield name + slash, 0 if slash else size


def ours_below(prefix: str, found: Sequence[BucketItem]) -> list[BucketItem]:
    """What backupd has written there, the manifest first: of a backup that is removed, half is never taken for all."""
    ours = [stored for stored in found if is_ours(stored.key.removeprefix(prefix)) or stored.key == prefix]
    return sorted(ours, key=lambda stored: stored.key != prefix + MANIFEST)


def left_trials(listed: Iterable[BucketItem], key: str, machine: str) -> list[str]:
    """Keys of what processes of this machine left in a bucket that they tried; `key` is of the one that tries it now.

    `listed` is what the storage has below `names.trials`; their age is told by its own clock.
    """
    items = list(listed)
    folder = key.rpartition("/")[0]
    now = max((item.at for item in items if item.key == key), default=None)
    if now is None:
        return []
    others = [item for item in items if item.key != key and item.key.rpartition("/")[0] == folder]
    ages = {item.key: (now - item.at).total_seconds() for item in others}
    return [left for left, age in ages.items() if is_left_trial(left.rpartition("/")[2], machine, age)]


def require_creates_once(
    where: str,
    body: bytes,
    *,
    create: Callable[[], bool],
    read: Callable[[], bytes | None],
    remove: Callable[[], object],
    hint: str,
) -> None:
    """An object that was created is read back, is not created once more, and is removed, whatever comes.

    `create` tells whether it wrote one, and raises a TargetError where it was refused for another reason than that
    there is one; `hint` is for a store that returns other bytes.

    Raises:
        TargetError: one of these is not so.
    """
    create()  # False where the answer to the first try was lost: the name is ours alone
    try:
        found = read()
        is_overwritten = create()
    finally:
        remove()
    if found != body:
        raise TargetError(f"{where} returned different bytes than were written", hint=hint)
    if is_overwritten:
        raise TargetError(
            f"{where} overwrote an object although it was told to create it only if there was none",
            hint="backupd cannot use this store: nothing would keep two machines from writing to one folder",
        )
