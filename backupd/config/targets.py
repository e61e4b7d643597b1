"""`[targets.NAME]`: the places where backups live, one table for each kind."""

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from backupd.config.fields import (
    AbsolutePath,
    FileName,
    Flag,
    KeyPrefix,
    PartSize,
    PositiveDuration,
    SecretFile,
    Text,
    Url,
    WholeNumber,
)
from backupd.config.table import TABLE, OwnName, key
from backupd.vocabulary.faults import BadValue, quoted
from backupd.vocabulary.units import size_words


class TargetKind(StrEnum):
    """Kinds of places where backups live.

    What is stored on another machine may be read there by somebody else; of a kind that is not said to be on this one
    that is taken for granted. Who serves an NFS folder is the administrator's business.
    """

    on_this_machine: bool

    def __new__(cls, name: str, on_this_machine: bool = False) -> Self:
        """Remote, unless it says otherwise."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.on_this_machine = on_this_machine
        return kind

    DIRECTORY = "directory", True
    SFTP = "sftp"
    S3 = "s3"
    AZURE = "azure"
    GCS = "gcs"


class PartChecksum(StrEnum):
    """What is sent with each part of an upload for the storage to compare."""

    SHA256 = "sha256"
    CRC32 = "crc32"
    NONE = "none"


class LockMode(StrEnum):
    """S3's modes of Object Lock."""

    GOVERNANCE = "governance"
    COMPLIANCE = "compliance"


_Timeout = Annotated[PositiveDuration, key("timeout")]
_Outage = Annotated[PositiveDuration, key("outage")]
_PartsInFlight = Annotated[WholeNumber, Field(ge=1, le=32)]
_TIMEOUT_SECONDS, _OUTAGE_SECONDS, _PARTS_IN_FLIGHT = 60.0, 900.0, 4

_NOT_AT_ONCE = ("GLACIER", "DEEP_ARCHIVE")  # Amazon's; an object there must be restored first, which takes hours


