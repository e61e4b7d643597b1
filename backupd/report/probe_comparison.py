"""Two probes beside each other: what differs between them, and their rows in pairs.

Knows: which row of one belongs to which of the other. Refuses to judge which is better: that is what the figures say.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backupd.report.json_document import Document, clean
from backupd.report.probe_combinations import cow_on, short_pv
from backupd.report.probe_table import row_document
from backupd.report.side_by_side import Difference, beginning, differing, document
from backupd.report.words import columns, duration, figure, ratio, share, size
from backupd.vocabulary.gauges import CowPlace, Stage
from backupd.vocabulary.probes import Measurement, ProbeRecord, ProbeRow, ProbeSettings

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RowPair:
    """Rows that were measured alike; None on the side that has no such row."""

    a: ProbeRow | None
    b: ProbeRow | None

    @property
    def iops_ratio(self) -> float | None:
        """b ÷ a: above 1, b does more."""
        return self.b.iops / self.a.iops if self.a and self.b and self.a.iops else None


def compare_document(a: ProbeRecord, b: ProbeRecord) -> Document:
    """What `probe --compare A B --json` prints; `a` and `b` of a pair are rows as in the probe's own document."""
    plain: Document = clean(
        {
            **document(a, b, differences(a, b)),
            "rows": [
                {
                    "a": None if pair.a is None else row_document(pair.a),
                    "b": None if pair.b is None else row_document(pair.b),
                    "iops_ratio": pair.iops_ratio,
                }
                for pair in pairs(a, b)
            ],
        }
    )
    return plain


def compare_table(a: ProbeRecord, b: ProbeRecord) -> str:
    """Both probes' names, what differs between them, and their rows in pairs; a dash where one has no such row."""
    same = "a and b: the same volume, the same settings" if a.measurement and b.measurement else ""
    parts = beginning(a, b, (_of(a), _of(b)), differences(a, b), same=same)
    matched = list(pairs(a, b))
    parts.append(_pair_table(matched) if matched else "neither has a row")
    return "\n\n".join(parts)


def differences(a: ProbeRecord, b: ProbeRecord) -> list[Difference]:
    """In which of their volumes' and settings' fields they differ; none where one of them measured nothing."""
    if a.measurement is None or b.measurement is None:
        return []
    both = ((a.measurement.volume, b.measurement.volume), (a.measurement.settings, b.measurement.settings))
    return [one for of_a, of_b in both for one in differing(of_a, of_b, names=_NAMES, say=_said)]


def pairs(a: ProbeRecord, b: ProbeRecord) -> Iterator[RowPair]:
    """Every row of both, once: pairs in the order of a's rows, then what only b has.

    Rows belong together when mode, threads, block size, chunk size, COW area's PVs, number of snapshots and phase are
    the same. Of the rest, those do where each was measured under its own probe's defaults: two probes with different
    default chunk sizes are compared, not listed.
    """
    if a.measurement is None or b.measurement is None:
        yield from (RowPair(row, None) for row in (a.measurement.rows if a.measurement else ()))
        yield from (RowPair(None, row) for row in (b.measurement.rows if b.measurement else ()))
        return
    left, right = a.measurement, b.measurement
    partners = _matched(left.rows, right.rows, (_exact, _exact))
    rest_a = [row for row in left.rows if id(row) not in partners]
    taken = {id(row) for row in partners.values()}
    rest_b = [row for row in right.rows if id(row) not in taken]
    partners |= _matched(rest_a, rest_b, (_by_defaults(left), _by_defaults(right)))
    yield from (RowPair(row, partners.get(id(row))) for row in left.rows)
    taken = {id(row) for row in partners.values()}
    yield from (RowPair(None, row) for row in right.rows if id(row) not in taken)


