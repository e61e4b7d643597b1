"""A backup restored into a logical volume that somebody has made for it and that holds nothing yet.

Knows: how large it must be, and that it is blank before, and whole or blank again afterwards. Refuses to make,
to resize and to overwrite a volume, and to know how a backup is restored: it is handed what fills a folder.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.host.holdings import held
from backupd.lvm import BlankVolumes
from backupd.operations.restore.into_folder import unpacked_bytes
from backupd.operations.restore.wanted_objects import parts_of
from backupd.operations.run_holdings import RunHoldings
from backupd.operations.tools import HostTools
from backupd.vocabulary.errors import Refused, SnapshotError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.units import compared_sizes
from backupd.vocabulary.volumes import Volume

MIB = 1 << 20

_FILESYSTEM = "ext4"  # for a backup whose manifest does not say: it has no least size to speak of
_LOG_AND_TABLES = 128 * MIB  # XFS's log has 64 MiB at least, ext4's journal as much on a volume of some GiB
_BLOCK = 4096
_LEAST = {"xfs": 320 * MIB}  # mkfs.xfs refuses less than 300


@dataclass(frozen=True, slots=True)
class FilledVolume:
    """A volume with a whole backup on it, not mounted."""

    volume: Volume
    filesystem: str
    attentions: tuple[str, ...]  # what a person should look at although the restore is good

    @property
    def mount_line(self) -> str:
        """What makes its files seen."""
        return f"mount -t {self.filesystem} {self.volume.path} MOUNT-POINT"


def restore_into_volume(
    manifest: Manifest,
    name: str,
    tools: HostTools,
    blanks: BlankVolumes,
    catalogue: Catalogue,
    *,
    fill: Callable[[Path], object],
) -> FilledVolume:
    """The blank volume `name` (VG/LV) has a file system like the origin's, and in it what `fill` put there, durably.

    Whether this returns or raises, it is not mounted any more; when it raises, it is as blank as before. A file system
    is recognised by a uuid that is new: `recover`, after a crash, wipes no other.

    Raises:
        UsageError: there is no such volume; the hint is the command that makes one.
        Refused: it is in use, holds something, or is too small. Nothing was written.
        SnapshotError: no file system could be made on it or mounted.
        Busy: another restore of this run into a volume is under way, or one of any run into this volume.
    """
    filesystem = manifest.filesystem or _FILESYSTEM
    volume = _volume(tools, name, needed=needed_bytes(manifest))
    journal = RunHoldings(catalogue, manifest.run_id)
    claims = tools.claims
    with (
        claims.beside(manifest.run_id, "restore-into-volume"),
        claims.volume(volume.vg, volume.name, manifest.run_id),  # it looks blank until a file system is on it
    ):
        blanks.require_blank(volume)
        _require_large_enough(volume, manifest)
        own = str(uuid.uuid4())
        made = Holding(HoldingKind.FILESYSTEM, volume.full_name, {"uuid": own})
        at = tools.places.mount_point(manifest.run_id)
        mounted = Holding(HoldingKind.MOUNT, str(at), {"run": manifest.run_id})
        with held(journal, made, tools.releases) as claim:
            with held(journal, mounted, tools.releases):
                blanks.make(volume, filesystem, uuid=own, files=_files_in(manifest), ledger=journal)
                blanks.mount(volume, filesystem, at, ledger=journal)
                fill(at)
            claim.keep()
    return FilledVolume(volume, filesystem, tuple(journal.attentions))


def needed_bytes(manifest: Manifest) -> int:
    """How large the volume must be: the files, what a file system keeps of them, and its log.

    It keeps a tenth of large ones. Small ones take more than they have: a block each, and an inode.
    """
    files = unpacked_bytes(manifest)
    kept = max(files // 10, _files_in(manifest) * _BLOCK)
    return max(files + kept + _LOG_AND_TABLES, _LEAST.get(manifest.filesystem or _FILESYSTEM, 0))


def _files_in(manifest: Manifest) -> int:
    return sum(part.stored.files for part in parts_of(manifest))


def _volume(tools: HostTools, name: str, *, needed: int) -> Volume:
    vg, slash, lv = name.partition("/")
    if not (vg and slash and lv) or "/" in lv:
        raise UsageError(f"{name!r} is not a logical volume", hint="for example --into-volume vg0/restored")
    try:
        return tools.snapshots.volume(vg, lv)
    except SnapshotError as error:
        raise UsageError(error.message, hint=f"make one: {_lvcreate(vg, lv, needed)}") from error


def _require_large_enough(volume: Volume, manifest: Manifest) -> None:
    needed = needed_bytes(manifest)
    if volume.size < needed:
        wanted, there = compared_sizes(needed, volume.size)
        raise Refused(
            f"{volume.full_name} is too small: the backup needs {wanted}, it has {there}",
            hint=f"lvextend --size {_mib(needed)}m {volume.full_name}, or make another:"
            f" {_lvcreate(volume.vg, 'NAME', needed)}",
        )


def _lvcreate(vg: str, lv: str, needed: int) -> str:
    return f"lvcreate --name {lv} --size {_mib(needed)}m {vg}"


def _mib(size: int) -> int:
    return -(-size // MIB)