def _storage_class(name: str) -> str:
    """Stores have classes of their own; which ones a bucket knows, `backupd check` asks it."""
    if re.fullmatch(r"[A-Z0-9][A-Z0-9_-]{0,63}", name) is None:
        raise BadValue(f"{quoted(name)} is not the name of a storage class", "for example STANDARD_IA")
    if name in _NOT_AT_ONCE:
        raise BadValue(
            f"{quoted(name)} cannot be used: objects of that class cannot be read at once, and backups are read back",
            "use GLACIER_IR, or have a rule of the bucket move older backups",
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class DirectoryConfig:
    """`[targets.NAME]` with `type = "directory"`: a folder on this machine, local or NFS."""

    name: OwnName
    type: Literal[TargetKind.DIRECTORY]
    path: AbsolutePath
    sentinel: FileName | None = None  # a file that is in the folder when its file system is mounted


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class SftpConfig:
    """`[targets.NAME]` with `type = "sftp"`: a folder on another machine, over SSH."""

    name: OwnName
    type: Literal[TargetKind.SFTP]
    address: Text
    port: Annotated[WholeNumber, Field(ge=1, le=65535)] = 22
    user: Text
    path: AbsolutePath  # on that machine
    key_file: SecretFile
    known_hosts: AbsolutePath = Path("/etc/ssh/ssh_known_hosts")
    sentinel: FileName | None = None
    timeout_seconds: _Timeout = _TIMEOUT_SECONDS
    outage_seconds: _Outage = _OUTAGE_SECONDS
    accept_unencrypted: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class S3Config:
    """`[targets.NAME]` with `type = "s3"`: a bucket of Amazon's, or of any store that speaks the same protocol."""

    name: OwnName
    type: Literal[TargetKind.S3]
    bucket: Text
    prefix: KeyPrefix = ""
    endpoint: Url | None = None  # None: Amazon's
    accept_http: Flag = False
    region: Text | None = None
    credentials_file: SecretFile | None = None  # None: where the AWS tools look too
    profile: Text | None = None
    ca: AbsolutePath | None = None
    part_size: PartSize = 16 << 20  # at least; more where the backup needs it
    parts_in_flight: _PartsInFlight = _PARTS_IN_FLIGHT
    checksum: PartChecksum = PartChecksum.SHA256
    storage_class: Annotated[Text, AfterValidator(_storage_class)] | None = None  # None: the bucket's own
    lock_mode: LockMode | None = None  # None: without Object Lock
    lock_seconds: Annotated[PositiveDuration, key("lock_for")] = 7 * 86400.0
    timeout_seconds: _Timeout = _TIMEOUT_SECONDS
    outage_seconds: _Outage = _OUTAGE_SECONDS
    accept_unencrypted: Flag = False


def _account(name: str) -> str:
    """Azure's rule for storage accounts; the name becomes part of a host's."""
    if re.fullmatch(r"[a-z0-9]{3,24}", name) is None:
        raise BadValue(f"{quoted(name)} is not the name of a storage account", "3 to 24 of a-z and 0-9")
    return name


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class AzureConfig:
    """`[targets.NAME]` with `type = "azure"`: a container of Azure Blob Storage."""

    name: OwnName
    type: Literal[TargetKind.AZURE]
    account: Annotated[Text, AfterValidator(_account)]
    container: Text
    prefix: KeyPrefix = ""
    endpoint: Url | None = None  # None: the account's own in Azure
    accept_http: Flag = False
    credentials_file: SecretFile | None = None  # None: where the az command looks too
    ca: AbsolutePath | None = None
    part_size: PartSize = 5 << 20  # at least; more where the object needs it
    parts_in_flight: _PartsInFlight = _PARTS_IN_FLIGHT
    timeout_seconds: _Timeout = _TIMEOUT_SECONDS
    outage_seconds: _Outage = _OUTAGE_SECONDS
    accept_unencrypted: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class GcsConfig:
    """`[targets.NAME]` with `type = "gcs"`: a bucket of Google Cloud Storage."""

    name: OwnName
    type: Literal[TargetKind.GCS]
    bucket: Text
    prefix: KeyPrefix = ""
    endpoint: Url | None = None  # None: Google's
    accept_http: Flag = False
    credentials_file: SecretFile | None = None  # None: application default credentials
    ca: AbsolutePath | None = None
    part_size: PartSize = 8 << 20
    parts_in_flight: _PartsInFlight = _PARTS_IN_FLIGHT
    timeout_seconds: _Timeout = _TIMEOUT_SECONDS
    outage_seconds: _Outage = _OUTAGE_SECONDS
    accept_unencrypted: Flag = False


_MODEST_PART, _MODEST_PARTS = 6 << 20, 3
_LARGEST_PART, _LARGEST_BLOCK = 5 << 30, 4000 << 20  # what S3 and Google take of one, and what Azure does

TargetConfig = DirectoryConfig | SftpConfig | S3Config | AzureConfig | GcsConfig


def takes_plain(target: TargetConfig) -> bool:
    """Whether backups that are not encrypted may lie there: on this machine, or where the target says so."""
    return isinstance(target, DirectoryConfig) or target.accept_unencrypted


def parts_beyond(target: TargetConfig) -> str:
    """That a part is larger than the store takes, in words; empty where it is not."""
    if not isinstance(target, S3Config | AzureConfig | GcsConfig):
        return ""
    most = _LARGEST_BLOCK if isinstance(target, AzureConfig) else _LARGEST_PART
    if target.part_size <= most:
        return ""
    return f"{size_words(target.part_size)} is more than the {size_words(most)} that the store takes"


def modest(target: TargetConfig) -> TargetConfig:
    """The same where a whole process may hold 150 MiB: the packages of a cloud alone take up to 90."""
    if not isinstance(target, S3Config | AzureConfig | GcsConfig):
        return target
    return replace(
        target,
        part_size=min(target.part_size, _MODEST_PART),
        parts_in_flight=min(target.parts_in_flight, _MODEST_PARTS),
    )
