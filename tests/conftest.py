"""What holds for every test: a property is judged by what it finds, never by how fast a busy machine looked for it."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from backupd.catalogue import schema
from tests import thorough
from tests.fakes.target import MACHINE
from tests.share import examples
from tests.statements import compiled_once

settings.register_profile(
    "backupd", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("backupd")
if settings().derandomize:  # by `CI`; but hypothesis draws from the constants of whatever was imported by then, too
    setattr(providers, "_get_local_constants", Constants)  # noqa: B010 - it is nothing that a user is to set

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_ENOUGH = 1 << 30  # bytes; a container often has 64 MiB


_SHARED = "BACKUPD_TESTS_SHARED"  # how a worker knows the folder of all of them


def pytest_configure(config: pytest.Config) -> None:
    """Before there are workers, which inherit the folder."""
    gc.disable()  # until all is collected: nothing of it is garbage
    if _SHARED in os.environ:
        return
    os.environ[_SHARED] = tempfile.mkdtemp(prefix="backupd-tests-", dir=_memory())
    config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(_SHARED)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` looks at the marks."""
    thorough.in_order(items)
    thorough.mark(items)


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they have imported live to the end: a collection need not look at them again."""
    gc.freeze()
    gc.enable()


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
    memory = _memory()
    if memory is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="backupd-test-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """One for all workers, for what takes long to make and is only read. In memory where there is room for it."""
    return Path(os.environ[_SHARED])


def _memory() -> Path | None:
    has_room = _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_ENOUGH
    return _SHARED_MEMORY if has_room else None
