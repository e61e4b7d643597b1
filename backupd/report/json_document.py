"""What every JSON document of ours is made of: plain values, of which none is a number that JSON has no word for."""

from datetime import datetime
from math import isfinite
from typing import Any

Document = dict[str, Any]


def clean(value: Any) -> Any:
    """The same with null for every float that JSON has no word for, and lists for tuples."""
    match value:
        case dict():
            return {key: clean(one) for key, one in value.items()}
        case list() | tuple():
            return [clean(one) for one in value]
        case float() if not isfinite(value):
            return None
        case _:
            return value


def iso(at: datetime | None) -> str | None:
    """An instant as ISO 8601 has it; null where there is none."""
    return None if at is None else at.isoformat()
