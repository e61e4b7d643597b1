"""The log of a run: one file for each below `paths.log`, which outlives the terminal, the daemon and the run.

Knows: where the file is, how a line of it looks, how long it is kept. A log that cannot be written is a warning; the
run goes on without one.
"""

import contextlib
import logging
import os
import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from backupd.host.filesystem import opened_plain
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.escaping import PlainFormatter, indented
from backupd.vocabulary.schedule import Activity

log = logging.getLogger(__name__)

KEPT_SECONDS = 400 * 86400.0  # so that last year's run of the same night can still be looked at
_TAIL_BYTES = 256 << 10  # of which the last lines are shown: a line is a few hundred at most
_MARKED_BYTES = 256  # at the beginning of a log, in which its run's id is
_OUTPUT = re.compile(rf"(({'|'.join(Activity)})-.+-)?\d{{8}}-.+\.out\.log")  # of what was started without systemd


class RunLogs:
    """The files below one folder (`paths.log`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, run_id: str) -> Path:
        """Where a run's log is, if there is one."""
        return self._folder / f"{run_id}.log"

    @contextmanager
    def kept(self, run_id: str) -> Iterator[None]:
        """What the process logs within the block is in the run's file as well, and so is the error that ends it.

        Appended to where there is one. What the other handlers show stays as it was. Logs of ours that are old enough
        are removed; others may keep theirs in the folder.
        """
        root = logging.getLogger()
        handler = self._handler(run_id)
        if handler is None:
            yield
            return
        self._remove_old()
        with _listening(root, handler):
            try:
                yield
            except BaseException as error:
                _keep_error(handler, error)
                raise

    def tail(self, run_id: str, *, lines: int) -> list[str]:
        """The last lines, the oldest first; none where there is no log, or it cannot be read."""
        try:
            with self.path(run_id).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return []
        return list(deque(text.splitlines(), maxlen=lines))

    def _handler(self, run_id: str) -> "logging.StreamHandler[TextIO] | None":
        path = self.path(run_id)
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            log.warning("this run has no log: %s: %s", path, error.strerror)
            return None
        handler = _Handler(os.fdopen(descriptor, "a", encoding="utf-8", errors="replace"))
        handler.setLevel(logging.INFO)
        line = PlainFormatter(
            f"%(asctime)s.%(msecs)03dZ %(levelname)-7s [{run_id}] %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
        )
        line.converter = time.gmtime
        handler.setFormatter(line)
        return handler

    def _remove_old(self) -> None:
        oldest = time.time() - KEPT_SECONDS
        for path in self._folder.glob("*.log"):
            with contextlib.suppress(OSError):  # of a file that another run removes, or that may not be removed
                if path.lstat().st_mtime < oldest and self._is_ours(path):
                    path.unlink()

    def _is_ours(self, path: Path) -> bool:
        """By its run's id, which a run's log begins with and is called by, or by the name of what the daemon started.

        Raises:
            OSError: it is no plain file, or cannot be read.
        """
        with opened_plain(path, beneath=self._folder) as file:
            begins = file.read(_MARKED_BYTES).partition(b"\n")[0]
        return f" [{path.stem}] ".encode() in begins or _OUTPUT.fullmatch(path.name) is not None


class _Handler(logging.StreamHandler[TextIO]):
    """Says once that it cannot write, on stderr, where the other handlers write as well."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002  # the standard library's
        """The run goes on."""
        if not self.failed:
            self.failed = True
            words = indented(f"warning: the run's log is incomplete: {sys.exc_info()[1]}")
            with contextlib.suppress(OSError, ValueError):  # nobody takes them: it is full as well, or gone, or closed
                if sys.stderr is not None:
                    sys.stderr.write(words + "\n")

    def close(self) -> None:
        """The file is closed; what could not be written is lost."""
        with contextlib.suppress(OSError):
            self.stream.close()
        super().close()


@contextmanager
def _listening(root: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Within the block INFO reaches this handler, and the others what reached them before."""
    level, others = root.level, {other: other.level for other in root.handlers}
    for other in others:
        other.setLevel(max(other.level, level))
    root.setLevel(min(level, logging.INFO))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for other, before in others.items():
            other.setLevel(before)
        handler.close()


def _keep_error(handler: logging.Handler, error: BaseException) -> None:
    """As the console tells it; of a fault of ours with the traceback."""
    if isinstance(error, BackupdError):
        words = "; ".join(
            [error.message, *getattr(error, "__notes__", ()), f"hint: {error.hint}" if error.hint else ""]
        )
    else:
        words = "".join(traceback.format_exception(error)).rstrip()
    record = logging.LogRecord(__name__, logging.ERROR, __file__, 0, words, None, None)
    handler.handle(record)
