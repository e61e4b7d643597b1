"""What holds for every test: a property is judged by what it finds, never by how fast a busy machine looked for it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine

from backupd.catalogue import database

settings.register_profile("backupd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("backupd")

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_ENOUGH = 1 << 30  # bytes; a container often has 64 MiB


class _Statements(dict[tuple[Any, ...], Any]):
    """Compiled statements, by all of SQLAlchemy's key but its first part: the dialect, of which every engine makes one.

    Ours differ in nothing but the file that they open.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


@pytest.fixture(scope="session", autouse=True)
def _statements_are_compiled_once() -> Iterator[None]:
    """Nearly every test opens a catalogue of its own, and a statement's first time costs three times its others."""
    compiled = _Statements()

    def create(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", create)
        yield


@pytest.fixture
def path_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, for tests that sync at every step; on disk where memory has no such room."""
    if not _SHARED_MEMORY.is_dir() or shutil.disk_usage(_SHARED_MEMORY).free < _ROOM_ENOUGH:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="backupd-test-", dir=_SHARED_MEMORY) as folder:
        yield Path(folder)
