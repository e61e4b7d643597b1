"""What Python raises where this host has no memory or thread left for what is to be done.

Knows: that it is no bug and no finding, but a limit of the host's, which may be gone the next time.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from backupd.vocabulary.errors import HostExhausted

_NO_THREAD = "can't start new thread"  # CPython's words, in a RuntimeError


@contextmanager
def told_as_exhausted(doing: str) -> Iterator[None]:
    """Of a block, or of the function that this stands above.

    Raises:
        HostExhausted: the host had no memory or thread left.
    """
    try:
        yield
    except MemoryError as error:
        raise _none_left("memory", doing) from error
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        raise _none_left("thread", doing) from error


def _none_left(what: str, doing: str) -> HostExhausted:
    return HostExhausted(
        f"this host has no {what} left for {doing}",
        hint="free memory or raise the limit (free -m, ulimit -v, ulimit -u): nothing was found damaged",
    )
