"""How a fact of the vocabulary becomes a row of text and numbers, and comes back.

Knows: the types of columns.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from sqlalchemy import Dialect, RowMapping, Text, TypeDecorator

from backupd.vocabulary.escaping import encodable
from backupd.vocabulary.gauges import TunedCell
from backupd.vocabulary.scratch_layouts import LayoutKind, ScratchLayout
from backupd.vocabulary.servers import Position, ReplicaPosition


class Fact(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


AnyFact = TypeVar("AnyFact", bound=Fact)


def to_row(fact: Fact) -> dict[str, Any]:
    """The fact's fields by name; the column types do the rest."""
    return {field.name: getattr(fact, field.name) for field in fields(fact)}


def from_row(kind: type[AnyFact], row: Mapping[str, Any] | RowMapping) -> AnyFact:
    """The fact that `to_row` took apart; other columns of the row are left alone."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


class Instant(TypeDecorator[datetime]):
    """An aware datetime, as ISO 8601 text in UTC with microseconds: it reads well and sorts by time."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Refuses a naive datetime with a ValueError: its zone would be a guess."""
        return None if value is None else self.text(value)

    @staticmethod
    def text(value: datetime) -> str:
        """As it is stored."""
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
        return None if value is None else encodable(value)


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


class FactsColumn(TypeDecorator[tuple[Fact, ...]]):
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


class Layouts(TypeDecorator[tuple[ScratchLayout, ...]]):
    """The layouts of a bench in their order, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[ScratchLayout, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        """A JSON list of objects."""
        return json.dumps([asdict(layout) for layout in value or ()])

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[ScratchLayout, ...]:  # noqa: ARG002
        """The layouts."""
        told = json.loads(value or "[]")
        return tuple(ScratchLayout(LayoutKind(one["kind"]), tuple(one["disks"]), one["stripe_size"]) for one in told)


class Cells(TypeDecorator[tuple[TunedCell, ...]]):
    """The cells of a tuning in their order, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[TunedCell, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        """A JSON list of objects."""
        return json.dumps([asdict(cell) for cell in value or ()])

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[TunedCell, ...]:  # noqa: ARG002
        """The cells."""
        told = json.loads(value or "[]")
        return tuple(
            TunedCell(one["chunk_size"], tuple(one["cow_pvs"]), tuple(one["speeds"]), one.get("stripes", 1))
            for one in told  # those of catalogues up to 0003 say nothing of stripes: they were all linear
        )


class PositionColumn(TypeDecorator[Position]):
    """A position in one column, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Position | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """A JSON object."""
        return None if value is None else json.dumps(asdict(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Position | None:  # noqa: ARG002
        """The position."""
        if value is None:
            return None
        told = json.loads(value)
        return Position(**{**told, "replicas": tuple(ReplicaPosition(**one) for one in told["replicas"])})


class Entries(TypeDecorator[Mapping[str, Any]]):
    """A mapping of words to words or figures, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """A JSON object."""
        return None if value is None else json.dumps(dict(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any] | None:  # noqa: ARG002
        """A plain dict."""
        return None if value is None else dict(json.loads(value))


class Names(TypeDecorator[tuple[str, ...]]):
    """A few strings in their order, as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        """A JSON list."""
        return json.dumps(value or ())

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:  # noqa: ARG002
        """A tuple."""
        return tuple(json.loads(value or "[]"))
