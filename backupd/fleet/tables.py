"""The tables of the fleet's records. Private to this package: others ask `records`.

Every name begins with `fleet_`: the engine keeps its own tables in the same database. A change needs a step in
`schema`, whose number `HEAD` then is.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Date, Index, Integer, MetaData, Table, Text

from backupd.fleet.columns import Json, StoredInstant, StoredWords, ToldJson, Word
from backupd.vocabulary.fleet import FleetState, FleetTry, HostDescription, OwedBackup, PauseScope
from backupd.vocabulary.records import RunDetails
from backupd.vocabulary.schedule import Notice

HEAD: Final = 4

metadata = MetaData()

version = Table("fleet_version", metadata, Column("version", Integer, nullable=False))

backups = Table(  # a `FleetBackup`, and what it is looked for by
    "fleet_backups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("night", Date, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("member", Text, nullable=False, server_default=""),  # whose it is, where each member owes one; else ""
    Column("state", Word(FleetState), nullable=False),
    Column("host", Text),  # of the last try
    Column("owed", Json(OwedBackup), nullable=False),
    Column("tries", ToldJson(tuple[FleetTry, ...]), nullable=False),
    Column("changed_at", StoredInstant),
    Column("good_at", StoredInstant),  # when its run had ended well
    Column("phase", Text, nullable=False),
    Column("copied_bytes", BigInteger),
    Column("stored_bytes", BigInteger),
    Column("lost_transactions", BigInteger),
    Column("said", StoredWords, nullable=False),
    Index("ix_fleet_backups_night", "night", "id"),
    Index("ix_fleet_backups_cluster_night", "cluster", "night", "id"),
    Index("ix_fleet_backups_job_night", "cluster", "job", "night", "id"),
    Index("ix_fleet_backups_job_good_at", "cluster", "job", "good_at"),
    Index("ix_fleet_backups_state", "state", "night", "id"),
    Index("ix_fleet_backups_host", "host", "night", "id"),
)

results = Table(  # what a host's catalogue has of a run of the fleet's
    "fleet_results",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("ended_at", StoredInstant),
    Column("details", Json(RunDetails), nullable=False),
)

hosts = Table(  # a `SeenHost`
    "fleet_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("answered_at", StoredInstant),
    Column("described", ToldJson(HostDescription)),
    Column("problem", StoredWords, nullable=False),
)

pauses = Table(  # a `FleetPause`
    "fleet_pauses",
    metadata,
    Column("scope", Word(PauseScope), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("note", StoredWords, nullable=False),
    Column("at", StoredInstant, nullable=False),
)

cancels = Table(  # somebody wants this backup to end
    "fleet_cancels",
    metadata,
    Column("id", Text, primary_key=True),
    Column("note", StoredWords, nullable=False),
    Column("at", StoredInstant, nullable=False),
)

nights = Table(  # that were planned and submitted
    "fleet_nights",
    metadata,
    Column("night", Date, primary_key=True),
    Column("planned_at", StoredInstant, nullable=False),
)

notices = Table(  # what people were told once, or are to be told
    "fleet_notices",
    metadata,
    Column("subject", StoredWords, primary_key=True),
    Column("at", StoredInstant, nullable=False),  # since when it is owed
    Column("notice", ToldJson(Notice)),  # until it was told
)
_to_be_told = notices.c.notice.is_not(None)
Index("ix_fleet_notices_owed", notices.c.at, postgresql_where=_to_be_told, sqlite_where=_to_be_told)

control = Table(  # a `Control`: one row
    "fleet_control",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("since", StoredInstant, nullable=False),
    Column("seen_at", StoredInstant, nullable=False),
)
