"""What is on each volume of a host, as tables for a person. Pure; `volume_document` is the same for machines."""

from collections.abc import Iterator, Sequence

from backupd.report import volume_words
from backupd.report.volume_picture import group_picture, volume_picture
from backupd.report.words import columns, in_ascii, many, size
from backupd.vocabulary.extents import PhysicalVolume, Survey, SurveyedGroup, SurveyedVolume


def survey_text(survey: Survey, *, width: int = 80, ascii_only: bool = False) -> str:
    """Everything of a survey: for each group its tables, and the pictures between them."""
    parts = [part for group in survey.groups for part in _group(group, width, ascii_only=ascii_only)]
    if survey.unused:
        parts.append(columns([("PVS OF NO GROUP", "SIZE"), *((pv.name, size(pv.size)) for pv in survey.unused)]))
    if survey.elsewhere:
        parts.append(_elsewhere(survey))
    if not survey.groups:
        parts.insert(0, "no volume groups")
    text = "\n\n".join(parts)
    return in_ascii(text) if ascii_only else text


def _group(group: SurveyedGroup, width: int, *, ascii_only: bool) -> Iterator[str]:
    placed = group.placed
    signs = volume_words.letters(placed)
    yield _heading(group)
    yield _pv_table(placed.pvs, placed.room.extent_size)
    if group.volumes:
        yield _volume_table(group.volumes, signs)
    yield group_picture(placed, width=width, ascii_only=ascii_only)
    for volume in group.volumes:
        name = volume.placed.volume.name
        yield volume_picture(volume.placed, signs[name], width=width, ascii_only=ascii_only)
    if group.volumes:
        yield columns([row for volume in group.volumes for row in _facts(volume)])


def _heading(group: SurveyedGroup) -> str:
    placed = group.placed
    room = placed.room
    whole = sum(pv.extents for pv in placed.pvs) * room.extent_size
    words = [
        f"{size(whole)} on {many(len(placed.pvs), 'PV')}",
        f"{size(room.free_extents * room.extent_size)} free",
        f"extents of {size(room.extent_size)}",
        many(len(placed.volumes), "volume"),
    ]
    return f"{room.name}: {', '.join(words)}{', EXPORTED' if placed.exported else ''}"


def _pv_table(pvs: Sequence[PhysicalVolume], extent_size: int) -> str:
    rows = [
        (
            pv.name,
            size(pv.extents * extent_size),
            str(pv.extents),
            str(pv.free),
            size(pv.free * extent_size),
            _state(pv),
        )
        for pv in pvs
    ]
    return columns([("PV", "SIZE", "EXTENTS", "FREE", "", ""), *rows], right=(1, 2, 3, 4))


def _state(pv: PhysicalVolume) -> str:
    return "MISSING" if pv.missing else "" if pv.allocatable else "not allocatable"


def _volume_table(volumes: Sequence[SurveyedVolume], signs: dict[str, str]) -> str:
    """A line for each segment; below a volume's own those of the hidden LVs that serve it."""
    rows = [row for volume in volumes for row in _volume_rows(volume, signs)]
    return columns([("", "VOLUME", "SIZE", "LAYOUT", "EXTENTS", "SEGMENT", "ON PVS"), *rows], right=(2,))


def _volume_rows(surveyed: SurveyedVolume, signs: dict[str, str]) -> Iterator[tuple[str, ...]]:
    placed, volume = surveyed.placed, surveyed.placed.volume
    head = (signs[volume.name], volume.name, size(volume.size), volume_words.layout_words(placed))
    for segment in placed.segments:
        lies_on = " ".join(volume_words.places(segment)) or "-"
        yield (*head, f"{segment.first}-{segment.last}", volume_words.segment_words(segment), lies_on)
        head = ("", "", "", "")
    for part in placed.parts:
        head = ("", f"  [{part.name}]", size(part.size), part.role)
        for segment in part.segments:
            lies_on = " ".join(volume_words.places(segment)) or "-"
            yield (*head, f"{segment.first}-{segment.last}", volume_words.segment_words(segment), lies_on)
            head = ("", "", "", "")


def _facts(surveyed: SurveyedVolume) -> list[tuple[str, ...]]:
    """What is to be known of a volume beside how it lies, one fact a line."""
    facts = [("state", text) for text in volume_words.state_words(surveyed)]
    facts += [("used", volume_words.use_words(use)) for use in surveyed.uses]
    facts += [
        ("server", f"the data directory of host {host.name}{volume_words.from_words(host.known_from)}")
        for host in surveyed.hosts
    ]
    for job in surveyed.jobs:
        facts.append(("job", volume_words.job_words(job)))
        if job.hint:
            facts.append(("", f"hint: {job.hint}"))
    facts += [("snapshot", volume_words.snapshot_words(snapshot)) for snapshot in surveyed.snapshots]
    if surveyed.room is not None:
        where = f"pool {surveyed.room.pool}" if surveyed.room.pool else "the group, by PV as above"
        facts.append(("room", f"{size(surveyed.room.free)} for snapshots in {where}"))
    name = surveyed.placed.volume.full_name
    return [(name if i == 0 else "", *fact) for i, fact in enumerate(facts)] or [(name,)]


def _elsewhere(survey: Survey) -> str:
    rows = []
    for host in survey.elsewhere:
        known = host.detail if host.known else f"unknown: {host.detail}"
        rows.append((host.name, ", ".join(host.jobs) or "-", known))
    return columns([("HOST", "JOBS", "ITS DATA"), *rows])
