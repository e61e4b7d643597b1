"""Whether a server has been at work on a copy: as long as none has, its files are what they were.

Knows: that one may have from the moment its process is there, unless that ended before it became the server.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from subprocess import Popen

from backupd.host.sandbox import NOT_CONFINED
from backupd.vocabulary.errors import CommandError, NeverStarted, UsageError


@dataclass(slots=True)
class ServerTrace:
    """What a copy may have of a server, for who has to know it once that is gone."""

    child: bool = False  # a process was there, which may have left others behind
    server: bool = False  # it was the server: the files may be changed
    answered: bool = False  # the server did: whatever its end looks like, it was there

    @contextmanager
    def left_by(self, child: "AbstractContextManager[Popen[bytes]]") -> "Iterator[Popen[bytes]]":
        """The child within the block. It is to become the server, and the block tells by its error where it did not:
        it could not be confined, or the program could not be executed.
        """
        before = replace(self)
        self.child = self.server = True
        process: Popen[bytes] | None = None
        try:
            with child as process:
                yield process
        except CommandError as error:
            if process is None and error.never_began:
                self.child, self.server = before.child, before.server
            raise
        except NeverStarted:
            self.server = before.server or self.answered
            raise
        except UsageError:
            if process is not None and process.returncode == NOT_CONFINED:
                self.server = before.server or self.answered
            raise
