"""The clouds of the tests: one server of each for all of a session, a prefix of its container for each test."""

import secrets
from collections.abc import Iterator

import pytest

from backupd.config import AzureConfig, GcsConfig, TargetKind
from backupd.targets.azure import azure_target
from backupd.targets.blobs import BlobTarget
from backupd.targets.gcs import gcs_target
from tests.contract.s3_server import IMPATIENT, PART
from tests.fakes.target import MACHINE
from tests.servers.clouds import ACCOUNT, BUCKET, CONTAINER, Cloud, azurite, fake_gcs


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with azurite(tmp_path_factory.mktemp("azure")) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as cloud:
        yield cloud


@pytest.fixture
def azure_config(azure: Cloud) -> AzureConfig:
    return AzureConfig(
        name="store",
        type=TargetKind.AZURE,
        account=ACCOUNT,
        container=CONTAINER,
        prefix=f"tests/{secrets.token_hex(6)}",
        endpoint=azure.endpoint,
        credentials_file=azure.credentials_file,
        part_size=PART,
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )


@pytest.fixture
def gcs_config(gcs: Cloud) -> GcsConfig:
    return GcsConfig(
        name="store",
        type=TargetKind.GCS,
        bucket=BUCKET,
        prefix=f"tests/{secrets.token_hex(6)}",
        endpoint=gcs.endpoint,
        credentials_file=gcs.credentials_file,
        part_size=PART,
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )


def blob_target(config: AzureConfig | GcsConfig) -> BlobTarget:
    """A target that does not wait."""
    make = azure_target if isinstance(config, AzureConfig) else gcs_target
    return make(config, machine=MACHINE, patience=IMPATIENT)  # type: ignore[arg-type]


@pytest.fixture(params=["azure", "gcs"])
def config(request: pytest.FixtureRequest) -> AzureConfig | GcsConfig:
    found: AzureConfig | GcsConfig = request.getfixturevalue(f"{request.param}_config")
    return found


@pytest.fixture
def target(config: AzureConfig | GcsConfig) -> BlobTarget:
    return blob_target(config)
