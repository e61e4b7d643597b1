"""A world for each story."""

from pathlib import Path

import pytest

from tests.story.world import World


@pytest.fixture(autouse=True)
def _a_look_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.backup.LOOK_SECONDS", 0.1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)
