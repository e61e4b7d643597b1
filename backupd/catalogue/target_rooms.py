"""How much was free on each target, seldom enough that weeks of it are few rows.

Knows: how far apart looks are kept, and for how long. Refuses to judge them: `policy.filling` does.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer, Table, Text, delete, func, insert, or_, select

from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.file import CatalogueFile
from backupd.catalogue.metadata import metadata
from backupd.policy.filling import WINDOW

if TYPE_CHECKING:
    from backupd.policy.trend import Point

APART = timedelta(hours=6)

rooms = Table(
    "target_rooms",
    metadata,
    Column("target", Text, primary_key=True),
    Column("at", InstantColumn, primary_key=True),
    Column("free", Integer, nullable=False),  # bytes
)


class RoomRecords(CatalogueFile):
    """What looks at targets have found."""

    def remember_rooms(self, free: Mapping[str, int], *, at: datetime) -> None:
        """The free bytes of these targets are remembered, of each at most every six hours; what is old is forgotten.

        So is what is dated later than this: the machine's clock was ahead, and would silence every look until then.
        """
        table = rooms.c
        newest = select(table.target, func.max(table.at, type_=InstantColumn).label("at")).where(table.at <= at)
        known = {row["target"]: row["at"] for row in self._read(newest.group_by(table.target))}
        due = {name: count for name, count in free.items() if name not in known or at - known[name] >= APART}
        if not due:
            return
        with self._writing() as connection:
            connection.execute(delete(rooms).where(or_(table.at < at - WINDOW, table.at > at)))
            for name, count in due.items():
                connection.execute(insert(rooms).values(target=name, at=at, free=count))

    def room_points(self, *, until: datetime) -> "dict[str, list[Point]]":
        """The free bytes of each target over time, the oldest first."""
        from backupd.policy.trend import Point  # statistics is not for every command that opens a catalogue

        found: dict[str, list[Point]] = defaultdict(list)
        query = select(rooms).where(rooms.c.at <= until, rooms.c.at >= until - WINDOW)
        for row in self._read(query.order_by(rooms.c.target, rooms.c.at)):
            found[row["target"]].append(Point(row["at"].timestamp(), float(row["free"])))
        return found
