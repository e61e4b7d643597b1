"""A folder for each command's catalogue and backups."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(path_in_memory: Path) -> Path:
    """What a sync is worth is tested where things are stored."""
    return path_in_memory
