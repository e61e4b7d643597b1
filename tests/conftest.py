"""What holds for every test: a property is judged by what it finds, never by how fast a busy machine looked for it."""

import gc
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from backupd.catalogue import schema
from tests import thorough
from tests.fakes.target import MACHINE
from tests.share import examples
from tests.statements import compiled_once

settings.register_profile(
    "backupd", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("backupd")

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_ENOUGH = 1 << 30  # bytes; a container often has 64 MiB


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` looks at the marks."""
    thorough.mark(items)


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they have imported live to the end: a collection need not look at them again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _statements_are_compiled_once() -> Iterator[None]:
    """Nearly every test opens a catalogue of its own."""
    with compiled_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _a_new_catalogue_s_identity_is_known_beforehand() -> Iterator[None]:
    """So that a test can make a machine's target, and plant things in its folder, before there is a catalogue."""
    digits = MACHINE.rpartition("-")[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "new_name", lambda host: f"{host}-{digits}")
        yield


@pytest.fixture
def path_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, for tests that sync at every step; on disk where memory has no such room."""
    if not _SHARED_MEMORY.is_dir() or shutil.disk_usage(_SHARED_MEMORY).free < _ROOM_ENOUGH:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="backupd-test-", dir=_SHARED_MEMORY) as folder:
        yield Path(folder)
