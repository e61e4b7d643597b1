"""What Aria's control file says of the tables beside it: the size of their pages.

Knows: where it stands in `aria_log_control` (`ma_control_file.c` of MariaDB; looked at on 10.11.19). A server that is
given another size refuses to start: "Block size in control file (16384) is different than given aria_block_size".
Aria's own option decides it when the datadir is made. The file is read and not the setting: it is what the server goes
by, and every backup has it.
"""

from contextlib import suppress
from pathlib import Path

from backupd.host.filesystem import opened_plain
from backupd.mysql.relocation import Relocation

CONTROL_FILE = "aria_log_control"

_MAGIC = b"\xfe\xfe\x0c"
_AT = 24  # a number of two bytes, the lower one first
_SIZES = tuple(1 << power for power in range(10, 16))  # that a server takes: 1024 to 32768


def aria_block_size(copy: Relocation, folder: Path) -> int | None:
    """Bytes of a page, by the control file in that folder of the copy, which is a stranger's.

    None where there is none, or nothing that a server could use: it says itself what is wrong with it.
    """
    with suppress(OSError), opened_plain(copy.seen(folder / CONTROL_FILE), beneath=copy.seen(copy.folder)) as file:
        head = file.read(_AT + 2)
        size = int.from_bytes(head[_AT:], "little")
        if head.startswith(_MAGIC) and size in _SIZES:
            return size
    return None
