"""LVM snapshots, classic and thin: seen, taken under a lock, watched, removed.

Knows: LVM's commands, what their complaints mean for a person, and how one is taken under a lock. Refuses to know
servers and their locks, and what is read from a snapshot. Nothing that has no tag of this machine's is ever changed.
"""

import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from backupd.host import process
from backupd.host.process import ChildLedger
from backupd.lvm import Mark, SnapshotCreator, classic, devicemapper, report, thin
from backupd.lvm.method import DM_UUID_LENGTH, Method, ShellStep
from backupd.lvm.queues import with_queues
from backupd.lvm.refusals import GROUP_HELD, LOOK, NO_REPORT, refusal
from backupd.lvm.removal import chosen_removal_argv, is_ours, remove_argv
from backupd.lvm.shell import LvmShell, lvm_shell, meaningful
from backupd.vocabulary.errors import CommandError, GroupBusy, SnapshotError, SnapshotVoid
from backupd.vocabulary.volumes import CowUsage, DeviceNumber, Snapshot, SnapshotPlan, Volume, VolumeGroup

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_REPORT_SECONDS = 60.0
_PROMPT_SECONDS = 5.0  # for a report, or for another command to let the group go, while a snapshot fills
_REMOVE_SECONDS = 120.0
_POLL_SECONDS = 0.005
_BUSY_PAUSE_SECONDS = 0.5
_GROUP_SECONDS_BEFORE_LOCK, _GROUP_PAUSE_SECONDS = 20.0, 0.1
_MOST_SHELL_WORDS = 60  # of a line for the lvm shell, which takes fewer than 64 (MAX_ARGS of its lvm.c)
_REMOVED = "successfully removed"
_POOL_HINT = "extend the pool: lvextend --size +SIZE VG/POOL"

_HINTS = (
    ("reached threshold", f"{_POOL_HINT}; see thin_pool_autoextend_threshold"),
    ("insufficient", "lower snapshot.size, or extend the volume group: vgextend VG DEVICE"),
    ("already exists in volume group", "left over from an earlier run: backupd recover"),
    (GROUP_HELD, "another LVM command has locked the volume group; see `ps -C lvm,lvs,lvcreate,pvmove` and try again"),
    ("not found in Volume Group", "snapshot.pvs must name PVs of the origin's volume group: see `pvs`"),
    ("target(s) not detected", "load the kernel's module: modprobe dm-snapshot, for a thin volume dm-thin-pool"),
    ("in use", "see what uses it: lsof, `grep VG-LV /proc/*/mountinfo`, `dmsetup ls --tree`"),
)


