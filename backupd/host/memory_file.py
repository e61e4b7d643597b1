"""A file without a name and in memory: what a program is given to read, or what it prints.

Knows: that there may be no room for one, and its mode: servers' clients pass over options that everybody may write.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from backupd.vocabulary.errors import HostExhausted


@contextmanager
def memory_file(text: str = "") -> Iterator[int]:
    """Its descriptor, at its beginning; it is there for as long as anybody has it open.

    Raises:
        HostExhausted: there is no memory, or no descriptor, for it.
    """
    try:
        file = os.fdopen(os.memfd_create("stream"), "w+b", buffering=0)
    except OSError as error:
        raise _no_room(error) from error
    with file:
        try:
            os.fchmod(file.fileno(), 0o600)
            file.write(text.encode())
            file.seek(0)
        except OSError as error:
            raise _no_room(error) from error
        yield file.fileno()


def written(descriptor: int) -> str:
    """All that is in it by now."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")


def _no_room(error: OSError) -> HostExhausted:
    reason = (error.strerror or str(error)).lower()
    return HostExhausted(f"no program can be started: {reason}", hint="check the free memory (free -m) and ulimit -n")
