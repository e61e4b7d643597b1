"""What every command of the fleet opens first: its configuration, with the hosts of its inventory."""

import os
from pathlib import Path
from urllib.parse import quote

from backupd.config import Configuration, load
from backupd.config.fleet import ControlConfig
from backupd.config.fleet_reading import FleetFile, load_fleet, locate_fleet
from backupd.config.secrets import named_password
from backupd.fleet.inventory import inventory_hosts
from backupd.vocabulary.fleet import SeenHost


def fleet(explicit: Path | None) -> FleetFile:
    """The fleet that the command line, the environment or the default path names.

    Raises:
        ConfigurationError: listing every fault. What is wrong with the inventory is none: the result tells it.
    """
    return load_fleet(locate_fleet(explicit, os.environ), inventory_hosts)


def notified(control: ControlConfig) -> Configuration | None:
    """The configuration of backupd whose `[notifications.NAME]` are told of the fleet; None where none is named.

    Raises:
        ConfigurationError: listing every fault of it.
    """
    return None if control.notifications is None else load(control.notifications)


def database_url(control: ControlConfig) -> str:
    """The address of the fleet's database as SQLAlchemy takes it, with the password.

    Raises:
        ConfigurationError: the password cannot be had.
    """
    if control.database.startswith("/"):
        return f"sqlite:///{control.database}"
    secret = named_password(control, "control", os.environ)
    if secret is None:
        return control.database
    user, at, rest = control.database.partition("@")
    return f"{user}:{quote(secret, safe='')}{at}{rest}"


def recorded_hosts(control: ControlConfig) -> list[SeenHost]:
    """What the fleet's records last had of each host; nothing where there are none, and none are made.

    Raises:
        ConfigurationError: the database's password cannot be had.
        FleetDatabaseError: it cannot be opened or read.
    """
    if control.database.startswith("/") and not Path(control.database).exists():
        return []
    from backupd.fleet.records import Records  # here: SQLAlchemy takes a while to load

    records = Records.open(database_url(control))
    try:
        return records.seen()
    finally:
        records.engine.dispose()