def _matched(
    a: Sequence[ProbeRow], b: Sequence[ProbeRow], keys: tuple[Callable[[ProbeRow], _Key], Callable[[ProbeRow], _Key]]
) -> dict[int, ProbeRow]:
    """Rows of b by the identity of a's row that they belong to; each is taken once."""
    waiting: dict[_Key, list[ProbeRow]] = {}
    for row in b:
        waiting.setdefault(keys[1](row), []).append(row)
    return {id(row): same.pop(0) for row in a if (same := waiting.get(keys[0](row)))}


def _exact(row: ProbeRow) -> _Key:
    load = (row.mode, row.threads, row.block_size)
    return (*load, row.chunk_size, row.cow_pvs, row.cow_stripes, row.snapshots, row.phase)


def _by_defaults(measurement: Measurement) -> Callable[[ProbeRow], _Key]:
    settings = measurement.settings

    def key(row: ProbeRow) -> _Key:
        return (
            *(row.mode, row.threads, row.snapshots, row.phase),
            None if row.block_size == settings.block_size else row.block_size,
            None if row.chunk_size == settings.chunk_size else row.chunk_size or 0,
            None if _place(row) == _place(settings) else _place(row),
        )

    return key


def _place(measured: ProbeRow | ProbeSettings) -> CowPlace:
    return measured.cow_pvs, measured.cow_stripes


# --- in words --------------------------------------------------------------------------------------------------------

_NAMES = {
    **{"name": "volume", "pvs": "PVs", "filesystem": "file system", "lvm": "LVM", "seconds": "window"},
    **{"cow_pvs": "COW area on", "cow_size": "COW area", "cow_stripes": "stripes of the COW area"},
}
_COLUMNS: tuple[tuple[str, Callable[[ProbeRow], str]], ...] = (
    ("MODE", lambda row: row.mode.value),
    ("THREADS", lambda row: str(row.threads)),
    ("BLOCK", lambda row: size(row.block_size)),
    ("CHUNK", lambda row: size(row.chunk_size) if row.phase is not Stage.BASELINE else "-"),
    ("COW ON", lambda row: cow_on(row.cow_pvs, row.cow_stripes) if row.phase is not Stage.BASELINE else "-"),
    ("SNAPS", lambda row: str(row.snapshots) if row.phase is not Stage.BASELINE else "-"),
    ("PHASE", lambda row: row.phase.value),
)
_ALWAYS = ("MODE", "PHASE")


def _pair_table(matched: Sequence[RowPair]) -> str:
    telling = [(head, cell) for head, cell in _COLUMNS if head in _ALWAYS or _varies(matched, cell)]
    head = (*(name for name, _ in telling), "IOPS A", "IOPS B", "B/A", "PENALTY A", "PENALTY B")
    rows = [
        (
            *(_either(pair, cell) for _, cell in telling),
            *(_iops(pair.a), _iops(pair.b), ratio(pair.iops_ratio), _penalty(pair.a), _penalty(pair.b)),
        )
        for pair in matched
    ]
    return columns([head, *rows], right=range(len(telling), len(head)))


def _varies(matched: Sequence[RowPair], cell: Callable[[ProbeRow], str]) -> bool:
    return len({cell(row) for pair in matched for row in (pair.a, pair.b) if row} - {"-"}) > 1


def _either(pair: RowPair, cell: Callable[[ProbeRow], str]) -> str:
    """Both where they differ."""
    return " / ".join(dict.fromkeys(cell(row) for row in (pair.a, pair.b) if row))


def _iops(row: ProbeRow | None) -> str:
    return figure(row.iops, 1) if row else "-"


def _penalty(row: ProbeRow | None) -> str:
    return ratio(row.penalty) if row else "-"


def _of(probe: ProbeRecord) -> str:
    return probe.measurement.volume.name if probe.measurement else "nothing measured"


def _said(name: str, value: Any) -> str:
    """A field's value as a person reads it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(short_pv, value)) or ("any PV" if name == "cow_pvs" else "-")
        case int() if name == "size" or name.endswith("_size"):
            return size(value)
        case float() if name == "seconds":
            return duration(value)
        case float() if name == "write_share":
            return share(value)
        case _:
            return str(value)
