"""What LVM's reports say, in the words of `vocabulary`.

Knows: which fields to ask for, and their quirks in LVM 2.03.16 (Debian 12; it has no `json_std`). A builder and a
parser, both pure, for each of four reports: one of LVs segment by segment, one of PVs and the room on them, both of
these as one, and one of PVs and their labels.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backupd.lvm import Mark, mark_of_tags
from backupd.vocabulary.errors import UnexpectedOutput
from backupd.vocabulary.volumes import PV_UUID, DeviceNumber, Segment, ThinPool, Volume, VolumeGroup

_T = TypeVar("_T")

# `--binary` prints 0, 1 or -1 ("unknown": not active) where words that differ between versions would stand.
_JSON = ("{", "}", "[", "]", '"', ",")  # with which each line of a report begins
# What an lvm.conf may say otherwise (tried with 2.03.16): empty fields would be missing, tags of ours be one word,
# hidden LVs look like others, lines begin with something else, or fields have other names.
# Where lvm.conf has it log its commands, it dies of `--select`. A line of the `lvm` shell must not say so: it "is not
# allowed here", and LVM ignores all other settings of that line then.
WITHOUT_COMMAND_LOG = "log/report_command_log=0"
_USUAL = (
    'report/compact_output=0 report/compact_output_cols="" report/list_item_separator="," report/mark_hidden_devices=1'
    ' report/prefixes=0 report/quoted=1 log/command_names=0 log/prefix=""'
    f" {WITHOUT_COMMAND_LOG}"
)
NOTHING = '{"report": []}'
FORMAT = ("--reportformat", "json", "--units", "b", "--nosuffix", "--binary", "--config", _USUAL)
VOLUME_FIELDS = (
    "vg_name,vg_uuid,lv_name,lv_uuid,lv_attr,lv_size,lv_tags,lv_kernel_major,lv_kernel_minor,lv_suspended,lv_merging,"
    "lv_health_status,sync_percent,origin,segtype,seg_size,stripes,stripe_size,devices,"
    "pool_lv,chunk_size,lv_metadata_size,data_percent,metadata_percent,lv_when_full"
)
_GROUP_FIELDS = (
    "pv_name,pv_uuid,vg_name,vg_extent_size,vg_lock_type,pv_pe_count,pv_pe_alloc_count,pv_allocatable,pv_missing"
)
_MIRRORED = ("raid1", "mirror")  # their `stripes` counts legs
_CACHES = ("cache", "writecache")  # one segment, whose device is the hidden volume that is cached
_POOLS = ("thin-pool", "cache-pool")  # the same with the hidden volume that holds the pool's data


@dataclass(frozen=True, slots=True)
class TaggedVolume:
    """An LV that may be ours: where it is, which tags it bears, and what it is a classic snapshot of."""

    vg: str
    name: str
    tags: frozenset[str]
    origin: str = ""  # empty for what is no such snapshot, and for a thin one, which outlives its origin

    @property
    def mark(self) -> Mark | None:
        """Which machine's it is, and which run's; None for what backupd has not made."""
        return mark_of_tags(self.tags)


@dataclass(frozen=True, slots=True)
class LabelledDisk:
    """A disk that LVM has labelled."""

    path: str  # as LVM calls it
    uuid: str  # with dashes
    vg: str  # empty: it is in none
    vg_tags: frozenset[str]


def volumes_argv(*, vg: str | None = None) -> list[str]:
    """Ask for every LV of a group (of the host when none is given), hidden ones too.

    A group is named and not selected (`-S`): to select one, LVM locks every group of the host in turn, and waits for
    whoever has another one.
    """
    return ["lvs", "-a", "--segments", *FORMAT, "-o", VOLUME_FIELDS, *([vg] if vg is not None else [])]


def group_argv(vg: str) -> list[str]:
    """Ask for the PVs of a group and the extents on each; of `pvs` no group can be named."""
    return ["vgs", *FORMAT, "-o", _GROUP_FIELDS, vg]


def both_argv(vg: str) -> list[str]:
    """Ask for every LV of a group and for its PVs, as the two reports above do, in one look: LVM scans all disks once.

    Each kind of report has to be named: without that all its fields would come.
    """
    fields = {"vg": "vg_uuid", "pv": _GROUP_FIELDS, "pvseg": "pv_uuid", "seg": VOLUME_FIELDS, "lv": "lv_uuid"}
    chosen = (word for kind, own in fields.items() for word in ("--configreport", kind, "-o", own))
    return ["lvm", "fullreport", "-a", *FORMAT, *chosen, vg]


def at_once(argv: list[str]) -> list[str]:
    """The same report, or an error where another command holds a group of it: LVM waits for that without end."""
    return [f"{word} global/wait_for_locks=0" if word == _USUAL else word for word in argv]  # one --config is allowed


def is_unknown(vg: str, said: str) -> bool:
    """Whether LVM refused a report because it knows no such group."""
    return f'Volume group "{vg}" not found' in said


def labels_argv() -> list[str]:
    """Ask for every PV of the host, those of no group too."""
    return ["pvs", *FORMAT, "-o", "pv_name,pv_uuid,vg_name,vg_tags"]


def parse_volumes(report: str) -> tuple[Volume, ...]:
    """Every LV of the report that is active and not hidden.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(report, lambda: tuple(volumes_of(_rows(report, "seg"))))


