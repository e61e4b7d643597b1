"""Asking a machine's kernel what its processes wait for, when none of them answers any more.

Knows: the management console of a user-mode kernel, a datagram socket in its `uml_dir` (the kernel's documentation,
"user mode linux", and arch/um/include/shared/mconsole.h: version 2).
"""

import contextlib
import os
import socket
import struct
from pathlib import Path

_REQUEST = struct.Struct("=III512s")  # magic, version, bytes of the command, the command
_ANSWER = struct.Struct("=iII")  # error, whether more comes, bytes of what follows
_MAGIC, _VERSION = 0xCAFEBABE, 2
_MOST = 4096
_SECONDS = 5.0


def tell_what_is_waited_for(uml_dir: Path) -> bool:
    """The machine's console has the processes that wait where no signal reaches them; False where it did not answer.

    Most such a process waits for a disk. A stack is not to be had: the kernel (6.1) gives up at its first frame.
    """
    for console in uml_dir.glob("*/mconsole"):
        with contextlib.suppress(OSError):
            _ask(console, b"sysrq w")
            return True
    return False


def _ask(console: Path, command: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_SECONDS)
        asking.bind(f"\0backupd-lab-{os.getpid()}")  # an abstract name: the kernel answers to where it was asked from
        asking.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(command), command), str(console))
        while True:
            _, more, _ = _ANSWER.unpack_from(asking.recv(_MOST))
            if not more:
                return
