"""Targets of clouds for tests: on a container in memory, and what is done past them."""

from backupd.config import AzureConfig, TargetKind
from backupd.targets.blobs import BlobTarget
from tests.contract.s3_server import IMPATIENT, PART
from tests.fakes.blob_store import MemoryBlobStore
from tests.fakes.target import MACHINE


def memory_config(*, outage_seconds: float = 0.001, parts_in_flight: int = 4) -> AzureConfig:
    """Of a container that nobody is asked for."""
    return AzureConfig(
        name="store",
        type=TargetKind.AZURE,
        account="memory",
        container="container",
        prefix="tests",
        part_size=PART,
        parts_in_flight=parts_in_flight,
        outage_seconds=outage_seconds,
    )


def memory_blobs(store: MemoryBlobStore, *, outage_seconds: float = 0.001) -> BlobTarget:
    """A target on it."""
    config = memory_config(outage_seconds=outage_seconds)
    return BlobTarget(config, lambda: store, machine=MACHINE, patience=IMPATIENT)
