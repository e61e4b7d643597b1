"""The catalogue's tables of runs, backups and schedules. Private to this package: others ask `store`.

Knows: names and types of columns. A table that keeps a fact of the vocabulary has the fact's field names as its
columns. A change here needs a revision in `migrations/`, whose name `HEAD` then is; a test holds the two together.
"""

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    or_,
    select,
    text,
)

from backupd.catalogue import binlog_tables, measurement_tables, notice_tables  # noqa: F401  the metadata has all tables
from backupd.catalogue.columns import InstantColumn, JsonColumn, ProseColumn, WordColumn
from backupd.catalogue.metadata import metadata as metadata
from backupd.catalogue.metadata import of_run
from backupd.policy.trust import Known
from backupd.vocabulary.penalty import Counted, GateOutcome, Reason
from backupd.vocabulary.records import FINISHED_LATER, Check, DrilledMoment, HoldingKind, Phase, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, SlotState
from backupd.vocabulary.servers import Position, PreflushEnd, ReplicaPosition
from backupd.vocabulary.volumes import Layout

HEAD = "0018"  # the newest revision in `migrations/`

identities = Table(  # an `Identity`; the newest row counts, and those before it are names that were given up
    "identities",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("bound_to", JsonColumn(dict[str, Any]), nullable=False),
    Column("made_at", InstantColumn, nullable=False),
)

