"""How each kind of holding is released; every function is idempotent, and recovery uses the same ones.

Knows: what each kind needs. It does not read the configuration: whoever is asked for a target or a server does.
"""

from collections.abc import Callable
from pathlib import Path

from backupd.host.filesystem import remove_tree
from backupd.host.holdings import Releases
from backupd.host.process import end_stray, ended_by_itself
from backupd.lvm import BlankVolumes, Mounts, ScratchDisks, Snapshots, disks_of
from backupd.mysql import Applier, Flusher
from backupd.mysql.loading_schema import remove_left_loading
from backupd.mysql.session import Connect
from backupd.operations.copies import spool_folder
from backupd.operations.server_holdings import put_back, start_again
from backupd.targets import Target
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind

_FINISH_SECONDS = 60.0  # a mount may replay a log from a disk that is at work


def releases(
    snapshots: Snapshots,
    scratch_disks: ScratchDisks,
    mounts: Mounts,
    *,
    blank_volumes: Callable[[], BlankVolumes],
    target_of: Callable[[Holding], Target],
    applier_of: Callable[[str], Applier],
    flusher_of: Callable[[str], Flusher],
    loaded_into: Callable[[str], Connect],
) -> Releases:
    """For every kind. `target_of` and the others raise a UsageError for what is no longer configured."""

    def remove_volume(holding: Holding) -> None:
        vg, _, name = holding.name.partition("/")
        snapshots.remove(vg, name, holding.detail["run"])

    def remove_probe_files(holding: Holding) -> None:
        from backupd.load.fileprobe import remove_folder

        remove_folder(Path(holding.name))

    return {
        HoldingKind.SNAPSHOT: remove_volume,
        HoldingKind.SCRATCH_VOLUME: remove_volume,
        HoldingKind.MOUNT: lambda holding: mounts.unmount(Path(holding.name)),
        HoldingKind.PROBE_FILES: remove_probe_files,
        HoldingKind.PARTIAL: lambda holding: target_of(holding).remove(holding.detail["job"], holding.detail["backup"]),
        HoldingKind.UPLOAD: lambda holding: target_of(holding).abandon(holding),
        HoldingKind.STAGING: lambda holding: remove_tree(Path(holding.name)),
        HoldingKind.SPOOL: spool_folder.remove,
        HoldingKind.CHILD: _end_child,
        HoldingKind.APPLIER: lambda holding: start_again(holding, applier_of),
        HoldingKind.FLUSH_SETTINGS: lambda holding: put_back(holding, flusher_of),
        HoldingKind.LOADING_SCHEMA: lambda holding: remove_left_loading(loaded_into(holding.detail["host"]), holding),
        HoldingKind.FILESYSTEM: lambda holding: blank_volumes().wipe(
            Path("/dev", holding.name), holding.detail["uuid"]
        ),
        HoldingKind.SCRATCH_GROUP: lambda holding: scratch_disks.remove_group(
            holding.name, disks_of(holding), holding.detail["run"]
        ),
        HoldingKind.SCRATCH_ARRAY: lambda holding: scratch_disks.remove_array(
            holding.name, disks_of(holding), holding.detail["run"]
        ),
    }


def _end_child(holding: Holding) -> None:
    """What must finish is waited for: LVM killed in mid-suspend would leave the server frozen.

    And what a mount or an `lvcreate` makes can be released only once it is there. A row that does not say is of an
    older version.
    """
    pid, born = int(holding.name), int(holding.detail["start_time"])
    if holding.detail.get("must_finish") == "no":
        end_stray(pid, born)
    elif not ended_by_itself(pid, born, within_seconds=_FINISH_SECONDS):
        raise SnapshotError(
            f"process {pid} ({holding.detail['program']}) did not end within {_FINISH_SECONDS:g} s",
            hint="it is not killed, because LVM may be in the middle of a suspend; see `dmsetup info` and dmesg for"
            " what it waits for, then `backupd recover`",
        )
