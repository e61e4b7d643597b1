"""Which tests `make check` leaves to `make thorough-tests`: of whole runs, of real servers, of this machine's kernel.

Knows: the folders whose tests take long, their modules that are quick all the same, other folders' modules that are
not, and that of each module that is left out the first test is quick, so that a change that breaks it all is seen at
once, but for those whose first test needs a server: that takes seconds to start. A test that takes long where others do
not is marked where it stands; whatever is marked `exhaustive` is left out as well. And it knows what is begun first.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDERS = ("contract", "story", "cli")
WHOLE = ("web", "service", "fleet")  # folders of which `make check` tries nothing: browsers, Prometheus, PostgreSQL
QUICK = {
    "contract": (
        *("test_age", "test_blank_volumes", "test_hostile_archives", "test_scratch_disks", "test_scratch_volumes"),
        *("test_snapshots", "test_targets"),
    ),
    "story": ("test_daemon_slots", "test_fleet_fallback", "test_verify", "test_volume_restore"),
    "cli": (
        *("test_config_commands", "test_documents", "test_drill_command", "test_manual_command"),
        *("test_schedule_command", "test_serve_command", "test_tables", "test_volumes_command"),
    ),
}
LONG = {  # of other folders: modules that took half of the time of `make check` and were a tenth of its tests
    "unit": (
        *("test_archive_encryption", "test_archive_outline", "test_source_file", "test_archive_search"),
        *("test_archive_stream", "test_archive_streams", "test_archive_tarring", "test_archive_unpack"),
        *("test_catalogue_benches", "test_catalogue_probes", "test_catalogue_upkeep", "test_fan_out"),
        *("test_fire_doors", "test_fleet_inventory_source", "test_held_folders", "test_lvm_snapshots"),
        *("test_migrations", "test_process"),
    )
}
ON_SERVERS = {  # of these modules not even the first test is quick
    "contract": (
        "test_agents",
        "test_applying",
        "test_archive_checked",
        "test_binlog_archive",
        "test_binlog_attacks",
        "test_binlog_lacking",
        "test_binlog_reading",
        "test_fleet_engine",
        "test_restore_under_a_server",
        "test_stolen_key",
    )
}
# Of any folder, what waits for most of its time: the others have the processors meanwhile, and none of it is the last
# one that goes on.
BEGUN_FIRST = (
    *("test_night", "test_served", "test_fleet_engine", "test_agents", "test_stolen_key", "test_binlog_lacking"),
    "test_binlog_failover",
)
STORES = frozenset({"sftp", "s3"})  # parameters of the fixture `target`: each of these has a server
ON_STORES = "test_what_was_written_is_read_back"  # the one test that is quick on them too


def is_quick(module: Path) -> bool:
    """All of it, but for what is marked in it."""
    folder = module.parent.name
    if folder in WHOLE:
        return False
    return module.stem in QUICK[folder] if folder in FOLDERS else module.stem not in LONG.get(folder, ())


def in_order(items: list[pytest.Item]) -> None:
    """A module's tests stay together."""
    places = {name: place for place, name in enumerate(BEGUN_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def mark(items: Sequence[pytest.Item]) -> None:
    """What is thorough says so."""
    begun: set[Path] = set()
    for item in items:
        if item.get_closest_marker("exhaustive") is not None:
            continue
        folder = item.path.parent.name
        is_first = not (item.path in begun or folder in WHOLE or item.path.stem in ON_SERVERS.get(folder, ()))
        if _on_a_store(item) or not (is_first or is_quick(item.path)):
            item.add_marker(pytest.mark.thorough)
        begun.add(item.path)


def _on_a_store(item: pytest.Item) -> bool:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("target") in STORES and item.name.partition("[")[0] != ON_STORES
