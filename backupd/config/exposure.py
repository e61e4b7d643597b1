"""What other machines could read on its way, or reach here: an address that is not HTTPS, pages without a token.

Knows: which addresses stay on this machine.
"""

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backupd.vocabulary.faults import Fault, dotted, quoted

_Tables = Mapping[str, Any]


def is_loopback(host: str) -> bool:
    """Whether what is sent to this name or address stays on this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def leaves_in_clear(address: str) -> bool:
    """Whether anybody on the way can read what is sent there."""
    with contextlib.suppress(ValueError):  # no address at all, of which the schema tells
        parts = urlsplit(address)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")
    return False


def pages_unguarded(address: str, token_file: Path | None, *, table: str) -> Fault | None:
    """Other machines get to the pages only with a token. `table`: the one of the configuration that has both keys."""
    if token_file is not None or is_loopback(address):
        return None
    return Fault(
        f"{table}.address",
        f"{quoted(address)} can be reached from other machines, but no token is set",
        f'set {table}.token_file, or address = "127.0.0.1"',
    )


def target_in_the_clear(name: str, target: _Tables) -> Iterator[Fault]:
    """A store is spoken to by HTTPS, unless it is said in words that it need not be."""
    endpoint = target.get("endpoint")
    if isinstance(endpoint, str) and target.get("accept_http") is not True and leaves_in_clear(endpoint):
        yield Fault(
            dotted(("targets", name, "endpoint")),
            f"{quoted(endpoint)} is not HTTPS: anybody on the network path can see and change the data",
            "write https:// (ca names the certificate of the store's authority), or accept_http = true",
        )
