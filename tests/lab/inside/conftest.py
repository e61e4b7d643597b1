"""Fixtures of the tests that run as root inside the lab's machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import SITE, Host
from tests.lab.inside.stores import Stores, three_stores
from tests.lab.inside.trees import Tree, remove


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """The machine; after every test nothing of ours may be left on it."""
    made = Host(tmp_path)
    yield made
    try:
        made.nothing_left()
    finally:
        made.clear_up()


@pytest.fixture(scope="session")
def stores() -> Iterator[Stores]:
    """Three of them, for all tests of a machine."""
    folder = SITE.state / "stores"
    with three_stores(folder) as made:
        yield made
    remove(folder)


@pytest.fixture(scope="session")
def sent(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a run that went to all three."""
    host = Host(tmp_path_factory.mktemp("sent"))
    document = host.backupd("run", "nightly", "--json", changes=stores.changes).document
    host.nothing_left()
    return document


@pytest.fixture(scope="session")
def unpacked(sent: dict[str, Any], stores: Stores) -> Tree:
    """What that backup holds, by age, zstd and tar alone."""
    by_hand = SITE.state / "by-hand"
    try:
        return stores.unpacked_by_hand(sent["run_id"], by_hand)
    finally:
        remove(by_hand)