class LvmSnapshots:
    """The volumes of this host. Implements the contract `Snapshots`; what it takes bears the name of this machine.

    `create_deadline_seconds` bounds how long one `create` may keep the server waiting; LVM itself is never killed.
    `group_patience_seconds` of that may go by while another command has the volume group, as `lvs` has it for a moment:
    the line is sent again. LVM could wait itself, but for ever, and for a prompt that nobody answers.
    `busy_patience_seconds` are for whoever has a snapshot open that is to be removed: udev, blkid, some monitoring.
    """

    def __init__(
        self,
        machine: str,
        *,
        create_deadline_seconds: float = 10.0,
        group_patience_seconds: float = 2.0,
        busy_patience_seconds: float = 30.0,
        sysfs: Path = devicemapper.SYSFS,
    ) -> None:
        self._machine = machine
        self._create_deadline_seconds = create_deadline_seconds
        self._group_patience_seconds = group_patience_seconds
        self._busy_patience_seconds = busy_patience_seconds
        self._sysfs = sysfs

    def volume_at(self, device: DeviceNumber) -> Volume:
        """The LV that is this block device, by device-mapper's uuid and never by a name."""
        vg, lv_uuid = self._group_and_uuid(device)
        return _of_uuid(lv_uuid, report.parse_volumes(reported(report.volumes_argv(vg=vg))), device)

    def volume_and_group_at(self, device: DeviceNumber) -> tuple[Volume, VolumeGroup]:
        """The same with its group, from one report: an LVM program takes its time to scan all disks."""
        vg, lv_uuid = self._group_and_uuid(device)
        volumes, group = report.parse_both(reported(report.both_argv(vg)))
        volume = _of_uuid(lv_uuid, volumes, device)
        if group is None:
            raise SnapshotError(f"no volume group {volume.vg}", hint="see `vgs`")
        return volume, with_queues(group)

    def _group_and_uuid(self, device: DeviceNumber) -> tuple[str, str]:
        """The name of the group, by which LVM is asked, and LVM's uuid of the LV that is this block device.

        Raises:
            SnapshotError: it is none.
        """
        uuid = devicemapper.device_uuid(device, sysfs=self._sysfs)
        if uuid is None or not uuid.startswith("LVM-") or len(uuid) != DM_UUID_LENGTH:
            raise SnapshotError(
                f"not on LVM: the file system is on {devicemapper.describe(device, sysfs=self._sysfs)}",
                hint=(
                    "put the data on a file system directly on a logical volume, because LVM can freeze no other;"
                    " LUKS and md belong below LVM, on its PVs"
                ),
            )
        vg = devicemapper.group_name(device, sysfs=self._sysfs)
        if not vg:
            raise SnapshotError(f"device {device} does not have the name that LVM gave it", hint="see `dmsetup ls`")
        return vg, report.dashed(uuid[36:])

    def volume(self, vg: str, name: str) -> Volume:
        """The LV of this name, as it is now; an inactive one counts as none."""
        return active_volume(vg, name)

    def group(self, vg: str, *, promptly: bool = False) -> VolumeGroup:
        """The volume group and the extents that can be allocated now."""
        return volume_group(vg, promptly=promptly)

    @contextmanager
    def prepared(self, plan: SnapshotPlan, ledger: ChildLedger | None = None) -> Iterator[SnapshotCreator]:
        """What can be made before the lock is there, tagged; and a shell has rehearsed the line that does the rest.

        The same shell makes it: a program of its own for each command would scan all devices once more. What LVM
        refuses, it refuses here, before the lock. At the end the shell has ended too, whatever happened: LVM has
        settled, and the snapshot's path exists. What was made is left to `remove`.
        """
        prefix = f"LVM-{_group_part(plan.origin, self._sysfs)}"
        method, mark = _method_for(plan.origin), Mark(self._machine, plan.run_id)
        line = shlex.join(method.line_argv(plan, mark))
        # Without effect; it shows that the line is possible, and the shell is warm then.
        rehearsal = ShellStep(method.line_argv(plan, mark, rehearsal=True), lambda said: method.REHEARSED in said)
        with lvm_shell(ledger) as shell:
            for step in (*method.preparing(plan, mark), rehearsal):
                _require_done(shell, plan, step, ledger)
            yield _LvmCreator(
                shell, plan, line, method, prefix, self._create_deadline_seconds, self._group_patience_seconds
            )

    def usage(self, snapshot: Snapshot) -> CowUsage:
        """How full the COW area is, or the pool, from the kernel: no process, no LVM lock."""
        return _method_for(snapshot.origin).usage(snapshot)

    def require_intact(self, snapshot: Snapshot) -> CowUsage:
        """Prove that what was read so far was the snapshot."""
        usage = self.usage(snapshot)
        if not usage.intact:
            raise SnapshotVoid(
                f"snapshot {snapshot.full_name} is not intact ({usage.state}): what was read from it is not a backup",
                hint="its COW area or pool overflowed or failed: raise snapshot.size or extend the pool (lvextend), or"
                " back up when the server writes less",
            )
        return usage

    def extend(self, snapshot: Snapshot, extents: int, pvs: tuple[str, ...] = (), *, stripes: int = 1) -> None:
        """More extents for the COW area. Another command that has the group is waited for, but not for long."""
        vg, name, mark = snapshot.origin.vg, snapshot.name, Mark(self._machine, snapshot.run_id)
        if snapshot.origin.pool is not None:
            raise SnapshotError(f"{snapshot.full_name} is thin: it has no COW area of its own", hint=_POOL_HINT)
        there = report.parse_tagged(_promptly_reported(report.volumes_argv(vg=vg)))
        if not any(lv.name == name and lv.mark == mark for lv in there):
            raise SnapshotError(f"{vg}/{name} is not a snapshot of run {mark.run_id}, so it is not extended")
        try:
            argv = classic.extending_argv(snapshot, extents, pvs, stripes=stripes)
            _changed(argv, patience_seconds=_PROMPT_SECONDS)
        except CommandError as error:
            raise refusal(f"{vg}/{name} could not be extended: {error.message}", hint=_hint(error.message)) from error

    def ours(self) -> tuple[tuple[str, str, str], ...]:
        """Every LV with all three tags, active or not, snapshot or what an interrupted `lvcreate` left."""
        tagged = report.parse_tagged(reported(report.volumes_argv()))
        marked = ((lv, lv.mark) for lv in tagged)
        return tuple((lv.vg, lv.name, mark.run_id) for lv, mark in marked if mark and mark.machine == self._machine)

    def remove(self, vg: str, name: str, run_id: str) -> None:
        """Remove a snapshot, COW area or scratch volume of ours, whatever run's snapshots of that volume with it.

        What has no snapshots of its own is removed by one command, in which LVM looks for the mark itself: each command
        scans all devices, and meanwhile the snapshot costs the server. Where that removes nothing, a look tells why.
        A busy one (udev looks at new devices) is looked at afresh and tried again. Gone is what the kernel does not
        have either: LVM knows nothing of a group whose disks it can't read, or is not to see.
        """
        mark = Mark(self._machine, run_id)

        def is_there() -> bool:
            if is_ours(report.parse_tagged(reported(report.volumes_argv(vg=vg))), vg, name, mark):
                return True
            if devicemapper.is_active(devicemapper.lvm_name(vg, name), sysfs=self._sysfs):
                raise SnapshotError(
                    f"{vg}/{name} could not be removed: LVM does not report it, but the kernel still has its device",
                    hint=f"LVM does not see the disks of {vg} now (`pvs`, `dmsetup ls --tree`, dmesg); once it does:"
                    " backupd recover",
                )
            return False

        deadline = time.monotonic() + self._busy_patience_seconds
        argv = chosen_removal_argv(vg, name, mark)
        while True:
            try:
                said = process.run(argv, timeout_seconds=_REMOVE_SECONDS, must_finish=True).stdout
            except CommandError as error:
                going_on = _may_pass(error.message) and time.monotonic() <= deadline
                if going_on:
                    log.info("%s/%s is in use, trying again", vg, name)
                    time.sleep(_BUSY_PAUSE_SECONDS)
                if not is_there():
                    return
                if not going_on:
                    raise refusal(
                        f"{vg}/{name} could not be removed: {error.message}", hint=_hint(error.message)
                    ) from error
            else:
                by_name = remove_argv(vg, name)
                if argv == by_name or _REMOVED in said or not is_there():
                    return
                argv = by_name


