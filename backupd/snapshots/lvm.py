"""LVM snapshots, classic and thin: seen, taken under a lock, watched, removed.

Knows: LVM's commands, what their complaints mean for a person, and how one is taken under a lock. Refuses to know:
servers, locks, and what is read from a snapshot. Nothing that bears no tag of ours is ever changed.
"""

import logging
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd import command
from backupd.command import ChildLedger
from backupd.errors import CommandError, SnapshotError, SnapshotVoid
from backupd.model import CowUsage, DeviceNumber, Snapshot, SnapshotPlan, Volume, VolumeGroup
from backupd.snapshots import SnapshotCreator, classic, devicemapper, report, thin
from backupd.snapshots.method import DM_UUID_LENGTH, Method
from backupd.snapshots.shell import LvmShell, lvm_shell, meaningful

log = logging.getLogger(__name__)

_REPORT_SECONDS = 60.0
_REMOVE_SECONDS = 120.0
_POLL_SECONDS = 0.005
_BUSY_TRIES, _BUSY_PAUSE_SECONDS = 3, 0.5

_HINTS = (
    ("reached threshold", "extend the pool: lvextend --size +SIZE VG/POOL; see thin_pool_autoextend_threshold"),
    ("insufficient", "lower snapshot.size, or extend the volume group: vgextend VG DEVICE"),
    ("already exists in volume group", "something of an earlier run is left: backupd recover"),
    ("Can't get lock", "another LVM command holds the volume group; see `ps -C lvm,lvs,lvcreate,pvmove` and try again"),
    ("not found in Volume Group", "snapshot.pvs must name PVs of the origin's volume group: see `pvs`"),
    ("target(s) not detected", "load the kernel's module: modprobe dm-snapshot, for a thin volume dm-thin-pool"),
    ("in use", "see what holds it: lsof, `grep VG-LV /proc/*/mountinfo`, `dmsetup ls --tree`"),
)


class LvmSnapshots:
    """The volumes of this host. Implements the contract `Snapshots`.

    `create_deadline_seconds` bounds how long one `create` may keep the server waiting; LVM itself is never killed.
    """

    def __init__(
        self,
        *,
        create_deadline_seconds: float = 10.0,
        sysfs: Path = devicemapper.SYSFS,
    ) -> None:
        self._create_deadline_seconds = create_deadline_seconds
        self._sysfs = sysfs

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The LV that is this block device, by device-mapper's uuid and never by a name."""
        uuid = devicemapper.device_uuid(device, sysfs=self._sysfs)
        if uuid is None or not uuid.startswith("LVM-") or len(uuid) != DM_UUID_LENGTH:
            raise SnapshotError(
                f"not on LVM: the file system lies on {devicemapper.describe(device, sysfs=self._sysfs)}",
                hint="put the data on a file system directly on a logical volume: LVM freezes no other for a snapshot;"
                " LUKS and md fit below LVM, on its PVs",
            )
        vg_uuid, lv_uuid = report.dashed(uuid[4:36]), report.dashed(uuid[36:])
        for volume in report.parse_volumes(reported(report.volumes_argv(vg_uuid=vg_uuid))):
            if volume.uuid == lv_uuid:
                return volume
        raise SnapshotError(
            f"LVM reports no volume with uuid {lv_uuid}, but device {device} is one",
            hint="LVM's filter or devices file may hide its PVs: see `lvs -a` and `lvmdevices`",
        )

    def volume(self, vg: str, name: str) -> Volume:
        """The LV of this name, as it is now; an inactive one counts as none."""
        for volume in report.parse_volumes(reported(report.volumes_argv(vg=vg))):
            if volume.name == name:
                return volume
        raise SnapshotError(f"no active logical volume {vg}/{name}", hint="see `lvs`")

    def group(self, vg: str) -> VolumeGroup:
        """The volume group and the extents that can be allocated now."""
        group = report.parse_group(reported(report.group_argv(vg)))
        if group is None:
            raise SnapshotError(f"no volume group {vg}", hint="see `vgs`")
        return group

    @contextmanager
    def prepared(self, plan: SnapshotPlan, ledger: ChildLedger | None = None) -> Iterator[SnapshotCreator]:
        """What can be made before the lock is there, tagged; and a shell has rehearsed the line that does the rest.

        What LVM refuses, it refuses here, before the lock. At the end the shell has ended too, whatever happened: LVM
        has settled, and the snapshot's path exists. What was made is left to `remove`.
        """
        prefix = f"LVM-{_group_part(plan.origin, self._sysfs)}"
        method = _method_for(plan.origin)
        for argv in method.preparing_argvs(plan):
            _prepare(plan, argv)
        with lvm_shell(ledger) as shell:
            _rehearse(shell, plan, method)
            yield _LvmCreator(shell, plan, method, prefix, self._create_deadline_seconds)

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """How full the COW area is, or the pool, from the kernel: no process, no LVM lock."""
        return _method_for(snapshot.origin).usage(snapshot)

    def require_intact(self, snapshot: Snapshot) -> CowUsage:
        """Prove that what was read so far was the snapshot."""
        usage = self.usage(snapshot)
        if not usage.intact:
            raise SnapshotVoid(
                f"snapshot {snapshot.full_name} is not intact ({usage.state}): what was read from it is no backup",
                hint="its COW area or pool overflowed or failed: raise snapshot.size or extend the pool (lvextend), or"
                " back up when the server writes less",
            )
        return usage

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """Every LV with both tags, active or not, snapshot or what an interrupted `lvcreate` left."""
        tagged = report.parse_tagged(reported(report.volumes_argv()))
        return tuple((lv.vg, lv.name, lv.run_id) for lv in tagged if lv.run_id is not None)

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """Remove a snapshot, COW area or scratch volume of ours, whatever run's snapshots of that volume with it.

        A busy one (udev looks at new devices) is looked at afresh and tried again.
        """
        for tries_left in reversed(range(_BUSY_TRIES)):
            if not _is_ours(vg, name, run_id):
                return
            try:
                command.run(remove_argv(vg, name), timeout_seconds=_REMOVE_SECONDS, must_finish=True)
            except CommandError as error:
                if not (tries_left and _may_pass(error.message)):
                    raise SnapshotError(
                        f"{vg}/{name} could not be removed: {error.message}", hint=_hint(error.message)
                    ) from error
                log.info("%s/%s is in use, trying again", vg, name)
                time.sleep(_BUSY_PAUSE_SECONDS)
            else:
                return


@dataclass(frozen=True, slots=True)
class _LvmCreator:
    """One prepared line. Implements the contract `SnapshotCreator`."""

    shell: LvmShell
    plan: SnapshotPlan
    method: Method
    uuid_prefix: str
    deadline_seconds: float

    def create(self) -> Snapshot:
        """Send the line; return as soon as the kernel has the snapshot, without waiting for LVM's tidying."""
        deadline = time.monotonic() + self.deadline_seconds
        self.shell.send(shlex.join(self.method.line_argv(self.plan)))
        while True:
            said = self.shell.reply()  # before the look, so that a command that has just ended is looked at once more
            snapshot = self.method.confirmed(self.plan, self.uuid_prefix)
            if snapshot is not None:
                return snapshot
            if said is not None:
                raise _refusal(self.plan, said)
            if time.monotonic() > deadline:
                raise SnapshotError(
                    f"snapshot {self.plan.origin.vg}/{self.plan.name} was not there within {self.deadline_seconds:g} s",
                    hint="LVM was left to finish; see `dmsetup info -c -o name,suspended` if it does not",
                )
            time.sleep(_POLL_SECONDS)


def remove_argv(vg: str, name: str) -> list[str]:
    """The command that removes an LV, and first its classic snapshots, which are nothing without it.

    It also writes the metadata backup that taking the snapshot left out.
    """
    return ["lvremove", "-y", "--config", "activation/monitoring=0", f"{vg}/{name}"]


def reported(argv: list[str]) -> str:
    """What LVM prints when asked for one of the reports that `report` has the argv of.

    Raises:
        SnapshotError: it could not be asked.
    """
    try:
        return command.run(argv, timeout_seconds=_REPORT_SECONDS).stdout
    except CommandError as error:
        raise SnapshotError(f"LVM gave no report: {error.message}", hint=error.hint or _hint(error.message)) from error


def _method_for(origin: Volume) -> Method:
    return thin if origin.pool is not None else classic


def _prepare(plan: SnapshotPlan, argv: list[str]) -> None:
    try:
        command.run(argv, timeout_seconds=_REPORT_SECONDS, must_finish=True)
    except CommandError as error:
        raise _refusal(plan, error.message) from error


def _rehearse(shell: LvmShell, plan: SnapshotPlan, method: Method) -> None:
    """Have the shell scan and go through the command without effect: it is warm then, and known to be possible."""
    shell.send(shlex.join(method.line_argv(plan, rehearsal=True)))
    deadline = time.monotonic() + _REPORT_SECONDS
    while (said := shell.reply()) is None:
        if time.monotonic() > deadline:
            raise SnapshotError(f"the lvm shell did not answer within {_REPORT_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    if method.REHEARSED not in said:
        raise _refusal(plan, said)


def _refusal(plan: SnapshotPlan, said: str) -> SnapshotError:
    text = meaningful(said) or "LVM said nothing, and there is no snapshot"
    return SnapshotError(f"no snapshot of {plan.origin.full_name}: {text}", hint=_hint(text))


def _hint(text: str) -> str:
    return next((hint for sign, hint in _HINTS if sign.lower() in text.lower()), "")


def _may_pass(text: str) -> bool:
    return "in use" in text or "used by another device" in text


def _group_part(origin: Volume, sysfs: Path) -> str:
    """The VG's half of the origin's device-mapper uuid, and the proof that the device is still that LV.

    Raises:
        SnapshotError: it is not.
    """
    uuid = devicemapper.device_uuid(origin.device, sysfs=sysfs) or ""
    if len(uuid) != DM_UUID_LENGTH or uuid[36:] != origin.uuid.replace("-", ""):
        raise SnapshotError(
            f"device {origin.device} is no longer {origin.full_name}", hint="see `lvs -o +uuid`; try again"
        )
    return uuid[4:36]


def _is_ours(vg: str, name: str, run_id: str) -> bool:
    """Whether the LV is there, and it and what would go with it are ours: it bears the tags of this run.

    Raises:
        SnapshotError: it is there and does not, or somebody has a snapshot of it that bears no tags of ours.
    """
    there = report.parse_tagged(reported(report.volumes_argv(vg=vg)))
    wanted = next((lv for lv in there if lv.name == name), None)
    if wanted is None:
        return False
    if wanted.run_id != run_id:
        raise SnapshotError(
            f"{vg}/{name} bears no tag of run {run_id}: it is not removed",
            hint=f"if it is yours to remove: lvs -o +tags {vg}/{name}; lvremove {vg}/{name}",
        )
    foreign = [lv.name for lv in there if lv.origin == name and lv.run_id is None]
    if foreign:
        raise SnapshotError(
            f"{vg}/{name} is not removed: somebody has a snapshot of it, {', '.join(foreign)}",
            hint=f"if nobody needs it: lvremove {vg}/{foreign[0]}; then: backupd recover",
        )
    return True
