"""Any value of a type, for Hypothesis: what is kept and read back must be so whatever it is."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold, so that a field that is new is asked for without being named here."""
    inner = get_args(hint)
    if get_origin(hint) is UnionType:
        return st.one_of(*map(values, inner))
    if get_origin(hint) is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if get_origin(hint) is Mapping:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if hint is int:
        return st.integers(0, 2**63 - 1)
    if hint is float:
        return st.floats(0, allow_nan=False, allow_infinity=False)
    if hint is datetime:
        return st.datetimes(timezones=st.just(UTC))
    if isinstance(hint, type) and is_dataclass(hint):
        return st.builds(hint, **{name: values(of_field) for name, of_field in get_type_hints(hint).items()})
    return st.from_type(hint)
