"""A catalogue of a test's own, in memory; tests that want one import these fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue

__all__ = ["catalogue", "path"]


@pytest.fixture
def path(path_in_memory: Path) -> Path:
    return path_in_memory / "catalogue.db"


@pytest.fixture
def catalogue(path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(path) as opened:
        yield opened