@dataclass(frozen=True, slots=True)
class _LvmCreator:
    """One prepared line. Implements the contract `SnapshotCreator`."""

    shell: LvmShell
    plan: SnapshotPlan
    line: str
    method: Method
    uuid_prefix: str
    deadline_seconds: float
    group_patience_seconds: float

    def create(self) -> Snapshot:
        """Send the line; return as soon as the kernel has the snapshot, without waiting for LVM's tidying."""
        began = time.monotonic()
        self.shell.send(self.line)
        while True:
            said = self.shell.reply()  # before the look, so that a command that has just ended is looked at once more
            snapshot = self.method.confirmed(self.plan, self.uuid_prefix)
            if snapshot is not None:
                return snapshot
            passed = time.monotonic() - began
            if said is not None:
                if GROUP_HELD not in said or passed > min(self.group_patience_seconds, self.deadline_seconds):
                    raise _refusal(self.plan, said)
                self.shell.send(self.line)
            elif passed > self.deadline_seconds:
                raise SnapshotError(
                    f"snapshot {self.plan.origin.vg}/{self.plan.name} did not appear within {self.deadline_seconds:g}"
                    f" s",
                    hint="LVM was left running; if it does not finish, see `dmsetup info -c -o name,suspended`",
                )
            time.sleep(_POLL_SECONDS)

    def settle(self, waiting: Callable[[], None]) -> None:
        """The shell ends."""
        self.shell.end(waiting)


def active_volume(vg: str, name: str) -> Volume:
    """The LV of this name, as it is now.

    Raises:
        SnapshotError: there is none, or it is not active.
    """
    for volume in report.parse_volumes(reported(report.volumes_argv(vg=vg))):
        if (volume.vg, volume.name) == (vg, name):
            return volume
    raise SnapshotError(f"no active logical volume {vg}/{name}", hint="see `lvs`")


