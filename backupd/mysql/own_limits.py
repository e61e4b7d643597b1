"""How a server says that it had no memory or no room left: that is a limit of its own, and nothing about its files.

Knows: the words for it, in an error log, in an error and in a row of CHECK TABLE. They are a stranger's, and may have
any length.
"""

import re

LONGEST_LINE = 500  # of what a server has said, in an error

_WORDS = re.compile(
    r"cannot allocate memory|out of memory|no space left on device|disk (is )?full|(error number|errcode:|error) 28\b",
    re.IGNORECASE,
)


def ran_out(said: str) -> str:
    """The first line that tells it, not whole where it is long; empty where none does."""
    found = _WORDS.search(said)
    if found is None:
        return ""
    begin, end = said.rfind("\n", 0, found.start()) + 1, said.find("\n", found.end())
    return said[begin : end if end >= 0 else None].strip()[:LONGEST_LINE]
