"""LVM's one report of everything on the host: groups, PVs, what is on each extent, every LV's segments.

Knows: `lvm fullreport` (since LVM 2.02.158) and its quirks in 2.03.16, and how hidden LVs are told as what they
serve. One call is one look: LVM locks each group while it reports it. It is apart from `report`, whose few fields a
run asks for again and again; it costs no more time (0.15 s both, in the lab).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from backupd.host import process
from backupd.lvm.queues import with_queues
from backupd.lvm.refusals import reporting
from backupd.lvm.report import FORMAT, VOLUME_FIELDS, bare, group_of, sections_of, stripes_of, understood, volumes_of
from backupd.vocabulary.extents import (
    HiddenVolume,
    Landscape,
    Occupied,
    PhysicalVolume,
    PlacedGroup,
    PlacedSegment,
    PlacedVolume,
    Stretch,
    VolumeKind,
)
from backupd.vocabulary.volumes import Volume

_Row = dict[str, str]

_SECONDS = 60.0
_FIELDS = {
    "vg": "vg_name,vg_extent_size,vg_exported",
    "pv": "pv_name,pv_uuid,pv_size,vg_name,pv_pe_count,pv_pe_alloc_count,pv_allocatable,pv_missing",
    "pvseg": "pv_uuid,pvseg_start,pvseg_size,lv_name",
    # `seg_le_ranges` names hidden LVs in brackets and parts ranges by commas; `seg_pe_ranges` by blanks, without
    # brackets. A segment of a missing PV is on `[unknown]`, as if that were a hidden LV.
    "seg": f"{VOLUME_FIELDS},seg_start_pe,seg_size_pe,seg_le_ranges,seg_metadata_le_ranges,lv_role",
    "lv": "lv_name",  # cannot be left out: without a choice all its fields would come
}


def report_argv() -> list[str]:
    """Ask for everything; `-a`: hidden LVs too."""
    chosen = (word for kind, fields in _FIELDS.items() for word in ("--configreport", kind, "-o", fields))
    return ["lvm", "fullreport", "-a", *FORMAT, *chosen]


def landscape() -> Landscape:
    """Everything that LVM knows on this host, now; nothing is changed.

    Raises:
        SnapshotError: LVM is not there, or gives no report.
        UnexpectedOutput: it cannot be parsed; with the text.
    """
    with reporting():
        said = process.run(report_argv(), timeout_seconds=_SECONDS).stdout
    found = parse_landscape(said)
    return replace(found, groups=tuple(replace(group, room=with_queues(group.room)) for group in found.groups))


def parse_landscape(report: str) -> Landscape:
    """The report in words.

    Raises:
        UnexpectedOutput: with the text.
    """
    return understood(report, lambda: _landscape(sections_of(report)))


def _landscape(sections: Sequence[dict[str, list[_Row]]]) -> Landscape:
    """Of one section for each group, and one for the PVs of none, which has neither `vg` nor `seg`."""
    groups = [_group(section) for section in sections if section.get("vg")]
    unused = [
        _physical_volume(row, [], {}) for section in sections if not section.get("vg") for row in section.get("pv", ())
    ]
    return Landscape(tuple(sorted(groups, key=lambda group: group.room.name)), tuple(unused))


def _group(section: dict[str, list[_Row]]) -> PlacedGroup:
    vg = section["vg"][0]
    rows = sorted(section["seg"], key=lambda row: (bare(row), int(row["seg_start_pe"])))
    lvs = _Lvs(rows)
    owners = lvs.owners()
    room = group_of([{**row, **vg} for row in section["pv"]])
    return PlacedGroup(
        room=room,
        exported=vg["vg_exported"] == "1",
        pvs=tuple(_physical_volume(row, section["pvseg"], owners) for row in section["pv"]),
        volumes=tuple(_volume(volume, lvs, owners) for volume in volumes_of(rows, inactive_too=True)),
        spares=tuple(lvs.part(name) for name in lvs.hidden if name not in owners),
    )


class _Lvs:
    """The LVs of a group by their bare names, each with its rows, which come in the order of their extents."""

    def __init__(self, rows: Iterable[_Row]) -> None:
        self.rows: dict[str, list[_Row]] = {}
        for row in rows:
            self.rows.setdefault(bare(row), []).append(row)

    @property
    def hidden(self) -> list[str]:
        """Those whose names LVM writes in brackets."""
        return [name for name, rows in self.rows.items() if rows[0]["lv_name"] != name]

    def owners(self) -> dict[str, str]:
        """Which volume each hidden LV serves; one that serves two (a move of several) is the first one's."""
        found: dict[str, str] = {}
        for name in self.rows:
            if name not in self.hidden:
                for below in self._below(name):
                    found.setdefault(below, name)
        return found

    def _below(self, name: str) -> Iterator[str]:
        """Hidden LVs that this one is on, and those beneath them."""
        hidden = self.hidden
        for row in self.rows[name]:
            ranges = (*_ranges(row["seg_le_ranges"]), *_ranges(row["seg_metadata_le_ranges"]))
            named = [stretch.pv.strip("[]") for stretch in ranges]
            beside = [row["pool_lv"].strip("[]")] if row["pool_lv"].startswith("[") else []
            for other in dict.fromkeys((*named, *beside, *_metadata_of(name, row))):
                if other in hidden:
                    yield other
                    yield from self._below(other)

    def part(self, name: str) -> HiddenVolume:
        """A hidden LV as a part."""
        first = self.rows[name][0]
        return HiddenVolume(name, _role(first), int(first["lv_size"]), tuple(map(self.placed, self.rows[name])))

    def placed(self, row: _Row) -> PlacedSegment:
        """One segment, its devices followed down to PVs."""
        width = stripes_of(row)
        return PlacedSegment(
            first=int(row["seg_start_pe"]),
            count=int(row["seg_size_pe"]),
            kind=row["segtype"],
            stripes=width,
            stripe_size=int(row["stripe_size"]) if width > 1 else 0,
            places=tuple(tuple(self._on_disks(stretch)) for stretch in _ranges(row["seg_le_ranges"])),
        )

    def segments(self, name: str) -> Iterator[PlacedSegment]:
        """Those of the volume; where it is on one hidden LV alone (cached, a pool), those of that one."""
        for row in self.rows[name]:
            below = [stretch.pv.strip("[]") for stretch in _ranges(row["seg_le_ranges"])]
            if len(below) == 1 and below[0] in self.rows and not below[0].startswith("pvmove"):
                yield from self.segments(below[0])
            else:
                yield self.placed(row)

    def _on_disks(self, stretch: Stretch) -> Iterator[Stretch]:
        """These extents of a PV, or those that these extents of a hidden LV lie on."""
        name = stretch.pv.strip("[]")
        if name not in self.rows:
            yield stretch
            return
        for row in self.rows[name]:
            segment = self.placed(row)
            first, last = max(stretch.first, segment.first), min(stretch.last, segment.last)
            if first <= last:
                yield from (_cut(piece, segment, first, last) for place in segment.places for piece in place)


