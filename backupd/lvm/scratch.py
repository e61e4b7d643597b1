"""Scratch volumes in the free extents of a group, for a bench of layouts: made, given a file system, mounted.

Knows: how `lvcreate` is made to lay a volume over exactly the PVs that are named, and how a file system is aligned to
its stripes. Refuses to know what is measured, and to touch any volume that is there: nothing here extends, converts or
removes one. `LvmSnapshots.remove` removes a scratch volume, by its tag.

Tried with LVM 2.03.16, xfsprogs 6.1.0 and e2fsprogs 1.47.0: stripes lie on the PVs in the order in which they are
named, also where these have unlike numbers of free extents; a stripe size above the extent size is lowered to it with
a word on stdout and status 0; old signatures on the extents are wiped (`lvcreate -Wy`), which mkfs.xfs would refuse.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backupd.host import process
from backupd.host.process import ChildLedger
from backupd.lvm import Mark, devicemapper, report
from backupd.lvm.devicemapper import MappedDevice
from backupd.lvm.mounting import mount_to_write
from backupd.lvm.refusals import carry_out
from backupd.lvm.snapshots import reported, volume_group
from backupd.vocabulary.benches import LEAST_SIZE
from backupd.vocabulary.errors import CommandError, Refused, SnapshotError
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, ScratchLayout
from backupd.vocabulary.volumes import DeviceNumber, VolumeGroup

_FORMAT_SECONDS = 600.0
_TRIES, _PAUSE_SECONDS = 5, 0.2  # where udev makes the path, it may take a moment
_BLOCK = 4 * KIB  # of the file systems; LVM's least stripe too
_GROUPS = 4  # of XFS's allocation

# No dmeventd: there is nothing to watch. No archive of the group's metadata, of which LVM keeps a limited number:
# nothing that was there is changed, and the removal writes one, as LVM does before anything goes. The copy of the
# newest state is kept right.
_SETTINGS = "activation/monitoring=0 backup/archive=0"
_PACKAGES = {"xfs": "xfsprogs", "ext4": "e2fsprogs"}


@dataclass(frozen=True, slots=True)
class LvmScratchVolumes:
    """The volume groups of this host. Implements the contract `ScratchVolumes`."""

    machine: str  # whose name they bear
    mapped: Callable[[str], MappedDevice | None] = devicemapper.by_name

    def require_unused(self, vg: str, name: str) -> None:
        """No LV of the group has this name, be it active or not, or hidden."""
        for lv in report.parse_tagged(reported(report.volumes_argv(vg=vg))):
            if lv.name == name:
                raise Refused(f"{vg}/{name} already exists and is not replaced", hint=self._way_out(lv))

    def create(
        self,
        vg: str,
        name: str,
        layout: ScratchLayout,
        *,
        size: int,
        run_id: str,
        ledger: ChildLedger | None = None,
    ) -> Path:
        """It is on exactly the PVs of its layout, tagged from its first instant; its path leads to it.

        Raises:
            ValueError: no volume can have this layout and size; nothing was done.
        """
        group = volume_group(vg)
        extents = whole_extents(layout, size, group.extent_size)
        _require_room(group, layout, extents // layout.width)
        argv = create_argv(vg, name, layout, extents=extents, mark=Mark(self.machine, run_id))
        hint = f"see `vgs {vg}` and `pvs`, and whether another LVM command has locked the group"
        carry_out(argv, what=f"cannot create scratch volume {vg}/{name}", hint=hint, ledger=ledger)
        return self._path(vg, name)

    def format(
        self, device: Path, layout: ScratchLayout, filesystem: str, *, ledger: ChildLedger | None = None
    ) -> None:
        """Nothing of it is left to be initialised later, when it would be measured."""
        argv = format_argv(device, layout, filesystem)
        try:
            process.run(argv, timeout_seconds=_FORMAT_SECONDS, must_finish=True, ledger=ledger)
        except CommandError as error:
            hint = f"see the volume's size: {filesystem} takes {LEAST_SIZE[filesystem]} bytes and more; and `dmesg`"
            if not process.found(argv[0]):
                hint = f"apt-get install {_PACKAGES[filesystem]}"
            raise SnapshotError(f"cannot create {filesystem} on {device}: {error.message}", hint=hint) from error

    def mount(self, device: Path, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """It is mounted to be written, by us alone."""
        mount_to_write(device, filesystem, at, called=f"scratch volume {device}", ledger=ledger)

    def _path(self, vg: str, name: str) -> Path:
        """The path of an LV that was just made, once it leads to that and nothing else.

        Raises:
            SnapshotError: it does not.
        """
        path = Path("/dev") / vg / name
        for tries_left in reversed(range(_TRIES)):
            device = self.mapped(devicemapper.lvm_name(vg, name))
            if device is not None and _leads_to(path) == device.device:
                return path
            if tries_left:
                time.sleep(_PAUSE_SECONDS)
        raise SnapshotError(f"{path} does not point to the new volume", hint="see `dmsetup ls`, and whether udev runs")

    def _way_out(self, lv: report.TaggedVolume) -> str:
        if lv.mark is not None and lv.mark.machine == self.machine:
            return f"it is left over from run {lv.mark.run_id}: backupd recover"
        if lv.mark is not None:
            return f"run {lv.mark.run_id} of machine {lv.mark.machine} created it"
        return f"something else created it: see `lvs -a {lv.vg}/{lv.name}`; rename it (lvrename) if it must stay"


def whole_extents(layout: ScratchLayout, size: int, extent_size: int) -> int:
    """How many extents a volume of this layout and size has.

    Raises:
        ValueError: they are not whole on each stripe, or LVM has no such stripes.
    """
    if layout.kind is LayoutKind.LINEAR:
        if layout.width != 1 or layout.stripe_size:
            raise ValueError(f"a linear volume uses one PV and has no stripes: {layout}")
    elif layout.kind is not LayoutKind.STRIPED or layout.width < 2:
        raise ValueError(f"LVM has no such layout: {layout}")
    elif not _BLOCK <= layout.stripe_size <= extent_size or layout.stripe_size.bit_count() != 1:
        raise ValueError(
            f"the stripe size must be a power of two from {_BLOCK} to {extent_size} bytes, not {layout.stripe_size}"
        )
    if len(set(layout.disks)) != layout.width:
        raise ValueError(f"a PV is named twice: {layout}")
    extents, rest = divmod(size, extent_size)
    if rest or extents < 1 or extents % layout.width:
        raise ValueError(
            f"{size} bytes are not a whole number of extents of {extent_size} bytes on each of {layout.width} stripes"
        )
    return extents


def create_argv(vg: str, name: str, layout: ScratchLayout, *, extents: int, mark: Mark) -> list[str]:
    """The command that makes it. It waits while another LVM command holds the group: no server waits for this one."""
    kind = ["--type", "linear"]
    if layout.kind is LayoutKind.STRIPED:
        stripes = ["--stripes", str(layout.width), "--stripesize", f"{layout.stripe_size // KIB}k"]
        kind = ["--type", "striped", *stripes]
    head = ["lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y", "--config", _SETTINGS]
    return [*head, *mark.tag_words, *kind, "--extents", str(extents), "--name", name, vg, *layout.disks]


def format_argv(device: Path, layout: ScratchLayout, filesystem: str) -> list[str]:
    """The command that makes the file system, aligned to the stripes; nothing is discarded, which can take minutes.

    XFS gets four allocation groups on every layout, as it has by itself where there are no stripes: with stripes it
    makes more, no log of 64 MiB fits into one of them below 520 MiB, and mkfs.xfs refuses ("Log size must be at least
    64MB", met in 6.1.0). ext4 would write its inode tables and its journal in the background, for minutes after the
    mount, and make blocks of 1 KiB below 512 MiB. On an array nobody has wiped what its disks held there before.
    """
    stripe, width = layout.stripe_size, layout.width
    if filesystem == "xfs":
        aligned = [] if layout.kind is LayoutKind.LINEAR else ["-d", f"su={stripe},sw={width}"]
        force = ["-f"] if layout.kind is LayoutKind.RAID0 else []
        return ["mkfs.xfs", "-q", "-K", *force, "-d", f"agcount={_GROUPS}", *aligned, str(device)]
    if filesystem == "ext4":
        blocks = stripe // _BLOCK
        aligned = [] if layout.kind is LayoutKind.LINEAR else [f"stride={blocks}", f"stripe_width={blocks * width}"]
        extended = ",".join(("nodiscard", "lazy_itable_init=0", "lazy_journal_init=0", *aligned))
        return ["mkfs.ext4", "-q", "-b", str(_BLOCK), "-E", extended, str(device)]
    raise ValueError(f"a scratch volume cannot have file system {filesystem!r}")


def _require_room(group: VolumeGroup, layout: ScratchLayout, on_each: int) -> None:
    """Every PV of the layout is one of the group and has that many extents free.

    Raises:
        SnapshotError: naming the first that has not, and what the others have.
    """
    for pv in layout.disks:
        if pv in group.closed:
            raise SnapshotError(
                f"{pv} of {group.name} takes no new extents: it is missing, or not allocatable",
                hint=f"see `pvs -o +pv_missing,pv_allocatable`; to allow allocation: pvchange --allocatable y {pv}",
            )
        if pv not in group.free_by_pv:
            raise SnapshotError(
                f"{pv} is not a PV of {group.name}",
                hint=(f"it has: {', '.join(group.free_by_pv) or 'none that is usable'}"),
            )
        if group.free_by_pv[pv] < on_each:
            room = ", ".join(f"{name}: {free}" for name, free in group.free_by_pv.items())
            raise SnapshotError(
                f"not enough free extents on {pv} of {group.name}: need {on_each}, have {group.free_by_pv[pv]}",
                hint=f"measure with a smaller file, or on other PVs; free extents are on {room}",
            )


def _leads_to(path: Path) -> DeviceNumber | None:
    try:
        number = path.stat().st_rdev
    except FileNotFoundError:
        return None
    return DeviceNumber(os.major(number), os.minor(number))
