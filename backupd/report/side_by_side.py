"""Two records side by side: which they are, and in which circumstances they differ; for probes, benches and backups.

Knows: how a comparison begins, in words and as a document. Each kind has figures of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from backupd.report.words import columns, instant
from backupd.vocabulary.records import RunDetails

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from backupd.vocabulary.benches import BenchRecord
    from backupd.vocabulary.probes import ProbeRecord

_Record: TypeAlias = "RunDetails | ProbeRecord | BenchRecord"


@dataclass(frozen=True, slots=True)
class Difference:
    """A circumstance that is not the same in both: it may be what explains their figures."""

    key: str
    a: Any
    b: Any
    name: str
    say: Callable[[Any], str] = str


def differing(
    a: "DataclassInstance", b: "DataclassInstance", *, names: Mapping[str, str], say: Callable[[str, Any], str]
) -> list[Difference]:
    """The fields of two values of one class that are not the same."""
    both = ((field.name, getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    return [
        Difference(key, of_a, of_b, names.get(key, key.replace("_", " ")), partial(say, key))
        for key, of_a, of_b in both
        if of_a != of_b
    ]


def beginning(
    a: _Record, b: _Record, what: tuple[str, str], found: Sequence[Difference], *, same: str = ""
) -> list[str]:
    """The first parts of a comparison in words: both records, each with what it is of, and what differs, or `same`."""
    headings = [
        (f"{letter}:", one.run_id, of, instant(one.started_at), one.status.value)
        for letter, one, of in (("a", a, what[0]), ("b", b, what[1]))
    ]
    if found:
        rows = [(f"  {one.name}", one.say(one.a), one.say(one.b)) for one in found]
        return [columns(headings), "a and b differ in\n" + columns([("", "A", "B"), *rows])]
    return [columns(headings), *([same] if same else [])]


def document(a: _Record, b: _Record, found: Iterable[Difference]) -> dict[str, Any]:
    """The same for programs: `a`, `b` and `differs`."""
    return {
        "a": _side(a),
        "b": _side(b),
        "differs": [{"name": one.key, "a": one.a, "b": one.b} for one in found],
    }


def _side(one: _Record) -> dict[str, Any]:
    job = {"job": one.job} if isinstance(one, RunDetails) else {}
    return {"run_id": one.run_id, **job, "status": one.status.value, "started_at": one.started_at.isoformat()}
