"""A file that is written beside the one whose place it takes, so that a reader finds the old one or the new one, whole.

Knows: that a draft is at work while its lock, flock(2), is held; the kernel forgets that of a process that has died,
and the next one removes what it left. Refuses to know what is written, and in which way it takes the place.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TOKEN_BYTES = 8


@contextmanager
def draft_of(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """An empty file beside this one, which only we can read, and its name: that is gone at the end of the block.

    Raises:
        OSError: it could not be made.
    """
    remove_abandoned_drafts(path)
    draft, descriptor = _made(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, draft
    finally:
        draft.unlink(missing_ok=True)


def remove_abandoned_drafts(path: Path) -> None:
    """No draft of this file is there that nobody is writing; one that cannot be removed stays."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names are enough
            if ours.fullmatch(name):
                _remove_unheld(path.with_name(name))


def _made(path: Path) -> tuple[Path, int]:
    """A new one, and a descriptor that has its lock; another one where it was taken for abandoned before that."""
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        os.close(descriptor)


def _remove_unheld(draft: Path) -> None:
    with suppress(OSError):  # somebody is writing it, or it is none of ours to remove
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()
        finally:
            os.close(descriptor)
