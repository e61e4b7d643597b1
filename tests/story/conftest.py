"""A world for each story."""

from pathlib import Path

import pytest

from tests.story.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)
