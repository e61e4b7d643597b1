"""The catalogue's tables. Private to this package: others ask `store`.

Knows: names and types of columns, and how a fact of `model` becomes a row and comes back. A table that keeps a fact
has the fact's field names as its columns. Refuses to know queries and files. What changes here needs a revision in
`migrations/`, and `HEAD` is then its name; a test holds the two together.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    RowMapping,
    String,
    Table,
    Text,
    TypeDecorator,
)

from backupd.model import Check, HoldingKind, Layout, Outcome, Phase, Reason, ReplicaPosition, RunStatus

HEAD = "0001"  # the newest revision in `migrations/`


class Fact(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


AnyFact = TypeVar("AnyFact", bound=Fact)


def to_row(fact: Fact) -> dict[str, Any]:
    """The fact's fields by name; the column types do the rest."""
    return {field.name: getattr(fact, field.name) for field in fields(fact)}


def from_row(kind: type[AnyFact], row: RowMapping) -> AnyFact:
    """The fact that `to_row` took apart; other columns of the row are left alone."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


class Instant(TypeDecorator[datetime]):
    """An aware datetime, as ISO 8601 text in UTC with microseconds: it reads well and sorts by time."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Refuses a naive datetime with a ValueError: its zone would be a guess."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"an instant needs a time zone: {value}")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Aware, in UTC."""
        return None if value is None else datetime.fromisoformat(value)


class Prose(TypeDecorator[str]):
    """Words for people. What is no Unicode (a file name in an error's message) is spelt out rather than refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Lone surrogates as `\\udc80`: SQLite's driver would raise for them."""
        return None if value is None else value.encode("utf-8", "backslashreplace").decode()


class Word(TypeDecorator[StrEnum]):
    """One of the words of `kind`, as text."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The word's text."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:  # noqa: ARG002
        """The word."""
        return None if value is None else self.kind(value)


class Facts(TypeDecorator[tuple[Fact, ...]]):
    """A few flat facts of `kind` that are only ever read together, as JSON."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Fact]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: tuple[Fact, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        """A JSON list of objects."""
        return json.dumps([asdict(fact) for fact in value or ()])

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Fact, ...]:  # noqa: ARG002
        """The facts, in their order."""
        return tuple(self.kind(**entry) for entry in json.loads(value or "[]"))


class Strings(TypeDecorator[Mapping[str, str]]):
    """A mapping of strings, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, str] | None, dialect: Dialect) -> str:  # noqa: ARG002
        """A JSON object."""
        return json.dumps(dict(value or {}))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, str]:  # noqa: ARG002
        """A plain dict."""
        return dict(json.loads(value or "{}"))


metadata = MetaData(
    naming_convention={  # a batch migration can only drop a constraint that has a name
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _of_run(*, one: bool) -> Column[str]:
    """The run that a row belongs to; `one` where a run has at most one such row."""
    reference = ForeignKey("runs.run_id")
    return Column("run_id", Text, reference, primary_key=one, nullable=False, index=None if one else True)


runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("status", Word(RunStatus), nullable=False),
    Column("pid", Integer),
    Column("process_start", Integer),  # clock ticks since boot: tells the process from a later one with its pid
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Index(None, "started_at"),
    Index(None, "job", "started_at"),
)

errors = Table(
    "errors",
    metadata,
    _of_run(one=True),
    Column("code", Text, nullable=False),
    Column("message", Prose, nullable=False),
    Column("hint", Prose, nullable=False),
    Column("exit_status", Integer, nullable=False),
)

phases = Table(
    "phases",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("phase", Word(Phase), primary_key=True),
    Column("seconds", Float, nullable=False),
)

verdicts = Table(
    "verdicts",
    metadata,
    _of_run(one=True),
    Column("outcome", Word(Outcome), nullable=False),
    Column("reason", Word(Reason), nullable=False),
    Column("detail", Prose, nullable=False),
    Column("waited_seconds", Float, nullable=False),
)

positions = Table(
    "positions",
    metadata,
    _of_run(one=True),
    Column("binlog_file", Text),
    Column("binlog_offset", Integer),
    Column("gtid", Text),
    Column("replicas", Facts(ReplicaPosition), nullable=False),
)

locks = Table(
    "locks",
    metadata,
    _of_run(one=True),
    Column("strategy", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("wait_seconds", Float, nullable=False),
    Column("hold_seconds", Float, nullable=False),
    Column("proof", Text, nullable=False),
    Column("lsn", Integer),
)

snapshots = Table(
    "snapshots",
    metadata,
    _of_run(one=True),
    Column("name", Text, nullable=False),
    Column("volume", Text, nullable=False),
    Column("layout", Word(Layout), nullable=False),
    Column("stripes", Integer, nullable=False),
    Column("stripe_size", Integer),
    Column("chunk_size", Integer, nullable=False),
    Column("cow_size", Integer, nullable=False),
    Column("cow_used_peak", Integer),
)

samples = Table(
    "samples",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_run(one=False),
    Column("at_seconds", Float, nullable=False),
    Column("stage", Text, nullable=False),
    Column("iops", Float),
    Column("ratio", Float),
    Column("latency_p95_ms", Float),
    Column("probe_bytes", Integer, nullable=False),
    Column("cow_used", Integer),
    Column("cow_rate", Float),
    Column("replica_lag_seconds", Float),
)

backups = Table(
    "backups",
    metadata,
    _of_run(one=True),
    Column("target", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("bytes_read", Integer, nullable=False),
    Column("bytes_stored", Integer, nullable=False),
    Column("files", Integer, nullable=False),
    Column("sha256", Text, nullable=False),
)

attentions = Table(
    "attentions",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_run(one=False),
    Column("text", Prose, nullable=False),
)

holdings = Table(
    "holdings",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_run(one=False),
    Column("kind", Word(HoldingKind), nullable=False),
    Column("name", Text, nullable=False),
    Column("detail", Strings, nullable=False),
    Column("held_at", Instant, nullable=False),
    Column("released_at", Instant),
)

drills = Table(
    "drills",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_run(one=False),
    Column("ok", Boolean, nullable=False),
    Column("checks", Facts(Check), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("at", Instant, nullable=False),
)

# Alembic's own table, written by hand for a fresh catalogue. Apart, because Alembic doesn't count it as schema.
bookkeeping = MetaData()
version = Table(
    "alembic_version",
    bookkeeping,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
