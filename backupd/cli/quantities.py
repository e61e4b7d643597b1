"""Sizes, numbers and lists of them, as a person types them: `64k`, `1,2,6`, `2.5`.

Every function takes the option's name, so that an error can say where it was typed.
"""

import math
import os
import re
from decimal import Decimal

from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.units import LARGEST_SIZE, format_size

_NUMBER = re.compile(r"0*[1-9][0-9]{0,8}", re.ASCII)
_SIZE = re.compile(r"([0-9]+)(?:([KMG])(?:iB)?|B)?", re.IGNORECASE)
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
        UsageError: it is not a size, none above 0, or more than any file has.
    """
    found = _SIZE.fullmatch(word.strip())
    if found is None or not found.group(1).strip("0"):
        raise UsageError(
            f"{option}: {word!r} is not a size",
            hint="use a number of bytes, or a size such as 4k, 64KiB, 256M, 1G",
        )
    size = Decimal(found.group(1)) * _UNITS[(found.group(2) or "").upper()]
    if size > LARGEST_SIZE:
        raise UsageError(f"{option}: {word!r} is too large", hint="use a size such as 4k, 64KiB, 256M, 1G")
    return int(size)


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
    if not found or not all(_NUMBER.fullmatch(word) for word in found):
        raise UsageError(
            f"{option}: {text!r} is not a list of whole numbers from 1 to 999999999",
            hint=f"for example {option} 1,10",
        )
    return tuple(dict.fromkeys(int(word) for word in found))


def amount(option: str, told: float) -> float:
    """The number itself: `nan` is one to Python too, and no limit that is one is ever exceeded.

    Raises:
        UsageError: it is negative, infinite or none.
    """
    if not 0 <= told < math.inf:
        raise UsageError(f"{option}: {told:g} is not a number from 0 up", hint=f"for example {option} 10")
    return told


def highest_load(told: float | None) -> float:
    """The load average above which nothing is begun: what a person said, or 10 for each processor.

    Raises:
        UsageError: it is none.
    """
    return amount("--max-load", told) if told is not None else _LOAD_PER_PROCESSOR * (os.cpu_count() or 1)
