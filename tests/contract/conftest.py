"""Servers that several modules want, other than the installed one."""

import os
from collections.abc import Iterator

import pytest

from tests.servers.mariadb_plugins import with_plugins


@pytest.fixture(scope="module")
def mariadb_with_plugins() -> Iterator[str]:
    """A `mariadbd` that has its plugins, which Debian's -core packages lack; a scratch server is that, too."""
    with with_plugins() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield str(folder / "mariadbd")
