"""A fleet of eight hosts, of which one is away; the file is the page's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from backupd import wiring
from backupd.config.fleet import FleetConfiguration
from backupd.fleet import HostAway
from backupd.vocabulary.fleet import HostDescription
from tests.docs.places import PAGES
from tests.docs.stage import Stage, host
from tests.fakes.agents import FakeAgents
from tests.fleets import TOLD_BY, described, replica, source

_GIB = 1 << 30
_LAST_GOOD = datetime(2026, 11, 25, 22, tzinfo=UTC)
_CLUSTERS = {  # the source, the replica, how long a backup takes in minutes, what it stores, where
    "orders": ("db1", "db2", 95, 410, ("nas1",)),
    "bills": ("db4", "db5", 50, 180, ("nas1",)),
    "users": ("db6", "db7", 40, 120, ("nas1",)),
    "db8": ("db8", "", 30, 60, ("nas1", "offsite")),
}


def play(stage: Stage) -> None:
    hosts: dict[str, HostDescription | HostAway] = {
        "db3": HostAway("it does not answer: connection refused", hint="is sshd running there?")
    }
    for number, (follows, follower, minutes, gib, targets) in enumerate(_CLUSTERS.values()):
        terms = {"targets": targets, "expected_seconds": minutes * 60.0, "expected_bytes": gib * _GIB}
        terms |= {"last_good_at": _LAST_GOOD, "fallback_after_seconds": 36 * 3600.0}
        hosts[follows] = described(follows, source(server=f"{number}1", **terms))
        if follower:
            behind = replace(replica(3.0, server=f"{number}2", **terms), follows=f"{follows}:3306")
            hosts[follower] = described(follower, behind)

    @contextmanager
    def agents(_configuration: FleetConfiguration) -> Iterator[FakeAgents]:
        yield FakeAgents(hosts)

    with host(stage, "control") as control:
        control.patch.setattr(wiring, "fleet_agents", agents)
        control.terminal.configuration.write_text(_file(control.world.base))
        (control.world.base / "told-by.toml").write_text(TOLD_BY)
        control.types("fleet", "check", status=3)
        control.types("fleet", "plan", "--date", "2026-11-26")


def _file(folder: Path) -> str:
    """The example of `docs/pages/fleet.md`, with the paths of this host."""
    page = (PAGES / "fleet.md").read_text()
    _, begins, rest = page.partition("```toml\n[control]\n")
    example, _, _ = rest.partition("```")
    told_by = "/etc/backupd/backupd.toml"
    assert begins
    assert told_by in example
    return f'[control]\ndatabase = "{folder}/fleet.sqlite"\n{example.replace(told_by, f"{folder}/told-by.toml")}'
