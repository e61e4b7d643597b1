"""How a command looks at the fleet: by its configuration and its records. No host is asked, and nothing is changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.fleet.records import Records
from backupd.operations.fleet.fleet_context import database_url, fleet
from backupd.service.fleet.site import FleetSite, shape_of
from backupd.vocabulary.errors import FleetDatabaseError


@contextmanager
def looked_at(explicit: Path | None) -> Iterator[FleetSite]:
    """The fleet that the command line, the environment or the default path names, for the length of the block.

    Raises:
        ConfigurationError: listing every fault of the file; or the database's password cannot be had.
        FleetDatabaseError: the records cannot be opened, or there are none yet.
    """
    configuration = fleet(explicit).configuration
    control = configuration.control
    if control.database.startswith("/") and not Path(control.database).exists():
        raise FleetDatabaseError(
            f"the fleet has no records yet: {control.database} does not exist",
            hint="start the control host: backupd fleet serve",
        )
    records = Records.look(database_url(control))
    try:
        yield FleetSite(records, shape_of(configuration))
    finally:
        records.engine.dispose()
