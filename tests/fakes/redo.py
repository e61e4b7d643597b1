"""The first bytes of a redo log as MariaDB 10.8 and later write them."""

import struct

from backupd.archive.redo import crc32c

FIRST_LSN = 12288


def sealed(block: bytes, size: int) -> bytes:
    """With its checksum, in a block of that size."""
    return block + crc32c(block).to_bytes(4, "big") + bytes(size - len(block) - 4)


def redo_head(
    *checkpoints: tuple[int, int], version: int = 0x50687973, first_lsn: int = FIRST_LSN, rest: bytes = b""
) -> bytes:
    """Header and checkpoints: of each its LSN and that of the record which names it. `rest` is where a key would be."""
    header = struct.pack(">IIQ32s", version, 0, first_lsn, b"MariaDB 10.11.19") + rest.ljust(460, b"\0")
    blocks = [sealed(struct.pack(">QQ44x", *checkpoint), 4096) for checkpoint in checkpoints]
    return sealed(header, 4096) + b"".join(blocks)
