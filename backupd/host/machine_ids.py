"""This machine, as far as it can be told from another: its name, its ids, and which boot this is.

Knows: where Linux keeps them.
"""

import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backupd.vocabulary.identity import Machine, mark

# machine-id(5); a container has often an empty one. The second is D-Bus's own, where systemd is not. A cloned virtual
# machine has the same machine id until somebody resets it, but a new product_uuid of its hypervisor; root alone reads
# that.
_IDS: tuple[tuple[str, Sequence[str]], ...] = (
    ("machine-id", ("etc/machine-id", "var/lib/dbus/machine-id")),
    ("product-uuid", ("sys/class/dmi/id/product_uuid",)),
)
_BOOT_ID = "proc/sys/kernel/random/boot_id"
_PROCESSES = "proc/self/ns/pid"


def this_machine(root: Path = Path("/")) -> Machine:
    """The machine below this root; an id that it has not, or that we may not read, is left out."""
    found = ((kind, _first(root, places)) for kind, places in _IDS)
    marks = {kind: mark(kind, text) for kind, text in found if text}
    return Machine(platform.node(), marks, _boot(root))


def _boot(root: Path) -> str:
    """Containers have their kernel's boot in common, and do not see each other's runs: the processes are named too."""
    boot = _first(root, (_BOOT_ID,))
    with suppress(OSError):
        return f"{boot} {(root / _PROCESSES).readlink()}"
    return boot


def _first(root: Path, places: Sequence[str]) -> str:
    """The text of the first of these files that has any; empty where none has."""
    for place in places:
        with suppress(OSError):
            text = (root / place).read_text("ascii", "replace").strip()
            if text and text != "uninitialized":  # machine-id(5): in an image that was never booted
                return text
    return ""
