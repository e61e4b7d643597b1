"""Notices that people are owed: each is in the fleet's database until it was told, and never owed again.

Knows: that a control host may be killed within anything. What it was telling then is told again by the next one: a
notice may come twice, and is never lost. Of one that cannot be read people are told just that, once; it stays, for
whoever can read it, such as a newer backupd.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Engine, select, update

from backupd.fleet import tables
from backupd.fleet.database import added, explained, reading
from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.escaping import encodable
from backupd.vocabulary.schedule import Notice, NoticeKind

_NOTICES = tables.notices.c


class OwedNotices:
    """Each by what it is about."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def owe(self, notice: Notice, about: str, *also: str) -> bool:
        """It will be told, and counts as owed about all of these; False where one about the first was owed before.

        Raises:
            FleetDatabaseAway: the database does not answer; it is not owed.
        """
        now = datetime.now(UTC)
        with explained(), self._engine.begin() as connection:
            first = added(connection, tables.notices, {"subject": about, "at": now, "notice": _storable(notice)})
            for one in also if first else ():
                added(connection, tables.notices, {"subject": one, "at": now})
            return first

    def never_owed(self, about: Collection[str]) -> list[str]:
        """Those of these about which nobody was ever owed a notice."""
        with explained(), reading(self._engine).connect() as connection:
            known = set(connection.execute(select(_NOTICES.subject).where(_NOTICES.subject.in_(about))).scalars())
        return [one for one in about if one not in known]

    def waiting(self) -> list[tuple[str, Notice]]:
        """Those that are still to be told, with what they are about; the oldest first."""
        query = select(_NOTICES.subject, _NOTICES.notice).where(_NOTICES.notice.is_not(None))
        with explained(), reading(self._engine).connect() as connection:
            rows = connection.execute(query.order_by(_NOTICES.at, _NOTICES.subject)).all()
        unreadable = [_unreadable(row.subject) for row in rows if not isinstance(row.notice, Notice)]
        untold = set(self.never_owed(unreadable)) if unreadable else set()
        waiting: list[tuple[str, Notice]] = []
        for row in rows:
            if isinstance(row.notice, Notice):
                waiting.append((row.subject, row.notice))
            elif (about := _unreadable(row.subject)) in untold:
                waiting.append((about, _substitute(row.subject, row.notice)))
        return waiting

    def told(self, about: str) -> None:
        """People have heard of it: a row says so, also where there was none, as of one that cannot be read."""
        with explained(), self._engine.begin() as connection:
            added(connection, tables.notices, {"subject": about, "at": datetime.now(UTC)})
            connection.execute(update(tables.notices).where(_NOTICES.subject == about).values(notice=None))


def _unreadable(about: str) -> str:
    """What the substitute of the notice about this is about."""
    return f"unreadable {about}"


def _substitute(about: str, error: FleetDatabaseError) -> Notice:
    """Of the gravest kind: what cannot be read may be a failed backup, and many want to hear of nothing less."""
    said = f"there is something to tell of {about!r}, which cannot be read: {error.message}"
    return Notice(NoticeKind.FAILED, "", datetime.now(UTC), about, said, {"hint": error.hint}, cluster="")


def _storable(notice: Notice) -> Notice:
    """The same in characters that can come back."""
    detail = {key: encodable(value) for key, value in notice.detail.items()}
    return replace(notice, subject=encodable(notice.subject), text=encodable(notice.text), detail=detail)
