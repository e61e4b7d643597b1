"""Every host's agent asked what its host is, side by side, so many at once."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from backupd.fleet import Agents, HostAway, HostRefuses
from backupd.vocabulary.fleet import SeenHost


@dataclass(frozen=True, slots=True)
class AskedHost:
    """What a host told, or why it did not."""

    seen: SeenHost
    away: bool = False  # it may answer later
    hint: str = ""


SeenTo = Callable[[str], Sequence[str]]  # the jobs of a host of which whoever asks makes the backups


def ask_hosts(
    hosts: Iterable[str], agents: Agents, *, at_once: int, seen_to: SeenTo = lambda _: ()
) -> dict[str, AskedHost]:
    """What each host says; one that is away keeps the others waiting for no longer than its own deadline."""
    names = list(hosts)
    with ThreadPoolExecutor(max_workers=max(1, min(at_once, len(names)))) as pool:
        return dict(zip(names, pool.map(partial(_asked, agents, seen_to), names), strict=True))


def _asked(agents: Agents, seen_to: SeenTo, host: str) -> AskedHost:
    try:
        described = agents.agent(host).describe(seen_to(host))
    except (HostAway, HostRefuses) as error:
        unseen = SeenHost(host, None, None, _of_it(host, error.message))
        return AskedHost(unseen, isinstance(error, HostAway), error.hint)
    return AskedHost(SeenHost(host, datetime.now(UTC), described))


def _of_it(host: str, said: str) -> str:
    """The same of the host that it begins with: wherever it is shown, the host's name stands before it."""
    if said.startswith(f"{host}: "):
        return said.removeprefix(f"{host}: ")
    return f"it{said.removeprefix(host)}" if said.startswith(f"{host} ") else said
