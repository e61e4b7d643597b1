"""A folder for each command's catalogue and backups, and the tree of commands."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main


@pytest.fixture
def tmp_path(path_in_memory: Path) -> Path:
    """What a sync is worth is tested where things are stored."""
    return path_in_memory


@pytest.fixture(scope="session", autouse=True)
def _the_tree_of_commands_is_built_once() -> Iterator[None]:
    """As in a process, where a person types one command; the tree keeps nothing of one for the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield
