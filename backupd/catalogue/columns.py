"""How a fact of the vocabulary becomes a row of text and numbers, and comes back."""

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, get_origin

from sqlalchemy import Dialect, RowMapping, Text, TypeDecorator

from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.escaping import encodable

if TYPE_CHECKING:
    from pydantic import TypeAdapter


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


class InstantColumn(TypeDecorator[datetime]):
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


class ProseColumn(TypeDecorator[str]):
    """Words for people. What is no Unicode (a file name in an error's message) is spelt out rather than refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Lone surrogates as `\\udc80`: SQLite's driver would raise for them."""
        return None if value is None else encodable(value)


class WordColumn(TypeDecorator[StrEnum]):
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


class JsonColumn(TypeDecorator[Any]):
    """A value of `kind` that is only ever read whole, as JSON: facts, texts, or a mapping of texts to either.

    Of a tuple that nobody has written there is an empty one; of anything else, None. Keys that a fact no longer has are
    ignored, and those that it did not have yet get its default.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self._nothing: tuple[()] | None = () if get_origin(kind) is tuple else None

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The JSON text."""
        value = self._nothing if value is None else value
        return None if value is None else json.dumps(value, default=_plain)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """The value, of its types. JSON is read by `json`: names of files may have bytes that are no characters.

        Raises:
            CatalogueError: there is something else.
        """
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python(json.loads(value)) if value else self._nothing
        except (ValidationError, ValueError, RecursionError) as error:
            raise CatalogueError(
                f"the catalogue contains an invalid value: {value!r:.80}",
                hint="its file was damaged or changed: put back a copy, or make a new one: `backupd catalogue rebuild`",
            ) from error

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return InstantColumn.text(value)
    return dict(value) if isinstance(value, Mapping) else asdict(value)