def parse_tagged(report: str) -> tuple[TaggedVolume, ...]:
    """Every LV of the report, active or not, each once, with its tags.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(
        report,
        lambda: tuple(
            dict.fromkeys(
                TaggedVolume(row["vg_name"], bare(row), _tags(row), row["origin"] if _is_classic(row) else "")
                for row in _rows(report, "seg")
            )
        ),
    )


def parse_group(report: str) -> VolumeGroup | None:
    """The group of the report; None when there is none.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(report, lambda: group_of(rows) if (rows := list(_rows(report, "vg"))) else None)


def parse_both(report: str) -> tuple[tuple[Volume, ...], VolumeGroup | None]:
    """Every LV of the group that is active and not hidden, and the group; None when there is none.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(report, lambda: _both([part for part in sections_of(report) if part.get("vg")]))


def _both(sections: list[dict[str, list[dict[str, str]]]]) -> tuple[tuple[Volume, ...], VolumeGroup | None]:
    if not sections:
        return (), None
    (section,) = sections
    return tuple(volumes_of(section["seg"])), group_of(section["pv"])


def parse_labels(report: str) -> tuple[LabelledDisk, ...]:
    """Every PV of the report.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(
        report,
        lambda: tuple(
            LabelledDisk(row["pv_name"], row["pv_uuid"], row["vg_name"], _tag_set(row["vg_tags"]))
            for row in _rows(report, "pv")
        ),
    )


def dashed(uuid: str) -> str:
    """LVM's way to write the 32 characters of a uuid: 6-4-4-4-4-4-6."""
    ends = (6, 10, 14, 18, 22, 26, 32)
    return "-".join(uuid[start:end] for start, end in zip((0, *ends), ends, strict=False))


def understood(report: str, parse: Callable[[], _T]) -> _T:
    """What `parse` makes of a report.

    Raises:
        UnexpectedOutput: it fails; with the text.
    """
    try:
        return parse()
    except (ValueError, LookupError, TypeError) as error:
        raise UnexpectedOutput(
            f"LVM's report could not be parsed ({error!r}): {report.strip() or '(empty)'}"
        ) from error


def sections_of(report: str) -> list[dict[str, list[dict[str, str]]]]:
    """The sections of a report in JSON, without the messages that LVM has written to stdout between its lines:
    "Retrying metadata scan." where PVs tell different things, as after a power cut in the middle of a change.

    Raises:
        ValueError, LookupError: it is no report.
    """
    lines = (line for line in report.splitlines() if line.lstrip().startswith(_JSON))
    sections: list[dict[str, list[dict[str, str]]]] = json.loads("\n".join(lines))["report"]
    return sections


