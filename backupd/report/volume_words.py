"""How a volume's layout and its uses are put in words, for the table and the picture alike. Pure."""

from collections.abc import Sequence

from backupd.report.words import many, size
from backupd.vocabulary.extents import (
    JobHere,
    KnownFrom,
    PlacedGroup,
    PlacedSegment,
    PlacedVolume,
    SnapshotHere,
    SurveyedVolume,
    Use,
    UseKind,
    VolumeKind,
)

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BEYOND = "#"  # the letter of each volume after the fifty-second


def letters(group: PlacedGroup) -> dict[str, str]:
    """The letter of each volume of a group, the same in table and picture."""
    names = [placed.volume.name for placed in group.volumes]
    return dict(zip(names, _LETTERS.ljust(len(names), _BEYOND), strict=False))


def short(pv: str) -> str:
    """A PV without its folder: `sdb`, `mapper/mpatha`."""
    return pv.removeprefix("/dev/")


def segment_words(segment: PlacedSegment) -> str:
    """How it is laid out: `3 stripes of 64.0 KiB`, `linear`, `raid1, 2 legs`."""
    if segment.kind == "striped":
        return f"{many(segment.stripes, 'stripe')} of {size(segment.stripe_size)}"
    if segment.stripes > 1:
        return f"{segment.kind}, {many(segment.stripes, 'stripe')} of {size(segment.stripe_size)}"
    return f"{segment.kind}, {many(len(segment.places), 'leg')}" if len(segment.places) > 1 else segment.kind


def layout_words(placed: PlacedVolume) -> str:
    """The volume's one word; where it is mixed also what follows what."""
    volume = placed.volume
    if placed.kind in (VolumeKind.THIN_VOLUME, VolumeKind.THIN_SNAPSHOT) and volume.pool is not None:
        return f"{volume.layout} (thin in {volume.pool.name})"
    if volume.cache is not None:
        return f"{volume.layout} (behind a {volume.cache.kind})"
    return str(volume.layout)


def state_words(surveyed: SurveyedVolume) -> list[str]:
    """What is to be known of it before anything else: what it is, whose, and what is the matter with it."""
    placed = surveyed.placed
    words = []
    if placed.origin:
        words.append(f"{placed.kind} of {placed.origin}{_whose(surveyed.run_id)}")
    elif placed.kind is VolumeKind.POOL:
        words.append("pool")
    elif surveyed.run_id is not None:
        words.append(f"backupd, run {surveyed.run_id}")
    if not placed.active:
        words.append("not active")
    return [*words, *placed.volume.conditions]


def use_words(use: Use) -> str:
    """One use of a volume."""
    match use.kind:
        case UseKind.MOUNT:
            return f"mounted on {use.by} ({use.filesystem})"
        case UseKind.SWAP:
            return "swap"
        case UseKind.HOLDER:
            return f"under {use.by}"
        case UseKind.OPEN:
            return "open by a process or in a container"


def snapshot_words(snapshot: SnapshotHere) -> str:
    """A snapshot, and whose it is."""
    return f"{snapshot.name}{_whose(snapshot.run_id)}"


def job_words(job: JobHere) -> str:
    """A job, and whether its snapshot fits."""
    words = f"{job.name}{from_words(job.known_from)}"
    if not job.fits:
        return f"{words}: its snapshot does not fit: {job.refusal}"
    return f"{words}: its snapshot of {size(job.needs)} fits"


def from_words(known_from: KnownFrom) -> str:
    """How it is known, where that is not by asking."""
    return " (from its last run: the server does not answer)" if known_from is KnownFrom.LAST_RUN else ""


def places(segment: PlacedSegment) -> Sequence[str]:
    """Each stripe's or leg's extents, as LVM's commands take them."""
    return ["+".join(map(str, place)) for place in segment.places]


def _whose(run_id: str | None) -> str:
    return f" (backupd, run {run_id})" if run_id is not None else ""
