"""The S3 server of the tests: one for all of a session, a prefix of its bucket for each test."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.config import PartChecksum, S3Config, TargetKind
from backupd.targets.outages import Patience
from backupd.targets.s3 import S3Target
from tests.fakes.target import MACHINE
from tests.servers.s3server import BUCKET, S3Service, serving

IMPATIENT = Patience(tries=4, first_seconds=0.001, most_seconds=0.01)
PART = 5 << 20


@pytest.fixture(scope="session")
def s3_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Service]:
    """A server that answers; that it was not built is an error."""
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder) as service:
        service.write_credentials(folder / "credentials")
        yield service


def s3_config(
    service: S3Service,
    *,
    endpoint: str | None = None,
    bucket: str = BUCKET,
    checksum: PartChecksum = PartChecksum.SHA256,
) -> S3Config:
    """A target of a prefix that no other test has."""
    return S3Config(
        name="store",
        type=TargetKind.S3,
        bucket=bucket,
        prefix=f"tests/{secrets.token_hex(6)}",
        endpoint=endpoint or service.endpoint,
        credentials_file=credentials_of(service),
        part_size=PART,
        checksum=checksum,
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )


def credentials_of(service: S3Service) -> Path:
    return service.folder.parent / "credentials"


def s3_target(config: S3Config) -> S3Target:
    return S3Target(config, machine=MACHINE, patience=IMPATIENT)
