"""Fixtures of the tests that run as root inside the lab's machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.inside.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """The machine; after every test nothing of ours may be left on it."""
    made = Host(tmp_path)
    yield made
    try:
        made.nothing_left()
    finally:
        made.clear_up()