def _rows(report: str, kind: str) -> Iterator[dict[str, str]]:
    for part in sections_of(report):
        yield from part[kind]


def group_of(rows: list[dict[str, str]]) -> VolumeGroup:
    """The group whose PVs these are.

    Only extents that can be allocated count: none on a PV that is missing or closed by `pvchange -xn`. All missing ones
    have the same name, `[unknown]`.
    """
    usable = [row for row in rows if row["pv_allocatable"] == "1" and row["pv_missing"] == "0"]
    free = {row["pv_name"]: int(row["pv_pe_count"]) - int(row["pv_pe_alloc_count"]) for row in usable}
    closed = tuple(row["pv_name"] for row in rows if row["pv_name"] not in free)
    return VolumeGroup(
        name=rows[0]["vg_name"],
        extent_size=int(rows[0]["vg_extent_size"]),
        free_extents=sum(free.values()),
        free_by_pv=free,
        closed=closed,
        all_extents=sum(int(row["pv_pe_count"]) for row in usable),
        lock_type=rows[0].get("vg_lock_type", ""),  # which the report on everything does not have
        missing=tuple(_pv_uuid(row) for row in rows if row["pv_missing"] == "1"),
        pv_uuids={row["pv_name"]: _pv_uuid(row) for row in rows if row["pv_missing"] != "1"},
    )


def _pv_uuid(row: dict[str, str]) -> str:
    """It ends up in the configuration, so it has to be one.

    Raises:
        ValueError: it is none.
    """
    if not PV_UUID.fullmatch(row["pv_uuid"]):
        raise ValueError(f"{row['pv_uuid']!r} is not the uuid of a PV")
    return row["pv_uuid"]


def volumes_of(rows: Iterable[dict[str, str]], *, inactive_too: bool = False) -> Iterator[Volume]:
    """The volumes of these rows that are not hidden. The device of one that is not active is LVM's own `-1:-1`."""
    segments: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        segments.setdefault((row["vg_name"], bare(row)), []).append(row)
    for (vg, name), own in segments.items():
        first = own[0]
        if first["lv_name"] == name and (inactive_too or first["lv_kernel_major"] != "-1"):
            children = {other: parts for (its_vg, other), parts in segments.items() if its_vg == vg}
            pool = children[first["pool_lv"]][0] if first["segtype"] == "thin" else None
            yield Volume(
                vg=vg,
                name=name,
                uuid=first["lv_uuid"],
                path=Path("/dev") / vg / name,
                device=DeviceNumber(int(first["lv_kernel_major"]), int(first["lv_kernel_minor"])),
                size=int(first["lv_size"]),
                segments=tuple(_segments(own, children)),
                tags=_tags(first),
                snapshots=tuple(other for other, parts in children.items() if _is_snapshot_of(name, parts[0])),
                conditions=(*_conditions(own, children), *(_pool_conditions(pool, children) if pool else ())),
                pool=_pool(pool, children) if pool else None,
                thin_snapshots=tuple(other for other, parts in children.items() if _is_thin_of(name, parts[0])),
                cache=_cache(first, children) if first["segtype"] in _CACHES else None,
                group_uuid=first["vg_uuid"],
            )


def _pool(row: dict[str, str], children: dict[str, list[dict[str, str]]]) -> ThinPool:
    """A pool whose fill LVM can't tell (it failed, or is not active) counts as full."""
    size, metadata_size = int(row["seg_size"]), int(row["lv_metadata_size"])
    return ThinPool(
        name=bare(row),
        uuid=row["lv_uuid"],
        chunk_size=int(row["chunk_size"]),
        size=size,
        metadata_size=metadata_size,
        segments=tuple(_segments(_beneath(row, children), children)),
        metadata_devices=tuple(
            dict.fromkeys(device for part in children[f"{bare(row)}_tmeta"] for device in _physical(part, children))
        ),
        used=round(size * float(row["data_percent"] or 100) / 100),
        metadata_used=round(metadata_size * float(row["metadata_percent"] or 100) / 100),
        when_full=row["lv_when_full"],
    )