def volume_group(vg: str, *, promptly: bool = False) -> VolumeGroup:
    """The volume group and the extents that can be allocated now.

    Raises:
        SnapshotError: there is none; or, promptly, another command holds it.
    """
    asked = report.group_argv(vg)
    group = report.parse_group(_promptly_reported(asked) if promptly else reported(asked))
    if group is None or group.name != vg:  # LVM takes a tag for a group's name, too, and a path
        raise SnapshotError(f"no volume group {vg}", hint="see `vgs`")
    return with_queues(group)


def reported(argv: list[str], *, within_seconds: float = _REPORT_SECONDS) -> str:
    """What LVM prints when asked for one of the reports that `report` has the argv of; an empty one of no group.

    Raises:
        SnapshotError: it could not be asked.
    """
    try:
        return process.run(argv, timeout_seconds=within_seconds).stdout
    except CommandError as error:
        if report.is_unknown(argv[-1], error.message):
            return report.NOTHING
        raise refusal(f"{NO_REPORT}: {error.message}", hint=error.hint or _hint(error.message)) from error


def _of_uuid(uuid: str, volumes: tuple[Volume, ...], device: DeviceNumber) -> Volume:
    """That one of these volumes.

    Raises:
        SnapshotError: it is not among them.
    """
    for volume in volumes:
        if volume.uuid == uuid:
            return volume
    raise SnapshotError(
        f"LVM reports no volume with uuid {uuid}, but device {device} is one",
        hint="LVM's filter or devices file may hide its PVs: see `lvs -a` and `lvmdevices`",
    )


def _promptly_reported(argv: list[str]) -> str:
    """The same within seconds, while a snapshot fills. A group that another command holds for as long is an error."""
    asked = partial(reported, report.at_once(argv), within_seconds=_PROMPT_SECONDS)
    return _outlasting_others(asked, patience_seconds=_PROMPT_SECONDS)


def _method_for(origin: Volume) -> Method:
    return thin if origin.pool is not None else classic


def _changed(argv: list[str], *, patience_seconds: float, ledger: ChildLedger | None = None) -> None:
    """The command has done what it says, though others have the volume group for as long as that is worth it.

    Raises:
        CommandError: it failed, or the group was not to be had.
    """
    run = partial(process.run, argv, timeout_seconds=_REPORT_SECONDS, must_finish=True, ledger=ledger)
    _outlasting_others(run, patience_seconds=patience_seconds)


def _outlasting_others(ask: Callable[[], _T], *, patience_seconds: float) -> _T:
    """What it gives, which fails at once where another command has the volume group: asked again for so long."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return ask()
        except (CommandError, GroupBusy) as error:
            if GROUP_HELD not in error.message or time.monotonic() > deadline:
                raise
            time.sleep(_GROUP_PAUSE_SECONDS)


def _require_done(shell: LvmShell, plan: SnapshotPlan, step: ShellStep, ledger: ChildLedger | None) -> None:
    """Have the shell do it; again for as long as another command has the group and that is worth it.

    Raises:
        SnapshotError: it is not done, and what LVM says about that.
    """
    if len(step.argv) > _MOST_SHELL_WORDS:
        try:
            _changed(step.argv, patience_seconds=_GROUP_SECONDS_BEFORE_LOCK, ledger=ledger)
        except CommandError as error:
            raise _refusal(plan, error.message) from error
        return
    began = time.monotonic()
    while not step.is_done(said := _answer(shell, plan, shlex.join(step.argv))):
        passing = GROUP_HELD in said or _may_pass(said)  # udev may have an area open that was just made
        if not passing or time.monotonic() - began > _GROUP_SECONDS_BEFORE_LOCK:
            raise _refusal(plan, said)
        time.sleep(_GROUP_PAUSE_SECONDS)


def _answer(shell: LvmShell, plan: SnapshotPlan, line: str) -> str:
    shell.send(line)
    deadline = time.monotonic() + _REPORT_SECONDS
    while (said := shell.reply()) is None:
        if time.monotonic() > deadline:
            raise _refusal(plan, f"LVM has not answered within {_REPORT_SECONDS:g} s: {line}")
        time.sleep(_POLL_SECONDS)
    return said


def _refusal(plan: SnapshotPlan, said: str) -> SnapshotError:
    text = meaningful(said) or "LVM printed nothing, and there is no snapshot"
    return refusal(f"cannot create a snapshot of {plan.origin.full_name}: {text}", hint=_hint(text))


def _hint(text: str) -> str:
    return next((hint for sign, hint in _HINTS if sign.lower() in text.lower()), LOOK)


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
