"""The catalogue's tables of what people were told. Private to this package: others ask `store`."""

from sqlalchemy import Column, Table, Text

from backupd.catalogue.columns import InstantColumn, ProseColumn, WordColumn
from backupd.catalogue.metadata import metadata
from backupd.vocabulary.alarms import AlarmKind
from backupd.vocabulary.schedule import NoticeKind

notices = Table(  # what was told already
    "notices",
    metadata,
    Column("kind", WordColumn(NoticeKind), primary_key=True),
    Column("job", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("at", InstantColumn, nullable=False),
)

standing_alarms = Table(  # an `OpenAlarm` each, until it is over
    "standing_alarms",
    metadata,
    Column("job", Text, primary_key=True),
    Column("kind", WordColumn(AlarmKind), primary_key=True),
    Column("about", Text, primary_key=True),
    Column("text", ProseColumn, nullable=False),
    Column("since", InstantColumn, nullable=False),
    Column("told_at", InstantColumn),
    Column("run_id", Text, nullable=False),
)
