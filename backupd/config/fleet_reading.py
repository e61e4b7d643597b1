"""Which file is the fleet's configuration, and from its text and an inventory to frozen values, or to every fault.

No secret is read or needed here. Who reads the inventory is told by the caller: a command is run elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from backupd.config.documents import parsed, text_of
from backupd.config.fleet import (
    DEFAULT_POLICY,
    SSH_PORT,
    ClusterConfig,
    FleetConfiguration,
    FleetHostConfig,
    InventoryConfig,
    PolicyConfig,
)
from backupd.config.fleet_rules import clusters_of, fleet_faults
from backupd.config.listed_hosts import usable_hosts
from backupd.config.wording import fault
from backupd.policy.inventory import ListedHost
from backupd.vocabulary.faults import Fault, as_error

FLEET_PATH: Final = Path("/etc/backupd/fleet.toml")
FLEET_VARIABLE: Final = "BACKUPD_FLEET_CONFIG"
_MISSING_HINT = f"write one, by the example in configs/fleet.toml; use --config or {FLEET_VARIABLE} for another file"


@dataclass(frozen=True, slots=True)
class InventoryHosts:
    """What an inventory lists. None: nobody knows, because it could not be read and never was."""

    hosts: Sequence[ListedHost] | None = ()
    problems: tuple[str, ...] = ()  # in sentences


@dataclass(frozen=True, slots=True)
class FleetFile:
    """The configuration, complete, and what was wrong with the inventory."""

    configuration: FleetConfiguration
    problems: tuple[str, ...] = ()


ListHosts = Callable[[InventoryConfig], InventoryHosts]


def locate_fleet(explicit: Path | None, environment: Mapping[str, str]) -> Path:
    """The file to read: `--config`, else `BACKUPD_FLEET_CONFIG`, else `/etc/backupd/fleet.toml`. It need not exist."""
    return explicit if explicit is not None else Path(environment.get(FLEET_VARIABLE) or FLEET_PATH)


def load_fleet(path: Path, list_hosts: ListHosts) -> FleetFile:
    """The configuration in this file, whole and checked, with the hosts of its inventory.

    Raises:
        ConfigurationError: no such file, not readable, not TOML, or any number of faults, each with its path and hint.
    """
    return fleet_understood(text_of(path, missing_hint=_MISSING_HINT), path, list_hosts)


def fleet_understood(text: str, path: Path, list_hosts: ListHosts) -> FleetFile:
    """The configuration that this text is, of this file.

    Raises:
        ConfigurationError: as `load_fleet`, but for the reading.
    """
    document = parsed(text, path)
    inventory = _inventory(document)
    listed = list_hosts(inventory) if inventory is not None else InventoryHosts(None if "inventory" in document else ())
    known = usable_hosts(document, listed.hosts)
    configuration, faults = _typed(known.document)
    faults += fleet_faults(known.document, known.hosts, inventory_known=listed.hosts is not None)
    if faults or configuration is None:
        raise as_error(path, [*faults, *(Fault("inventory", problem) for problem in known.problems)])
    source = "" if inventory is None else inventory.source
    problems = (*listed.problems, *(f"the inventory {source}: {problem}" for problem in known.problems))
    return FleetFile(_complete(configuration, known.hosts, clusters_of(known.document, known.hosts)), problems)


def _typed(document: Mapping[str, Any]) -> tuple[FleetConfiguration | None, list[Fault]]:
    try:
        return TypeAdapter(FleetConfiguration).validate_python(document, by_alias=True, by_name=False), []
    except ValidationError as invalid:
        return None, [fault(finding, root=FleetConfiguration) for finding in invalid.errors(include_url=False)]


def _inventory(document: Mapping[str, Any]) -> InventoryConfig | None:
    """None where there is none, or where it has faults of its own: nothing is run by it then."""
    table = document.get("inventory")
    if not isinstance(table, dict) or len({"command", "file"} & table.keys()) != 1:
        return None
    try:
        return TypeAdapter(InventoryConfig).validate_python(table, by_alias=True, by_name=False)
    except ValidationError:
        return None


def _complete(
    configuration: FleetConfiguration, listed: Sequence[ListedHost], members: Mapping[str, Sequence[str]]
) -> FleetConfiguration:
    """With the inventory's hosts, each host in its cluster, each cluster's members, and the default policy."""
    by_name = {one.name: one for one in listed}
    hosts = {name: FleetHostConfig(name=name, **_reached(one)) for name, one in by_name.items()}
    hosts |= {name: _over(table, by_name.get(name)) for name, table in configuration.hosts.items()}
    clusters = {
        name: replace(configuration.clusters.get(name) or ClusterConfig(name=name), members=tuple(there))
        for name, there in members.items()
    }
    for name, cluster in clusters.items():
        hosts |= {member: replace(hosts[member], cluster=name) for member in cluster.members if member in hosts}
    policies = {DEFAULT_POLICY: PolicyConfig(name=DEFAULT_POLICY), **configuration.policies}
    return replace(configuration, hosts=hosts, clusters=clusters, policies=policies)


def _reached(one: ListedHost) -> dict[str, Any]:
    said = {"address": one.address, "port": one.port, "user": one.user, "cluster": one.cluster}
    return {key: value for key, value in said.items() if value is not None}


def _over(table: FleetHostConfig, one: ListedHost | None) -> FleetHostConfig:
    """What the file says of a host goes before what the inventory says."""
    if one is None:
        return table
    port = one.port if one.port is not None and table.port == SSH_PORT else table.port
    return replace(table, address=table.address or one.address, user=table.user or one.user, port=port)
