"""How a fact of the vocabulary becomes a row of text and numbers, and comes back."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, get_origin

from sqlalchemy import Dialect, RowMapping, TableValuedAlias, Text, TypeDecorator, func
from sqlalchemy import column as sql_column
from sqlalchemy.types import TypeEngine

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


def spelt(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of what was told elsewhere: SQLite's driver would raise for what is no Unicode."""
    return {name: encodable(value) if type(value) is str else value for name, value in row.items()}


def from_row(kind: type[AnyFact], row: Mapping[str, Any] | RowMapping) -> AnyFact:
    """The fact that `to_row` took apart; other columns of the row are left alone."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def as_table(name: str, values: Sequence[object], kind: TypeEngine[Any] | None = None) -> TableValuedAlias:
    """These values, texts if not told otherwise, as a table of one column, `value`: SQLite reads it from one parameter,
    however many they are.
    """
    column = sql_column("value", Text() if kind is None else kind)
    return func.json_each(json.dumps(list(values))).table_valued(column, name=name)


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
        """Aware, in UTC.

        Raises:
            CatalogueError: there is something else.
        """
        try:
            instant = None if value is None else datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise _invalid(value) from error
        if instant is not None and instant.tzinfo is None:
            raise _invalid(value)
        return instant


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
        """The word.

        Raises:
            CatalogueError: there is something else.
        """
        try:
            return None if value is None else self.kind(value)
        except ValueError as error:
            raise _invalid(value) from error


class JsonColumn(TypeDecorator[Any]):
    """A value of `kind` that is only ever read whole, as JSON: facts, texts, or a mapping of texts to either.

    Of a tuple that nobody has written there is an empty one; of anything else, None. Keys that a fact no longer has are
    ignored, and those that it did not have yet get its default. Where many rows have few values that cannot change
    (`few`), equal ones are read once.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any, *, few: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.few = few
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
        if not value:
            return self._nothing
        return self._read_once(value) if self.few else self._read(value)

    @cached_property
    def _read_once(self) -> Callable[[str], Any]:
        return lru_cache(maxsize=64)(self._read)

    def _read(self, value: str) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python(json.loads(value))
        except (ValidationError, TypeError, ValueError, RecursionError) as error:
            raise _invalid(value) from error

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)


def _invalid(value: object) -> CatalogueError:
    return CatalogueError(
        f"the catalogue contains an invalid value: {value!r:.80}",
        hint="its file was damaged or changed: put back a copy, or make a new one: `backupd catalogue rebuild`",
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return InstantColumn.text(value)
    return dict(value) if isinstance(value, Mapping) else asdict(value)
