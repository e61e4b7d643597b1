"""Faults that found something first, and those that find the planted mistakes: the short campaign of `make test`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A fault in a command, and what it has found."""

    what: str
    command: str
    fault: str
    died: str = ""  # the command before a recovery
    death: str = ""  # and what it died of

    def __str__(self) -> str:
        return self.what


_LOCKED = "sql BACKUP STAGE BLOCK_COMMIT < mysql.locksession._request < mysql.locksession.ask"
_REMOVING = "process lvremove -y --config < lvm.snapshots.remove < operations.upkeep.releases.remove_volume"
_PUBLISHING = "target publish < operations.copies.publishing.publish_copy < operations.copies.publishing.publish"
_MOUNTING = "process mount -t xfs < lvm.mounting.mount < operations.backup.copying.copy_snapshot"

FOUND: Sequence[Found] = (
    Found(
        "a drill whose tar hangs went on for ever",
        "drill",
        "hang:before:1:spawned python < archive.tarchild.__enter__ < archive.unpack.run",
    ),
    Found(
        "a report of LVM that hangs ended without a hint",
        "run",
        "hang:before:1:process lvs -a --segments < lvm.snapshots.reported < lvm.snapshots.ours",
    ),
    Found(
        "an LVM shell that was killed ended without a hint",
        "run",
        "kill:before:1:spawned lvm < lvm.shell.lvm_shell < lvm.snapshots.prepared",
    ),
    Found(
        "LVM that hangs before the lock ended without a hint",
        "run",
        "hang:before:1:lvm-shell lvcreate -y < lvm.snapshots._answer < lvm.snapshots._require_done",
    ),
    Found(
        "a copy that was killed left its lock file",
        "copy",
        "die:before:5:file mkdir < host.own_files.private_folder < host.own_files.run_folder",
    ),
    Found(
        "a removal that broke off was called a backup that stays",
        "prune",
        "refuse:before:1:file fsync < host.filesystem.sync_folder < targets.directory.remove",
    ),
)

PLANTED: Mapping[str, Found] = {
    "lock": Found("a lock without its guards", "run", f"slow:after:1:{_LOCKED}"),
    "clean-up": Found("a failed release taken for done", "run", f"refuse:before:1:{_REMOVING}"),
    "publish": Found("a failed manifest taken for published", "run", f"refuse:before:1:{_PUBLISHING}"),
    "prune": Found(
        "a row before its objects",
        "prune",
        "die:before:1:target remove < operations.upkeep.prune._prune_on < operations.upkeep.prune.prune",
    ),
    "retention": Found(
        "a pruning that removes what it keeps",
        "prune",
        "slow:before:1:target remove < operations.upkeep.prune._prune_on < operations.upkeep.prune.prune",
    ),
    "recover": Found("a recovery that passes over one", "run", f"die:before:1:{_MOUNTING}"),
}
