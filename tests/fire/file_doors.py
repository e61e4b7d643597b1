"""The doors to file systems: names made, changed or removed, what is written into files, and what is made durable.

Knows: that whatever Python opens for writing with `io.open` or `os.fdopen` is written by a raw file of ours, whose
every write is a pass. `os.write` is none: by it pipes and terminals are written as well, and by the doors themselves.
"""

import errno
import io
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from backupd.host import filesystem
from tests.fire.injecting import Fire, where
from tests.fire.points import When
from tests.fire.undoing import Patches

_NAMES = ("mkdir", "rmdir", "rename", "replace", "link", "symlink", "unlink", "remove")
_ATTRIBUTES = ("chmod", "fchmod", "chown", "fchown", "utime", "setxattr")
_CONTENTS = ("truncate", "ftruncate", "pwrite", "pwritev", "sendfile", "fsync", "fdatasync")
_CREATES = os.O_CREAT | os.O_TRUNC


def files(fire: Fire, patches: Patches) -> None:
    """Every one of them, on whose behalf in backupd it is done."""
    for verb in (*_NAMES, *_ATTRIBUTES, *_CONTENTS):
        patches.set(os, verb, _under_fire(fire, verb, getattr(os, verb)))
    opened, opened_by_python, syncfs = os.open, io.open, filesystem._libc.syncfs

    def open_under_fire(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        with _point(fire, "create") if flags & _CREATES else nullcontext():
            return opened(path, flags, *rest, **named)

    def file_under_fire(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wxa+") or not where():
            return opened_by_python(file, mode, buffering, *rest, **named)
        with nullcontext() if isinstance(file, int) else _point(fire, "create"):
            return _file(fire, opened_by_python, file, mode, buffering, *rest, **named)

    patches.set(os, "open", open_under_fire)
    patches.set(io, "open", file_under_fire)
    patches.set(filesystem._libc, "syncfs", _under_fire(fire, "syncfs", lambda descriptor: int(syncfs(descriptor))))


def _under_fire(fire: Fire, verb: str, effect: Callable[..., Any]) -> Callable[..., Any]:
    def under_fire(*words: Any, **named: Any) -> Any:
        with _point(fire, verb):
            return effect(*words, **named)

    return under_fire


def _point(fire: Fire, verb: str) -> AbstractContextManager[object]:
    """The block is a pass where it is done on backupd's behalf."""
    place = where()
    return fire.passing(f"file {verb} < {place}", refusals={When.BEFORE: _no_space}) if place else nullcontext()


class _RawFile(io.FileIO):
    """A file each of whose writes is a pass."""

    fire: Fire

    def write(self, chunk: Any, /) -> Any:
        """As `io.FileIO` does."""
        with _point(self.fire, "write"):
            return super().write(chunk)


def _file(
    fire: Fire,
    opened: Callable[..., Any],
    file: Any,
    mode: str,
    buffering: int,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[str, int], int] | None = None,
) -> Any:
    """What `open` gives, on a raw file of ours. A pipe, a socket, a device is none of ours."""
    if isinstance(file, int) and not stat.S_ISREG(os.fstat(file).st_mode):
        return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _RawFile(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    raw.fire = fire
    if buffering == 0:
        return raw
    kind: Any = io.BufferedRandom if "+" in mode else io.BufferedWriter
    buffered = kind(raw) if buffering in (-1, 1) else kind(raw, buffering)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text


def _no_space() -> BaseException:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