def _beneath(row: dict[str, str], children: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    """The rows of the hidden volume that a pool's data is, or a cached volume's: the only device of its one segment."""
    return children[row["devices"].rpartition("(")[0]]


def _pool_conditions(pool: dict[str, str], children: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    """What is wrong with a pool is wrong with each of its volumes."""
    words = (*_conditions([pool], children), *_conditions(_beneath(pool, children), children))
    yield from (f"pool {bare(pool)}: {word}" for word in words)


def _segments(rows: list[dict[str, str]], children: dict[str, list[dict[str, str]]]) -> Iterator[Segment]:
    """How a volume is on disks; a cached one as what is cached does, a pool as its data does."""
    for row in rows:
        if row["segtype"] in (*_CACHES, *_POOLS):
            yield from _segments(_beneath(row, children), children)
        else:
            yield _segment(row, children)


def _cache(row: dict[str, str], children: dict[str, list[dict[str, str]]]) -> Segment:
    """The cache of a volume, a pool of its own or a plain volume (`--cachevol`)."""
    parts = children[row["pool_lv"].strip("[]")]
    devices = (device for part in parts for device in _physical(part, children))
    return Segment(row["segtype"], sum(int(part["seg_size"]) for part in parts), 1, 0, tuple(dict.fromkeys(devices)))


def _segment(row: dict[str, str], children: dict[str, list[dict[str, str]]]) -> Segment:
    width = stripes_of(row)
    return Segment(
        kind=row["segtype"],
        size=int(row["seg_size"]),
        stripes=width,
        stripe_size=int(row["stripe_size"]) if width > 1 else 0,
        devices=tuple(dict.fromkeys(_physical(row, children))),
    )


def stripes_of(row: dict[str, str]) -> int:
    """How many stripes a segment's data is spread over; legs of a mirror are none, and a thin volume's row says 0."""
    return 1 if row["segtype"] in _MIRRORED else max(1, int(row["stripes"]))


def _physical(row: dict[str, str], children: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    """The PVs behind a segment. A raid's or a moving segment's devices are hidden LVs: theirs, then."""
    for device in filter(None, row["devices"].split(",")):
        name = device.rpartition("(")[0]  # `/dev/sdb(50)`: behind it the first extent
        if name in children:
            for part in children[name]:
                yield from _physical(part, children)
        else:
            yield name


def _conditions(own: list[dict[str, str]], children: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    """A cached volume's `sync_percent` is how much of its cache is dirty; what is cached has its own conditions."""
    first = own[0]
    cached = first["segtype"] in _CACHES
    if cached:
        yield from _conditions(_beneath(first, children), children)
    if first["lv_merging"] == "1":
        yield "merging"
    if any(device.startswith("pvmove") for row in own for device in row["devices"].split(",")):
        yield "pvmove"
    if first["sync_percent"] and not cached and float(first["sync_percent"]) < 100:
        yield f"resync ({first['sync_percent']} %)"
    if first["lv_suspended"] == "1":
        yield "suspended"
    if first["lv_health_status"]:  # partial, refresh needed, mismatches exist, …
        yield first["lv_health_status"]


def _is_snapshot_of(origin: str, row: dict[str, str]) -> bool:
    """Classic ones only: a thin snapshot has an origin too, but costs it no copying of ours."""
    return row["origin"] == origin and _is_classic(row)


def _is_classic(row: dict[str, str]) -> bool:
    return row["lv_attr"][0] in "sS"


def _is_thin_of(origin: str, row: dict[str, str]) -> bool:
    return row["origin"] == origin and row["segtype"] == "thin"


def bare(row: dict[str, str]) -> str:
    """LVM writes the names of hidden LVs in square brackets."""
    return row["lv_name"].strip("[]")


def _tags(row: dict[str, str]) -> frozenset[str]:
    return _tag_set(row["lv_tags"])


def _tag_set(words: str) -> frozenset[str]:
    return frozenset(filter(None, words.split(",")))
