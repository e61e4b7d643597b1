"""A world for each story."""

from collections import Counter
from pathlib import Path

import pytest

from tests.story.machines_world import COUNTED, figures
from tests.story.world import ToldTarget, World


@pytest.fixture(autouse=True)
def _a_look_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.backup.settling.LOOK_SECONDS", 0.1)


@pytest.fixture(autouse=True)
def _a_probe_of_a_bench_has_a_small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.policy.bench_cost.PROBE_FILE_SIZE", 1 << 20)  # it is written, and copied by snapshots


@pytest.fixture
def tmp_path(path_in_memory: Path) -> Path:
    """What a sync is worth is tested where things are stored; a story has hundreds of them."""
    return path_in_memory


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)


@pytest.fixture
def offsite(world: World) -> ToldTarget:
    """Another target, which no run has ever used; what happens to it is told as `offsite.…`."""
    folder = world.base / "offsite"
    folder.mkdir()
    told = ToldTarget(
        "offsite", folder, lambda what: world.happened(what.replace("target", "offsite")), machine=world.name
    )
    world.others = [told]  # type: ignore[list-item]
    return told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What happened in the histories of several machines, of all tests of this session together."""
    counted: Counter[str] = Counter()
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, found in report.user_properties:
            if name == COUNTED and isinstance(found, dict):
                counted.update(found)
    if counted:
        terminalreporter.write_line(figures(counted))
