"""The host on which commands are typed, and the terminal; a folder in memory for both, and the tree of commands."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

from tests.cli.terminal import Terminal
from tests.story.world import World


@pytest.fixture
def tmp_path(path_in_memory: Path) -> Path:
    """What a sync is worth is tested where things are stored."""
    return path_in_memory


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on that host."""
    return Terminal(world, monkeypatch, capsys)


@pytest.fixture(scope="session", autouse=True)
def _the_tree_of_commands_is_built_once() -> Iterator[None]:
    """As in a process, where a person types one command; the tree keeps nothing of one for the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield
