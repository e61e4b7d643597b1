"""How a snapshot is taken, whichever kind its origin is: what `classic` and `thin` have to say, and what they share.

Knows: the settings of LVM's commands around a lock, what the device of an LV that is live looks like.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backupd.lvm import Mark, devicemapper
from backupd.lvm.devicemapper import MappedDevice
from backupd.vocabulary.volumes import CowUsage, Snapshot, SnapshotPlan

DM_UUID_LENGTH = len("LVM-") + 32 + 32  # VG and LV; internal layers have a suffix behind

# A VG that another command holds is an error at once rather than a wait without end (under our lock, the server's):
# `snapshots` asks again for as long as that is worth it. No dmeventd:
# lvremove starts one otherwise (met in 2.03.16), and it would hold what it inherits and unmount a full snapshot lazily.
# No backup of the metadata under the lock: that is disk I/O, and the removal writes one. No cache_check: where a cache
# is a plain volume (`--cachevol`) LVM runs it although it is in use, so that it can only fail, and then takes no
# snapshot ("Check of pool … failed (status:1). Manual repair required!", met in 2.03.16). Of a cache pool it runs none.
# And no silence (lvm.conf, `log/silent`): the shell tells no status, so that what LVM says it has done has to be heard.
SETTINGS = (
    'global/wait_for_locks=0 activation/monitoring=0 backup/backup=0 backup/archive=0 global/cache_check_executable=""'
    " log/silent=0"
)


@dataclass(frozen=True, slots=True)
class ShellStep:
    """A command for the `lvm` shell, which tells no exit status, and what shows that it has done what it should."""

    argv: list[str]
    is_done: Callable[[str], bool]  # given what it said


class Method(Protocol):
    """One way to take a snapshot. The argvs are pure; the others ask the kernel, not LVM."""

    @property
    def REHEARSED(self) -> str:  # noqa: N802 - a module's constant
        """What LVM says of the line when it would have worked."""

    def preparing(self, plan: SnapshotPlan, mark: Mark) -> list[ShellStep]:
        """The commands that do, before the lock, all that can be done before it."""

    def line_argv(self, plan: SnapshotPlan, mark: Mark, *, rehearsal: bool = False) -> list[str]:
        """The command that takes the snapshot, or only pretends to."""

    def confirmed(self, plan: SnapshotPlan, uuid_prefix: str) -> Snapshot | None:
        """The snapshot, if it is live; `uuid_prefix` is that of all devices of its group.

        LVM commits its metadata before it resumes the origin, so a live table is a committed one.
        """

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """How full it is, and whether it still is what it was."""


def origin_uuid(plan: SnapshotPlan, uuid_prefix: str) -> str:
    """Device-mapper's uuid of the origin."""
    return uuid_prefix + plan.origin.uuid.replace("-", "")


def live(plan: SnapshotPlan, uuid_prefix: str, *, kind: str) -> MappedDevice | None:
    """The device of the planned name with its table, if it is an LV of that group and a target of that kind."""
    found = devicemapper.by_name(devicemapper.lvm_name(plan.origin.vg, plan.name), table=True)
    if found is None or found.suspended or found.only is None or found.only.kind != kind:
        return None
    if not found.uuid.startswith(uuid_prefix) or len(found.uuid) != DM_UUID_LENGTH:
        return None
    return found


def snapshot_at(plan: SnapshotPlan, device: MappedDevice, size: int) -> Snapshot:
    """The snapshot of that plan that this device is."""
    return Snapshot(
        origin=plan.origin,
        name=plan.name,
        uuid=device.uuid,
        run_id=plan.run_id,
        path=Path("/dev") / plan.origin.vg / plan.name,
        device=device.device,
        size=size,
        chunk_size=plan.chunk_size,
    )
