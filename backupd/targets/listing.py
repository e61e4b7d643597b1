"""What a target lists of a backup, held against what the backup's manifest says.

Knows: names and sizes, and that a listing may lie.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from backupd.targets import Target
from backupd.targets.names import MANIFEST, is_proof
from backupd.vocabulary.errors import TargetAway, TargetError, VerificationError
from backupd.vocabulary.escaping import some
from backupd.vocabulary.storage import Manifest, StoredObject

_NAMED = 3
_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a listing differs from a manifest."""

    faults: tuple[str, ...]  # in words: recorded objects that are missing, too short or too long
    unknown: tuple[str, ...]  # entries that neither a run nor a drill has written, sorted: no fault of the backup's

    def require_whole(self, target: str) -> None:
        """Every recorded object is on the target in its recorded size.

        Raises:
            VerificationError: one does not; names the first of them.
        """
        if self.faults:
            raise VerificationError(
                f"target {target} does not list what was stored: {some(self.faults, _FAULTS, '; ')}",
                hint="check the target's storage: it has lost what it had confirmed, or something was removed",
            )


def unknown_beside(unknown: Sequence[str], target: str) -> str:
    """What a person is told of the entries that no manifest names."""
    return (
        f"beside this backup's objects on target {target} there is {some(unknown, _NAMED)}, which backupd did not"
        f" write: the backup is complete, and backupd does not touch it"
    )


def compare_listing(manifest: Manifest, listing: Mapping[str, int]) -> Comparison:
    """What a target's `objects` says, held against the manifest; the manifest's own object is in neither."""
    recorded = {stored.name: stored.stored_bytes for stored in manifest.objects}
    return Comparison(
        faults=tuple(
            f"{name} has {listing[name]} bytes, expected {size}" if name in listing else f"{name} is missing"
            for name, size in recorded.items()
            if listing.get(name) != size
        ),
        unknown=tuple(sorted(name for name in listing.keys() - recorded.keys() if not is_proof(name))),
    )


def require_listed(target: Target, manifest: Manifest) -> tuple[str, ...]:
    """Every recorded object is on the target in its size; the entries that no manifest names are told.

    A listing may lie. Before an object is called lost it is asked for by name, and the listing for a second time.

    Raises:
        VerificationError: one is missing, too short or too long.
        TargetError: nobody can tell: the target cannot be read, or says now this and now that.
    """
    first = _looked_at(target, manifest)
    if not first.faults:
        return first.unknown
    second = _looked_at(target, manifest)
    if second.faults and second.faults != first.faults:
        raise TargetError(
            f"target {target.name} gives changing listings: {some(first.faults, _FAULTS, '; ')}, then"
            f" {some(second.faults, _FAULTS, '; ')}",
            hint="check the target's storage, then try again",
        )
    second.require_whole(target.name)
    return second.unknown


def finished_there(target: Target, job: str, backup_ids: Collection[str]) -> list[str]:
    """Those of these backups that have a manifest there, whatever a listing has said: one may lie. Each is asked for by
    name, and where none is returned the listing once more.

    Raises:
        TargetError: nobody can tell.
    """
    returned = [one for one in backup_ids if is_returned(target, job, one, MANIFEST)]
    return returned or sorted(
        one.backup_id for one in target.backups(job) if one.finished and one.backup_id in backup_ids
    )


def is_returned(target: Target, job: str, backup_id: str, name: str) -> bool:
    """Whether the target returns an object of this name, whatever it lists.

    Raises:
        TargetAway: it cannot be asked.
    """
    return _has_byte(target, job, backup_id, name, offset=0)


def _looked_at(target: Target, manifest: Manifest) -> Comparison:
    """One look at the listing, in which it differs from the manifest only where the objects do so themselves.

    Raises:
        TargetError: nobody can tell.
    """
    listing = target.objects(manifest.job, manifest.run_id)
    for stored in manifest.objects:
        if not _is_given_so(target, manifest, stored, listed=listing.get(stored.name, 0)):
            raise TargetError(
                f"target {target.name} lists {stored.name} differently from what it returns: it is unknown whether it"
                f" is complete",
                hint="check the target's storage, then try again",
            )
    return compare_listing(manifest, listing)


def _is_given_so(target: Target, manifest: Manifest, stored: StoredObject, *, listed: int) -> bool:
    """Whether the object's end agrees with the listing, where that does not agree with the manifest."""
    job, run_id, size = manifest.job, manifest.run_id, stored.stored_bytes
    if listed < size:
        return not _has_byte(target, job, run_id, stored.name, offset=max(0, size - 1))
    return listed == size or _has_byte(target, job, run_id, stored.name, offset=size)


def _has_byte(target: Target, job: str, backup_id: str, name: str, *, offset: int) -> bool:
    """Whether it returns this byte.

    Raises:
        TargetAway: it cannot be asked.
    """
    try:
        with target.reading(job, backup_id, name, offset=offset, size=1) as chunks:
            return len(b"".join(map(bytes, chunks))) == 1
    except TargetAway:
        raise
    except TargetError:
        return False
