"""Sizes, whole numbers and lists of them, as a person types them: `64k`, `1,2,6`.

Every function takes the option's name, so that an error can say where it was typed.
"""

import os
import re

from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.units import format_size

_SIZE = re.compile(r"(\d+)(?:([KMG])(?:iB)?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LOAD_PER_PROCESSOR = 10.0

MOST_ROWS = 1_000_000_000  # that a list may be asked for: SQLite counts to 2^63
MOST_SECONDS = 86_400  # of one window: a day


def words(text: str) -> list[str]:
    """What stands between commas; nothing for an empty text."""
    return [word.strip() for word in text.split(",") if word.strip()]


def size(option: str, word: str) -> int:
    """Bytes; `k`, `M` and `G` are 1024 each, as in LVM's own commands.

    Raises:
        UsageError: it is not a size, or none above 0.
    """
    found = _SIZE.fullmatch(word.strip())
    if found is None or not int(found.group(1)):
        raise UsageError(
            f"{option}: {word!r} is not a size", hint=("use a number of bytes, or a size such as 4k, 64KiB, 256M, 1G")
        )
    return int(found.group(1)) * _UNITS[(found.group(2) or "").upper()]


def size_word(size: int) -> str:
    """What `size` reads as this many bytes: `16k`."""
    return format_size(size).removesuffix("iB").replace("K", "k")


def sizes(option: str, text: str) -> tuple[int, ...]:
    """Each size of a list once, in its order.

    Raises:
        UsageError: one of them is not a size, or there is none.
    """
    if not words(text):
        raise UsageError(f"{option}: {text!r} is not a list of sizes", hint=f"for example {option} 64k,256k")
    return tuple(dict.fromkeys(size(option, word) for word in words(text)))


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Each number of a list once, in its order.

    Raises:
        UsageError: one of them is no whole number above 0, or there is none.
    """
    found = words(text)
    if not found or not all(word.isascii() and word.isdecimal() and int(word) > 0 for word in found):
        raise UsageError(
            (f"{option}: {text!r} is not a list of whole numbers above 0"), hint=f"for example {option} 1,10"
        )
    return tuple(dict.fromkeys(int(word) for word in found))


def highest_load(told: float | None) -> float:
    """The load average above which nothing is begun: what a person said, or 10 for each processor."""
    return told if told is not None else _LOAD_PER_PROCESSOR * (os.cpu_count() or 1)
