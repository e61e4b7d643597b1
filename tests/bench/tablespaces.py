"""Files as a server has them whose tables sysbench made: what a copy's speed is measured on.

Knows: InnoDB's pages of 16 KiB, nearly full of sysbench's rows, whose text is random digits; zstd's level 1 makes 42 %
of them. 32 MiB of pages are made; every file is a sequence of these in an order of its own, in which the same page
comes again after more than zstd's window of level 1 (512 KiB) nearly always. The seed is fixed: the same files each
time. Refuses to know how a server would read them: it would not.
"""

from pathlib import Path
from random import Random

_PAGE_BYTES = 16 << 10
_PAGES = 2048
_FILLED = 15 << 10  # InnoDB leaves a sixteenth of a page free


def make(folder: Path, size: int, *, files: int = 8) -> None:
    """Tables of the schema `sbtest` in a new folder, `size` bytes in all but for the last page of each."""
    random = Random(1)
    pages = [_page(number, random) for number in range(_PAGES)]
    (folder / "sbtest").mkdir(parents=True)
    for number in range(1, files + 1):
        with (folder / "sbtest" / f"sbtest{number}.ibd").open("wb") as file:
            for _ in range(size // files // _PAGE_BYTES):
                file.write(random.choice(pages))


def _page(number: int, random: Random) -> bytes:
    checksum, rows = random.randbytes(4), bytearray()
    while len(rows) < _FILLED:
        rows += _row(number * 80 + len(rows) // 200, random)
    header = checksum + number.to_bytes(4, "big") * 3 + random.randbytes(8) + b"\x45\xbf" + bytes(8) + b"\0\0\0\x21"
    body = (header + bytes(80) + rows)[: _PAGE_BYTES - 8]
    return body.ljust(_PAGE_BYTES - 8, b"\0") + checksum + random.randbytes(4)


def _row(number: int, random: Random) -> bytes:
    """id, k, c and pad of oltp_common.lua, behind InnoDB's header of a compact record and its system columns."""
    text = "-".join(f"{random.randrange(10**11):011}" for _ in range(15)).encode()
    return (
        b"\x3c\x78\0\0\x10\0\xd8"
        + (number | 1 << 31).to_bytes(4, "big")
        + bytes(4)
        + b"\x1f\x05"
        + bytes(7)
        + random.randrange(1 << 31).to_bytes(4, "big")
        + text[:119]
        + b" "
        + text[120:]
        + b" "
    )
