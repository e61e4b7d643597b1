"""What `backupd volumes --json` prints: everything that the tables and the pictures say, as plain values.

Sizes and `free` are bytes; `first`, `count` and `extents` are numbers of extents, counted from 0. `null` is what does
not apply or is not known. Changes here are additive only.
"""

from dataclasses import asdict

from backupd.report.json_document import Document
from backupd.vocabulary.extents import (
    HiddenVolume,
    HostElsewhere,
    PhysicalVolume,
    PlacedSegment,
    Survey,
    SurveyedGroup,
    SurveyedVolume,
)


def survey_document(survey: Survey) -> Document:
    """`groups` by name, `unused_pvs` (of no group), and `elsewhere`: hosts whose data is on none of these volumes."""
    return {
        "groups": [_group(group) for group in survey.groups],
        "unused_pvs": [_pv(pv, None) for pv in survey.unused],
        "elsewhere": [_elsewhere(host) for host in survey.elsewhere],
    }


def _group(group: SurveyedGroup) -> Document:
    """`free` counts what can be allocated: nothing of a PV that is missing, or closed to allocation."""
    placed = group.placed
    return {
        "name": placed.room.name,
        "extent_size": placed.room.extent_size,
        "extents": sum(pv.extents for pv in placed.pvs),
        "free_extents": placed.room.free_extents,
        "free": placed.room.free_extents * placed.room.extent_size,
        "exported": placed.exported,
        "pvs": [_pv(pv, placed.room.extent_size) for pv in placed.pvs],
        "volumes": [_volume(volume) for volume in group.volumes],
        "spares": [_part(part) for part in placed.spares],
    }


def _pv(pv: PhysicalVolume, extent_size: int | None) -> Document:
    """`occupied` covers it from its first extent to its last; without a `volume` it is free, or a spare's `part`."""
    return {
        "name": pv.name,
        "size": pv.size,
        "extents": pv.extents,
        "free_extents": pv.free,
        "free": None if extent_size is None else pv.free * extent_size,
        "allocatable": pv.allocatable,
        "missing": pv.missing,
        "occupied": [
            {"first": one.first, "count": one.count, "volume": one.volume or None, "part": one.part or None}
            for one in pv.occupied
        ],
    }


def _volume(surveyed: SurveyedVolume) -> Document:
    placed, volume = surveyed.placed, surveyed.placed.volume
    cache = volume.cache
    return {
        "name": volume.name,
        "full_name": volume.full_name,
        "uuid": volume.uuid,
        "kind": placed.kind,
        "active": placed.active,
        "open": placed.open,
        "device": str(volume.device) if placed.active else None,
        "size": volume.size,
        "extents": placed.extents,
        "layout": volume.layout,
        "stripes": volume.stripes,
        "stripe_size": volume.stripe_size,
        "pvs": list(volume.devices),
        "segments": [_segment(segment) for segment in placed.segments],
        "parts": [_part(part) for part in placed.parts],
        "pool": None if volume.pool is None else volume.pool.name,
        "cache": None if cache is None else {"kind": cache.kind, "size": cache.size, "pvs": list(cache.devices)},
        "origin": placed.origin or None,
        "tags": sorted(volume.tags),
        "run_id": surveyed.run_id,
        "conditions": list(volume.conditions),
        "uses": [
            {"kind": use.kind, "by": use.by or None, "filesystem": use.filesystem or None} for use in surveyed.uses
        ],
        "hosts": [asdict(host) for host in surveyed.hosts],
        "jobs": [
            {
                "name": job.name,
                "known_from": job.known_from,
                "snapshot_bytes": job.needs,
                "fits": job.fits,
                "refusal": job.refusal or None,
                "hint": job.hint or None,
            }
            for job in surveyed.jobs
        ],
        "snapshots": [asdict(snapshot) for snapshot in surveyed.snapshots],
        "room": None
        if surveyed.room is None
        else {"free": surveyed.room.free, "by_pv": dict(surveyed.room.by_pv), "pool": surveyed.room.pool or None},
    }


def _part(part: HiddenVolume) -> Document:
    """A hidden LV that serves the volume; a spare serves the group."""
    return {
        "name": part.name,
        "role": part.role,
        "size": part.size,
        "segments": [_segment(segment) for segment in part.segments],
    }


def _segment(segment: PlacedSegment) -> Document:
    """`places` has one list for each stripe or leg: the extents of PVs that it is on."""
    return {
        "first": segment.first,
        "count": segment.count,
        "kind": segment.kind,
        "stripes": segment.stripes,
        "stripe_size": segment.stripe_size or None,
        "places": [[asdict(stretch) for stretch in place] for place in segment.places],
    }


def _elsewhere(host: HostElsewhere) -> Document:
    """`known` false: the server does not say where, and `detail` tells why."""
    return {"name": host.name, "jobs": list(host.jobs), "known": host.known, "detail": host.detail}
