"""What is on a target: frames, objects, backups, and the manifest that tells of them."""

from dataclasses import dataclass, field
from datetime import datetime

from backupd.vocabulary.escaping import Prose
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import Position, ServerFacts

MARKER = ".backupd-incomplete"  # ours, in a folder that is being filled; no member of an archive lies there
_ENCRYPTED = ".age"  # as such names end


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of a stored object that can be checked by itself. An object's frames follow one another without gaps.

    Where nothing is encrypted it is one zstd frame, which can be read by itself as well.
    """

    plain_bytes: int  # of the tar stream
    stored_bytes: int
    stored_sha256: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a backup on its target: a tar stream in zstd frames, encrypted by age where its name ends so."""

    name: str
    plain_bytes: int
    stored_bytes: int
    plain_sha256: str
    stored_sha256: str
    files: int
    frames: tuple[Frame, ...]

    @property
    def encrypted(self) -> bool:
        """Only the holder of an identity can read it; whether it is whole, everybody can tell."""
        return self.name.endswith(_ENCRYPTED)

    @property
    def plain_name(self) -> str:
        """What it is called where it is not encrypted: the same in every copy of its run."""
        return self.name.removesuffix(_ENCRYPTED)

    @property
    def encrypted_name(self) -> str:
        """What it is called where it is."""
        return f"{self.plain_name}{_ENCRYPTED}"


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """What a target says of a backup that lies there: no digest is compared for it."""

    job: str
    backup_id: str
    finished: bool  # it has a manifest
    at: datetime  # by the storage's clock where it has one: when its manifest, or else its newest object, was written


@dataclass(frozen=True, slots=True)
class Backup:
    """A verified set of objects on a target. A run leaves one on each of its targets."""

    target: str
    location: str
    bytes_read: int
    bytes_stored: int
    files: int
    sha256: str  # of the first object as stored: what `sha256sum` says of the file
    verified_at: datetime | None = None  # since then all of it was read back and found equal
    broken: Prose = ""  # what was found wrong with it; empty: nothing
    removed_at: datetime | None = None
    removed_because: Prose = ""  # without `removed_at`: why its removal was started, which may have broken off
    read_frames: int = 0  # by the rounds of verification that have begun anew since: where the next one begins
    reading_since: datetime | None = None  # when the first of these rounds began
    manifest_digest: str = ""  # of the manifest as it was written; empty: an earlier backupd did not keep it
    recipients: tuple[str, ...] = ()  # whom it was encrypted for, where the digest is known; empty: it is plain

    @property
    def is_there(self) -> bool:
        """It can be restored, by all that is known of it."""
        return self.removed_at is None and not self.broken

    @property
    def is_being_removed(self) -> bool:
        """Its removal was started, and nobody has told its end: half of it may be there, or nothing."""
        return self.removed_at is None and bool(self.removed_because)


@dataclass(frozen=True, slots=True)
class LastCopy:
    """How far a copy came, complete or not, and in which time."""

    bytes_read: int
    of_bytes: int  # that all of it had
    used_bytes: int  # of the volume's file system then
    seconds: float

    def expected_seconds(self, used_bytes: int) -> float | None:
        """What a whole copy takes now that so much is used; None where it was over before it had begun."""
        if not self.bytes_read or not self.used_bytes:
            return None
        return self.seconds * (self.of_bytes / self.bytes_read) * (used_bytes / self.used_bytes)


@dataclass(frozen=True, slots=True)
class Signature:
    """That the holder of a key has written something."""

    key: str  # the public one, as `signing` writes it
    value: str  # base64


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup consists of and what it takes to start a server on it; written last, readable JSON."""

    run_id: str
    job: str
    host: str
    machine: str
    created_at: datetime
    objects: tuple[StoredObject, ...]
    server: ServerFacts
    position: Position
    lsn: int | None
    layout: str  # of the origin: a `Layout`, or a later backupd's word
    volume: str  # VG/LV of the origin
    datadir: str  # relative to the restored folder: where the server's datadir is in it
    run: RunSection  # what the catalogue knew of the run then
    binlog: str | None = (
        None  # relative to the restored folder: the binlog that the position names; None where it is off
    )
    canary: str | None = None  # schema.table that holds the canary rows, None where it was off
    locked: bool = True  # False: an image as of a power cut; its position is known only once it has been recovered
    filesystem: str = ""  # of the snapshotted volume: xfs, ext4
    recipients: tuple[str, ...] = ()  # age's public keys that it was encrypted for; empty: it is readable by all
    audit_head: str = ""  # of the catalogue's audit chain when the manifest was written
    signature: Signature | None = field(default=None, metadata={"minor": 2})  # None: an earlier backupd wrote it
    digest: str = field(default="", compare=False, metadata={"apart": True})  # of the document that was read or signed


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What retention says of one backup on one target, and why."""

    backup_id: str
    keep: bool
    reason: str