owners = Table(  # a `ChainEnd` for each owner chain; the newest of a target is the one that is gone on with there
    "owners",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("follows", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("since_seconds", Float, nullable=False),
    Column("pending", Boolean, nullable=False),  # it may have been written, by a process that did not live to tell
)

keys = Table(  # a `KnownKey`
    "keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("machine", Text, primary_key=True),
    Column("since", InstantColumn, nullable=False),
    Column("how", WordColumn(Known), nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("status", WordColumn(RunStatus), nullable=False),
    Column("pid", Integer),
    Column("process_start", Integer),  # clock ticks since boot: tells the process from a later one with its pid
    Column("boot_id", Text),  # of the kernel that it ran under
    Column("started_at", InstantColumn, nullable=False),
    Column("ended_at", InstantColumn),
    Column("kind", WordColumn(RunKind), nullable=False, server_default=RunKind.BACKUP.value),
    Column("max_rate", Integer),  # bytes a second: a ceiling that this run alone was given
    # That its job's binlog archive had received last when it began; empty: none; NULL: nobody knows.
    Column("behind_segment", Text),
    Index(None, "started_at"),
    Index(None, "job", "started_at"),
    Index(None, "kind", "started_at"),  # probes are few among many backups
    Index(None, "kind", "job", "started_at"),
    Index(None, "status", "started_at", "run_id"),
    Index(None, "kind", "machine", "job", "started_at"),
    Index(None, "kind", "machine", "job", "status"),  # counted in it alone
)
# What a job has come to is told by the runs of this machine: those of another one, which `catalogue rebuild --from` has
# brought in, are kept beside them.
OURS = runs.c.machine == select(identities.c.name).order_by(identities.c.id.desc()).limit(1).scalar_subquery()

errors = Table(
    "errors",
    metadata,
    of_run(one=True),
    Column("code", Text, nullable=False),
    Column("message", ProseColumn, nullable=False),
    Column("hint", ProseColumn, nullable=False),
    Column("exit_status", Integer, nullable=False),
)

phases = Table(
    "phases",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("phase", WordColumn(Phase), primary_key=True),
    Column("seconds", Float, nullable=False),
)

verdicts = Table(
    "verdicts",
    metadata,
    of_run(one=True),
    Column("outcome", WordColumn(GateOutcome), nullable=False),
    Column("reason", WordColumn(Reason), nullable=False),
    Column("detail", ProseColumn, nullable=False),
    Column("waited_seconds", Float, nullable=False),
)

positions = Table(
    "positions",
    metadata,
    of_run(one=True),
    Column("binlog_file", Text),
    Column("binlog_offset", Integer),
    Column("gtid", Text),
    Column("replicas", JsonColumn(tuple[ReplicaPosition, ...]), nullable=False),
    Column("derived", Boolean, nullable=False, server_default="0"),  # by a drill: nothing was locked
)

preflushes = Table(
    "preflushes",
    metadata,
    of_run(one=True),
    Column("pages_before", Integer, nullable=False),
    Column("pages_after", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("ended", WordColumn(PreflushEnd), nullable=False),
)

locks = Table(
    "locks",
    metadata,
    of_run(one=True),
    Column("strategy", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("wait_seconds", Float, nullable=False),
    Column("hold_seconds", Float, nullable=False),
    Column("proof", Text, nullable=False),
    Column("lsn", Integer),
    Column("position_seconds", Float, nullable=False),
    Column("flush_seconds", Float, nullable=False),
    Column("proof_seconds", Float, nullable=False),
    Column("unlock_seconds", Float, nullable=False),
    Column("stalled", Integer),
)

snapshots = Table(
    "snapshots",
    metadata,
    of_run(one=True),
    Column("name", Text, nullable=False),
    Column("volume", Text, nullable=False),
    Column("layout", WordColumn(Layout), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("chunk_size", Integer, nullable=False),
    Column("cow_size", Integer, nullable=False),
    Column("cow_used_peak", Integer),
    Column("pool", Text),
    Column("chunk_reason", Text, nullable=False),
    Column("cow_extended", Integer, nullable=False),
    Column("size_reason", Text, nullable=False),
    Column("redo_left_out", Integer, nullable=False, server_default="0"),
    Column("taken_at", InstantColumn),
)

bills = Table(
    "bills",
    metadata,
    of_run(one=True),
    Column("seconds", Float, nullable=False),
    Column("penalty_seconds", Float),
    Column("copied_on_write", Integer),
    Column("disks", Integer, nullable=False),
    Column("disk_seconds", Float),
    Column("disk_read_seconds", Float),
)

losses = Table(
    "losses",
    metadata,
    of_run(one=True),
    Column("counted", WordColumn(Counted), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("rate_before", Float, nullable=False),
    Column("rate_after", Float),
    Column("done", Integer, nullable=False),
    Column("noise", Float, nullable=False),
)

samples = Table(
    "samples",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("at_seconds", Float, nullable=False),
    Column("stage", Text, nullable=False),
    Column("iops", Float),
    Column("ratio", Float),
    Column("latency_p95_ms", Float),
    Column("probe_bytes", Integer, nullable=False),
    Column("cow_used", Integer),
    Column("cow_rate", Float),
    Column("replica_lag_seconds", Float),
    Column("write_latency_ms", Float),
)

backups = Table(
    "backups",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("target", Text, primary_key=True),
    Column("location", Text, nullable=False),
    Column("bytes_read", Integer, nullable=False),
    Column("bytes_stored", Integer, nullable=False),
    Column("files", Integer, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),  # in the job's order
    Column("verified_at", InstantColumn),
    Column("broken", ProseColumn, nullable=False, server_default=text("''")),
    Column("removed_at", InstantColumn),
    Column("removed_because", ProseColumn, nullable=False, server_default=text("''")),
    Column("read_frames", Integer, nullable=False, server_default=text("0")),
    Column("reading_since", InstantColumn),
    Column("manifest_digest", Text, nullable=False, server_default=text("''")),  # empty: of an earlier backupd's
    Column("recipients", JsonColumn(tuple[str, ...]), nullable=False, server_default=text("'[]'")),
)
# The few that are not removed, among the many that were: all that is asked of them is in the index itself.
THERE = backups.c.removed_at.is_(None)
Index(
    "ix_backups_there", backups.c.target, backups.c.run_id, backups.c.bytes_stored, backups.c.broken, sqlite_where=THERE
)

pending_manifests = Table(  # of runs whose copies are being read back: with it `recover` finishes what has died then
    "pending_manifests",
    metadata,
    of_run(one=True),
    Column("text", Text, nullable=False),
)

copies = Table(  # of every run that began to copy, whatever became of it
    "copies",
    metadata,
    of_run(one=True),
    Column("bytes_read", Integer, nullable=False),
    Column("of_bytes", Integer, nullable=False),
    Column("used_bytes", Integer, nullable=False),
)

throughput = Table(
    "throughput",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("stage", Text, primary_key=True),
    Column("ordinal", Integer, nullable=False),  # in the order of the work
    Column("bytes", Integer, nullable=False),
    Column("busy_seconds", Float, nullable=False),
)

pace_changes = Table(
    "pace_changes",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("at_seconds", Float, nullable=False),
    Column("share", Float, nullable=False),
    Column("bytes_per_second", Integer),
    Column("reason", ProseColumn, nullable=False),
)

pins = Table(
    "pins",
    metadata,
    of_run(one=True),
    Column("note", ProseColumn, nullable=False),
    Column("at", InstantColumn, nullable=False),
)

audit = Table(  # as `audit` writes it: texts, because a row's digest covers them as they are stored
    "audit",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", Text, nullable=False),  # as an `InstantColumn`
    Column("event", Text, nullable=False),
    Column("subject", Text, nullable=False),  # a run's id
    Column("detail", Text, nullable=False),  # a JSON object
    Column("previous", Text, nullable=False),
    Column("digest", Text, nullable=False),
)

APPEND_ONLY = tuple(  # triggers: an UPDATE, a DELETE and an INSERT OR REPLACE are refused, whoever sends them
    f"CREATE TRIGGER audit_{name} BEFORE {verb} ON audit {when}"
    "BEGIN SELECT RAISE(ABORT, 'the audit chain is only appended to'); END"
    for name, verb, when in (
        ("no_update", "UPDATE", ""),
        ("no_delete", "DELETE", ""),
        ("next_number", "INSERT", "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM audit) "),
    )
)

attentions = Table(
    "attentions",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("text", ProseColumn, nullable=False),
)
# That others finished the run, whose process had died or which could not record its copy.
TELLS_OF_FINISHING = or_(*(attentions.c.text.startswith(beginning) for beginning in FINISHED_LATER))

holdings = Table(
    "holdings",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("kind", WordColumn(HoldingKind), nullable=False),
    Column("name", Text, nullable=False),
    Column("detail", JsonColumn(dict[str, Any]), nullable=False),
    Column("held_at", InstantColumn, nullable=False),
    Column("released_at", InstantColumn),
    Index(None, "released_at"),  # the daemon asks at each look what was not released
)

drills = Table(
    "drills",
    metadata,
    Column("id", Integer, primary_key=True),
    of_run(one=False),
    Column("ok", Boolean, nullable=False),
    Column("checks", JsonColumn(tuple[Check, ...]), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("at", InstantColumn, nullable=False),
    Column("position", JsonColumn(Position)),
    Column("undecided", ProseColumn, nullable=False, server_default=text("''")),
    Column("moment", JsonColumn(DrilledMoment)),
    Index(None, "at"),  # walked from the newest back
    Index("ix_drills_of_moments", "at", "id", sqlite_where=text("moment IS NOT NULL")),
)

# --- what is done by schedule ----------------------------------------------------------------------------------------

slots = Table(
    "slots",
    metadata,
    Column("job", Text, primary_key=True),
    Column("activity", WordColumn(Activity), primary_key=True),
    Column("due_at", InstantColumn, primary_key=True),
    Column("state", WordColumn(SlotState), nullable=False),
    Column("decided_at", InstantColumn, nullable=False),
    Column("run_id", Text, nullable=False),  # no reference: the run makes its row itself, a little later
    Column("reason", ProseColumn, nullable=False),
    Column("ended_at", InstantColumn),
    Column("exit_status", Integer),
    Column("tried", JsonColumn(tuple[str, ...]), nullable=False, server_default=text("'[]'")),
    Column("retry_at", InstantColumn),
    Index(None, "due_at"),
    Index(None, "state", "job", "activity"),
)

pauses = Table(
    "pauses",
    metadata,
    Column("job", Text, primary_key=True),
    Column("note", ProseColumn, nullable=False),
    Column("at", InstantColumn, nullable=False),
)

# Alembic's own table, written by hand for a fresh catalogue. Apart, because Alembic doesn't count it as schema.
bookkeeping = MetaData()
version = Table(
    "alembic_version",
    bookkeeping,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
