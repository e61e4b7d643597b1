"""A kernel that refuses some calls, as containers and older ones do: `python unconfinable.py CALL… -- COMMAND`.

By a filter (seccomp(2)) that the command inherits. x86_64 and aarch64 alone have numbers here.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence

NUMBERS = {
    "x86_64": {"unshare": 272, "mount_setattr": 442, "landlock_create_ruleset": 444},
    "aarch64": {"unshare": 97, "mount_setattr": 442, "landlock_create_ruleset": 444},
}
_ERRORS = {"unshare": errno.EPERM, "mount_setattr": errno.ENOSYS, "landlock_create_ruleset": errno.ENOSYS}


def without(calls: Sequence[str]) -> list[str]:
    """What stands before a command that shall be refused them."""
    return [sys.executable, __file__, *calls, "--"] if calls else []


def main() -> None:
    end = sys.argv.index("--")
    lines = [(0x20, 0, 0, 0)]
    for call in sys.argv[1:end]:
        lines.append((0x15, 0, 1, NUMBERS[os.uname().machine][call]))
        lines.append((0x06, 0, 0, 0x00050000 | _ERRORS[call]))
    lines.append((0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, struct.pack("@HP", len(lines), ctypes.addressof(code)), 0, 0) == 0
    command = sys.argv[end + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