def _cut(place: Stretch, segment: PlacedSegment, first: int, last: int) -> Stretch:
    """What these extents of a segment take of one of its places; only a move takes less than all of a hidden LV."""
    if (first, last) == (segment.first, segment.last):
        return place
    width = max(1, segment.count // place.count)
    begin, end = (first - segment.first) // width, (last - segment.first) // width
    return Stretch(place.pv, place.first + begin, end - begin + 1)


def _role(row: _Row) -> str:
    """LVM's words without `private`, which all have, and the last of `cache,origin,cacheorigin`; a cache has none."""
    words = [word for word in row["lv_role"].split(",") if word != "private"]
    if len(words) > 2 and words[-1] == "".join(words[:-1]):
        del words[-1]
    return " ".join(words) or ("cache" if row["lv_attr"][0] == "C" else "")


def _metadata_of(name: str, row: _Row) -> list[str]:
    """A pool's metadata, which no field of its segment names (2.03.16)."""
    return [f"{name}_{suffix}" for suffix in ("tmeta", "cmeta")] if row["segtype"].endswith("-pool") else []


def _ranges(text: str) -> list[Stretch]:
    """`/dev/sdb:0-341,[r1_rimage_0]:0-7`, in LVM's order; a PV's name may hold colons."""
    found = []
    for part in filter(None, text.split(",")):
        name, _, numbers = part.rpartition(":")
        first, _, last = numbers.partition("-")
        found.append(Stretch(name, int(first), int(last) - int(first) + 1))
    return found


def _volume(volume: Volume, lvs: _Lvs, owners: dict[str, str]) -> PlacedVolume:
    first = lvs.rows[volume.name][0]
    kind = _kind(first)
    is_snapshot = kind in (VolumeKind.SNAPSHOT, VolumeKind.THIN_SNAPSHOT)
    return PlacedVolume(
        volume=volume,
        kind=kind,
        active=first["lv_kernel_major"] != "-1",
        open=first["lv_attr"][5] == "o",
        segments=tuple(lvs.segments(volume.name)),
        parts=tuple(lvs.part(name) for name, owner in owners.items() if owner == volume.name),
        origin=first["origin"] if is_snapshot else "",
    )


def _kind(row: _Row) -> VolumeKind:
    if row["segtype"].endswith("-pool"):
        return VolumeKind.POOL
    if row["segtype"] == "thin":
        return VolumeKind.THIN_SNAPSHOT if row["origin"] else VolumeKind.THIN_VOLUME
    return VolumeKind.SNAPSHOT if row["lv_attr"][0] in "sS" else VolumeKind.VOLUME


def _physical_volume(row: _Row, pieces: Iterable[_Row], owners: dict[str, str]) -> PhysicalVolume:
    own = sorted((piece for piece in pieces if piece["pv_uuid"] == row["pv_uuid"]), key=lambda p: int(p["pvseg_start"]))
    return PhysicalVolume(
        name=row["pv_name"],
        size=int(row["pv_size"]),
        extents=int(row["pv_pe_count"]),
        free=int(row["pv_pe_count"]) - int(row["pv_pe_alloc_count"]),
        allocatable=row["pv_allocatable"] == "1",
        missing=row["pv_missing"] == "1",
        occupied=tuple(_occupied(piece, owners) for piece in own),
    )


def _occupied(piece: _Row, owners: dict[str, str]) -> Occupied:
    name = bare(piece)
    hidden = name != piece["lv_name"]
    volume = owners.get(name, "") if hidden else name
    return Occupied(int(piece["pvseg_start"]), int(piece["pvseg_size"]), volume, name if hidden else "")
