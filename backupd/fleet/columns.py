"""How the facts of a fleet become values that PostgreSQL and SQLite both keep, and come back.

A text of strangers may have what neither keeps: NUL, which PostgreSQL refuses, and halves of characters.
"""

import json
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, Dialect, Text, TypeDecorator

from backupd.vocabulary.errors import FleetDatabaseError
from backupd.vocabulary.escaping import encodable

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class StoredInstant(TypeDecorator[datetime]):
    """An aware datetime; SQLite, which has no zones, keeps it in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Refuses a naive datetime with a ValueError: its zone would be a guess."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"an instant needs a time zone: {value}")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Aware, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StoredWords(TypeDecorator[str]):
    """Words for people, of any characters."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """What has no encoding, and NUL, as an escape."""
        return None if value is None else encodable(value).replace("\0", "\\x00")


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
        """The word.

        Raises:
            FleetDatabaseError: there is something else.
        """
        try:
            return None if value is None else self.kind(value)
        except ValueError as error:
            raise _invalid(value) from error


class Json(TypeDecorator[Any]):
    """A fact that is only ever read whole, as JSON. Keys that it no longer has are ignored; new ones need a default."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The JSON text."""
        return None if value is None else to_json(self._adapter, value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """The fact.

        Raises:
            FleetDatabaseError: there is something else.
        """
        return None if value is None else from_json(self._adapter, value)

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)


class ToldJson(Json):
    """The same of what a host has told, or people are to be told. One that cannot be read must hide no other."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """The fact; the `FleetDatabaseError` itself where there is something else."""
        try:
            return super().process_result_value(value, dialect)
        except FleetDatabaseError as error:
            return error


def to_json(adapter: "TypeAdapter[Any]", value: Any) -> str:
    """The fact as a JSON text of ASCII characters."""
    return json.dumps(adapter.dump_python(value, mode="python"), default=_plain, separators=(",", ":"))


def from_json(adapter: "TypeAdapter[Any]", text: str) -> Any:
    """The fact that a JSON text is.

    Raises:
        FleetDatabaseError: it is something else.
    """
    from pydantic import ValidationError

    try:
        return adapter.validate_python(json.loads(text))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _invalid(text) from error


def _invalid(value: object) -> FleetDatabaseError:
    return FleetDatabaseError(
        f"the fleet's database contains an invalid value: {value!r:.80}",
        hint="a newer backupd, or something else, has written it: use that one; do not discard the database for it",
    )


def _plain(value: Any) -> Any:
    """What JSON has no kind for."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, dict | list | tuple | str):
        return value
    return str(value)
