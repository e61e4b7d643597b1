"""Who started this process, as far as the host can tell.

Knows: where sudo and the kernel say it. Refuses to prove it: who is root can be anyone, and can set what sudo sets.
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

_LARGEST_UID = 0xFFFF_FFFF
_LONGEST = 64  # characters of a name; useradd(8) allows 32


@dataclass(frozen=True, slots=True)
class Operator:
    """The person, or the service's account, whose process this is."""

    name: str  # from outside: printable, and cut
    uid: int


def operator(environment: Mapping[str, str] = os.environ) -> Operator:
    """Who called sudo, where root's process was started by it (sudo(8): SUDO_USER, SUDO_UID); else the account."""
    uid = os.getuid()
    told, number = environment.get("SUDO_USER", ""), environment.get("SUDO_UID", "")
    if uid == 0 and told and number.isascii() and number.isdigit() and int(number[:10]) <= _LARGEST_UID:
        return Operator(_printable(told), int(number[:10]))
    try:
        return Operator(_printable(pwd.getpwuid(uid).pw_name), uid)
    except KeyError:  # an account that this host does not know, as in a container
        return Operator("", uid)


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name[:_LONGEST])
