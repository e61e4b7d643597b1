"""Whether another server's log continues an archived one, by GTIDs.

Knows: that a set of MySQL's tells each transaction, and MariaDB's position of a domain only the last one; so that of
MariaDB's servers the last of each domain's every server are compared as well: what one wrote on its own before it was
promoted is among them. Refuses to know where in its log the archived history ends: whoever reads it finds that.
"""

from dataclasses import dataclass
from enum import StrEnum

from backupd.policy import gtid


@dataclass(frozen=True, slots=True)
class History:
    """What was executed, as a log tells it."""

    gtids: str
    state: str = ""  # of MariaDB's, where it is known

    @property
    def is_mariadbs(self) -> bool:
        """By its GTIDs, of which there is at least one."""
        return ":" not in self.gtids


class Agreement(StrEnum):
    """What another server has, beside what is archived."""

    HAS_ALL = "has all"  # what is archived, and perhaps more
    BEHIND = "behind"  # nothing that is not archived, and not yet all of that
    DIFFERS = "differs"


def agreement(archived: History, server: History) -> Agreement:
    """What the server has. One that is behind may catch up; one that has other transactions instead does not.

    Raises:
        ServerError: a set is none.
    """
    if not archived.gtids or (archived.is_mariadbs and not archived.state):
        return Agreement.DIFFERS
    if not server.gtids:
        return Agreement.BEHIND
    if archived.is_mariadbs is not server.is_mariadbs:
        return Agreement.DIFFERS
    if archived.is_mariadbs:
        return _of_mariadbs(archived, server)
    if gtid.is_within(archived.gtids, server.gtids):
        return Agreement.HAS_ALL
    return Agreement.BEHIND if gtid.is_within(server.gtids, archived.gtids) else Agreement.DIFFERS


def _of_mariadbs(archived: History, server: History) -> Agreement:
    known, there = gtid.state_of(archived.state), gtid.state_of(server.state)
    last = gtid.state_of(archived.gtids)
    if all(there.get(one, -1) >= number for one, number in last.items()):
        return Agreement.HAS_ALL
    is_archived = all(number <= known.get(one, -1) for one, number in there.items())
    return Agreement.BEHIND if is_archived else Agreement.DIFFERS


class ArchivedEnd:
    """Looks for the place of a log at which exactly the archived history has been executed."""

    def __init__(self, archived: History) -> None:
        self._archived = archived
        self._state = gtid.state_of(archived.state)
        self._behind = gtid.behind(archived.gtids)
        self._lasts = frozenset(gtid.lasts(archived.gtids))

    def has(self, one: str) -> bool:
        """Whether this transaction is archived; of MariaDB, whether it may be by its number."""
        source, number = gtid.source_and_number(one)
        return any(first <= number <= last for first, last in self._behind.get(source, ()))

    def may_end_with(self, one: str) -> bool:
        """Whether the place may lie behind this transaction: only then it is worth comparing."""
        return one.lower() in self._lasts

    def is_here(self, here: History) -> bool:
        """Whether it is where this has been executed."""
        return gtid.same(here.gtids, self._archived.gtids)

    def stranger(self, here: History) -> str:
        """A transaction of MariaDB's that is not archived, or not the archive's last one of its server; else empty."""
        for (domain, server), number in gtid.state_of(here.state).items():
            if self._state.get((domain, server)) != number:
                return f"{domain}-{server}-{number}"
        return ""
