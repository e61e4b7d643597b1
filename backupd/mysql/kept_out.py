"""A server that a profile of AppArmor keeps from restored files: its error says nothing of them.

Knows: the words in which both servers tell that they were denied a file. Refuses to know which files a profile allows.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backupd.host.apparmor import enforced_profile
from backupd.host.process import where
from backupd.mysql.server_programs import ServerProgram
from backupd.vocabulary.errors import ServerError, Undecided

_DENIED = re.compile(r"permission denied|\b(?:errno|errcode|error number):? 13\b", re.IGNORECASE)


@contextmanager
def let_in(program: ServerProgram, said: Callable[[], str], folders: Sequence[Path]) -> Iterator[None]:
    """Within the block it works in these folders; what it has `said` is its log.

    Raises:
        Undecided: in place of an error of a server that was denied a file, where a profile binds its program.
    """
    try:
        yield
    except Undecided:
        raise
    except ServerError as error:
        executed = program.argv[0]  # by which the kernel goes
        profile = enforced_profile(Path(where(executed) or executed))
        if profile is None or not _DENIED.search(said()):
            raise
        raise Undecided(
            f"AppArmor's profile {profile.name} keeps the server from the restored files: allow them in"
            f" {profile.own_lines_in}",
            hint=profile.hint(folders),
        ) from error
