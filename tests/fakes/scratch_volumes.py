"""Scratch volumes in memory, on the same `LvmHost` as the snapshots: the contract `ScratchVolumes`.

They take extents of the very PVs of their layout, and are a `Volume` that the host's snapshots can be of.
"""

from dataclasses import dataclass
from pathlib import Path

from backupd.host.process import ChildLedger
from backupd.lvm import Mark
from backupd.vocabulary.benches import LEAST_SIZE
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, ScratchLayout
from backupd.vocabulary.volumes import Segment, Volume
from tests.fakes.lvm_host import EXTENT, LvmHost, Scratch
from tests.fakes.target import MACHINE


@dataclass(frozen=True)
class FakeScratchVolumes:
    """Implements the contract `ScratchVolumes`."""

    host: LvmHost
    machine: str = MACHINE

    def require_unused(self, vg: str, name: str) -> None:
        """Nothing has this name."""
        with self.host.call("require_unused"):
            if vg == self.host.volume.vg and name in self.host.names():
                raise Refused(f"{vg}/{name} already exists and is not replaced", hint="lvrename, or backupd recover")

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
        """It takes as many extents of each of its PVs."""
        with self.host.call("create_scratch"):
            _require_possible(layout, size)
            on_each = size // EXTENT // layout.width
            self._require_room(vg, layout, on_each)
            if name in self.host.names():
                raise SnapshotError(f'Logical Volume "{name}" already exists in volume group "{vg}"', hint="lvs")
            kind = "linear" if layout.kind is LayoutKind.LINEAR else "striped"
            segment = Segment(kind, size, layout.width, layout.stripe_size, layout.disks)
            device, path = self.host.next_device(), Path("/dev") / vg / name
            tags = frozenset(Mark(self.machine, run_id).tags)
            volume = Volume(vg, name, f"scratch-{device.minor}", path, device, size, (segment,), tags)
            self.host.scratch[name] = Scratch(volume, dict.fromkeys(layout.disks, on_each))
            return path

    def format(
        self, device: Path, layout: ScratchLayout, filesystem: str, *, ledger: ChildLedger | None = None
    ) -> None:
        """Not on anything that is no scratch volume: the device of an array is as good as none here."""
        with self.host.call("format"):
            if filesystem not in LEAST_SIZE:
                raise ValueError(f"a scratch volume cannot have file system {filesystem!r}")
            scratch = self.host.scratch_at(device)
            if scratch is None or scratch.volume.size < LEAST_SIZE[filesystem]:
                raise SnapshotError(f"cannot create {filesystem} on {device}: Filesystem must be larger", hint="size")
            assert layout.disks == scratch.volume.segments[0].devices, "another layout than it was made with"
            scratch.filesystem = filesystem

    def mount(self, device: Path, filesystem: str, at: Path, *, ledger: ChildLedger | None = None) -> None:
        """An empty folder; also where it fails."""
        with self.host.call("mount_scratch"):
            at.mkdir(parents=True, exist_ok=True)
            scratch = self.host.scratch_at(device)
            if scratch is None or scratch.filesystem != filesystem:
                raise SnapshotError(f"scratch volume {device} could not be mounted: wrong fs type", hint="dmesg")
            self.host.mounted[at] = scratch.volume.name

    def _require_room(self, vg: str, layout: ScratchLayout, on_each: int) -> None:
        if vg != self.host.volume.vg:
            raise SnapshotError(f"no volume group {vg}", hint="see `vgs`")
        free = self.host.group().free_by_pv
        for pv in layout.disks:
            if pv in self.host.closed:
                raise SnapshotError(f"{pv} of {vg} takes no new extents", hint=f"pvchange --allocatable y {pv}")
            if pv not in free:
                raise SnapshotError(f"{pv} is not a PV of {vg}", hint=f"it has: {', '.join(free)}")
            if free[pv] < on_each:
                raise SnapshotError(
                    f"not enough free extents on {pv} of {vg}: need {on_each}, have {free[pv]}", hint="a smaller file"
                )


def _require_possible(layout: ScratchLayout, size: int) -> None:
    """What LVM takes, and takes as it is told: extents of 4 MiB, a power of two for a stripe, no larger than those."""
    striped = layout.kind is LayoutKind.STRIPED and layout.width > 1
    linear = layout.kind is LayoutKind.LINEAR and layout.width == 1 and not layout.stripe_size
    if not (striped or linear) or len(set(layout.disks)) != layout.width:
        raise ValueError(f"LVM has no such layout: {layout}")
    if striped and layout.stripe_size not in [4 * KIB << power for power in range(11)]:
        raise ValueError(f"no stripe size: {layout.stripe_size}")
    if size <= 0 or size % (EXTENT * layout.width):
        raise ValueError(f"{size} bytes are not a whole number of extents on each of {layout.width} stripes")
