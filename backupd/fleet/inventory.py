"""The inventory that fleet.toml names: a command that is asked, or a file that is read, and the last good one of them.

Knows: that somebody may be writing the file just now, that the command may hang, fail or print nothing, and that a
night goes on with what was right yesterday: what could be read is kept, and used while there is nothing better.
"""

import logging
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from pydantic import TypeAdapter, ValidationError

from backupd.config.fleet import InventoryConfig
from backupd.config.fleet_reading import InventoryHosts
from backupd.config.secrets import without_waiting
from backupd.host.process import spawned
from backupd.policy.drafts import draft_of
from backupd.policy.inventory import BadInventory, InventoryReading, ListedHost, ListedHosts, listed_hosts
from backupd.policy.inventory_text import MOST_BYTES, groups_in
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.escaping import on_one_line

log = logging.getLogger(__name__)

_COMPLAINT_BYTES = 4096
_PIECE = 1 << 16
_MANY: Final = 10  # hosts, from which on the loss of half of them looks like half a file
_KEPT: Final = TypeAdapter(tuple[ListedHost, ...])


def inventory_hosts(inventory: InventoryConfig) -> InventoryHosts:
    """The hosts that it lists now; where that fails, those that it listed last, and a sentence that says so."""
    source, kept = inventory.source, _kept(inventory.last_good)
    try:
        found = _read(inventory)
        _require_no_half(found.hosts, kept, inventory.last_good)
    except BadInventory as bad:
        return _without(source, str(bad), kept)
    except BackupdError as error:
        return _without(source, f"cannot be read: {error.message}", kept)
    if found.hosts != kept:
        _keep(inventory.last_good, found.hosts)
    return InventoryHosts(found.hosts, tuple(f"the inventory {source}: {problem}" for problem in found.problems))


def _without(source: str, fact: str, kept: Sequence[ListedHost] | None) -> InventoryHosts:
    if kept is None:
        return InventoryHosts(
            None, (f"the inventory {source} {fact}; no earlier one is kept, so its hosts are unknown",)
        )
    return InventoryHosts(kept, (f"the inventory {source} {fact}; the last good one is used, with {len(kept)} hosts",))


def _read(inventory: InventoryConfig) -> ListedHosts:
    """Raises BadInventory: it is none. BackupdError: the program cannot be started."""
    reading = InventoryReading(inventory.group, inventory.cluster_variable, inventory.cluster_prefix)
    if inventory.command is not None:
        printed = _printed_by(inventory.command, timeout_seconds=inventory.timeout_seconds)
        return listed_hosts(groups_in(_text(printed)), reading)
    path = inventory.file
    assert path is not None  # the rules have it so
    try:
        with open(path, "rb", opener=without_waiting) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInventory(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    return listed_hosts(groups_in(_text(content), name=path.name), reading)


def _text(content: bytes) -> str:
    if len(content) > MOST_BYTES:
        raise BadInventory(f"is larger than {MOST_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadInventory("is not UTF-8 text") from None


def _require_no_half(hosts: Sequence[ListedHost], kept: Sequence[ListedHost] | None, last_good: Path) -> None:
    """A cut INI or YAML file is often a good one that is shorter. Clusters are no sign: they may move to fleet.toml."""
    if kept is not None and len(kept) >= _MANY and len(hosts) * 2 < len(kept):
        raise BadInventory(
            f"lists {len(hosts)} hosts, the last good one {len(kept)}: it looks half-written"
            f" (if it is right, remove {last_good})"
        )


def _printed_by(argv: Sequence[str], *, timeout_seconds: float) -> bytes:
    """What the program prints on stdout until it ends.

    Raises:
        BadInventory: it failed, passed its deadline, or printed too much.
        CommandError: it cannot be started.
    """
    with spawned(argv) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        printed, complaints, in_time = _drained(child.stdout, child.stderr, timeout_seconds)
        if not in_time:
            raise BadInventory(f"did not end within {timeout_seconds:g} s")
        if len(printed) > MOST_BYTES:
            raise BadInventory(f"is larger than {MOST_BYTES >> 20} MiB")
        try:
            status = child.wait(timeout=max(timeout_seconds, 1.0))
        except subprocess.TimeoutExpired:
            raise BadInventory(f"did not end within {timeout_seconds:g} s") from None
    if status != 0:
        said = on_one_line(complaints.decode(errors="replace").strip()) or "(nothing)"
        raise BadInventory(f"ended with status {status} and said: {said}")
    return printed


def _drained(stdout: IO[bytes], stderr: IO[bytes], timeout_seconds: float) -> tuple[bytes, bytes, bool]:
    """What both print, up to a limit, and whether both ended in time."""
    kept: dict[int, bytearray] = {stdout.fileno(): bytearray(), stderr.fileno(): bytearray()}
    most = {stdout.fileno(): MOST_BYTES + 1, stderr.fileno(): _COMPLAINT_BYTES}
    deadline = time.monotonic() + timeout_seconds
    with selectors.DefaultSelector() as both:
        for descriptor in kept:
            both.register(descriptor, selectors.EVENT_READ)
        while both.get_map() and len(kept[stdout.fileno()]) <= MOST_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                return b"", b"", False
            for key, _ in both.select(left):
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    both.unregister(key.fd)
                kept[key.fd] += piece[: most[key.fd] - len(kept[key.fd])]
    return bytes(kept[stdout.fileno()]), bytes(kept[stderr.fileno()]), True


def _kept(path: Path) -> tuple[ListedHost, ...] | None:
    """The last good one; None where there is none, or it cannot be read."""
    try:
        return _KEPT.validate_json(path.read_bytes()) or None
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        log.warning("the last good inventory %s cannot be used: %s", path, type(error).__name__)
        return None


def _keep(path: Path, hosts: Sequence[ListedHost]) -> None:
    """In one step. Where that fails, the next failure of the inventory finds an older one: a warning, and no more."""
    try:
        with draft_of(path) as (file, draft):
            file.write(_KEPT.dump_json(tuple(hosts)))
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)
    except OSError as error:
        log.warning("the inventory could not be kept in %s: %s", path, (error.strerror or str(error)).lower())
