"""Groups and arrays on whole disks that a person named, and that are as empty afterwards as they were before.

Knows: what must be proven before a disk is touched, and that it is clean when it is released.

Whatever is killed when: every step that writes to a disk writes whose it is first of all (`disk_marks`), the removals
go by that alone, and each begins where the one before it got to.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backupd.lvm import Mark, empty_disks, holding_on_disks, scratch_arrays, scratch_groups, scratch_name
from backupd.lvm.blank import filesystem_uuid
from backupd.lvm.devicemapper import device_number
from backupd.lvm.disk_marks import array_uuid, require_markable, run_of_pv
from backupd.lvm.empty_disks import LEAST_SIZE, physical_volumes
from backupd.lvm.report import LabelledDisk
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import ScratchLayout


@dataclass(frozen=True, slots=True)
class LinuxScratchDisks:
    """The disks of this host. Implements the contract `ScratchDisks`."""

    machine: str  # whose name the disks bear
    least_size: int = LEAST_SIZE  # bytes

    def require_distinct(self, disks: tuple[str, ...]) -> None:
        """No two of these paths lead to the same disk."""
        empty_disks.require_distinct(disks)

    def require_empty(self, disk: Path, *, overwrite_leftovers: bool = False) -> int:
        """Nobody uses the disk and nothing is on it; its size in bytes."""
        return empty_disks.require_empty(disk, least_size=self.least_size, overwrite_leftovers=overwrite_leftovers)

    def make_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """A volume group of this name and our tags is on the disks, which are proven to be empty once more."""
        self._require_ours_to_use(disks, run_id)
        if any(pv.vg == vg for pv in physical_volumes()):
            raise Refused(f"volume group {vg} already exists", hint=f"see `vgs -o +tags {vg}`; `backupd recover`")
        scratch_groups.make(vg, disks, Mark(self.machine, run_id))

    def remove_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """The group is gone and its disks are empty as before."""
        mark = Mark(self.machine, run_id)
        scratch_groups.remove(vg, physical_volumes(), mark)
        scratch_groups.unlabel(physical_volumes(), mark)
        for pv in _on(disks):
            if pv.vg == vg or run_of_pv(pv.uuid, self.machine) == run_id:
                raise SnapshotError(
                    f"{pv.path} is not touched: volume group {pv.vg} on it has no tag of run {run_id}",
                    hint=f"if it is yours to remove: vgs -o +tags {pv.vg}; vgremove {pv.vg}; pvremove {pv.path}",
                )
        for disk in _there(disks):
            if run_of_pv(filesystem_uuid(disk), self.machine) == run_id:
                raise SnapshotError(
                    f"{disk} is a PV of run {run_id}, but LVM does not see it",
                    hint="LVM's filter or devices file may hide it: see `pvs -a` and `lvmdevices`; then"
                    " `backupd recover`",
                )

    def make_array(self, name: str, layout: ScratchLayout, run_id: str) -> Path:
        """A RAID-0 runs on the layout's disks, which are proven to be empty once more; its device."""
        if name != scratch_name(run_id):
            raise ValueError(name)
        scratch_arrays.require_mdadm()
        self._require_ours_to_use(layout.disks, run_id)
        names = {member.superblock.name.rpartition(":")[2] for member in scratch_arrays.members()}
        if name in names or (scratch_arrays.NAMES / name).is_symlink():
            raise Refused(f"array {name} already exists", hint="see /proc/mdstat; `backupd recover`")
        return scratch_arrays.make(name, layout, Mark(self.machine, run_id))

    def remove_array(self, name: str, disks: tuple[str, ...], run_id: str) -> None:
        """The array is stopped and its disks are empty as before."""
        mark = Mark(self.machine, run_id)
        scratch_arrays.remove(name, disks, mark)
        for disk in _there(disks):
            if filesystem_uuid(disk) == str(array_uuid(mark)):
                raise SnapshotError(
                    f"{disk} is still part of the array of run {run_id}",
                    hint="something else uses it: see `lsblk`; then `backupd recover`",
                )

    def ours(self) -> tuple[tuple[Holding, str], ...]:
        """Every group by its tags, every labelled disk without a group by its mark, every array by its superblocks."""
        groups = [
            (run_id, pv.vg, pv.path) for pv in physical_volumes() if (run_id := scratch_groups.run_of(pv, self.machine))
        ]
        arrays = [
            (run_id, member.superblock.name, str(member.disk.path))
            for member in scratch_arrays.ours(self.machine)
            if (run_id := member.superblock.run_of(self.machine))
        ]
        return (*_holdings(HoldingKind.SCRATCH_GROUP, groups), *_holdings(HoldingKind.SCRATCH_ARRAY, arrays))

    def _require_ours_to_use(self, disks: tuple[str, ...], run_id: str) -> None:
        require_markable(run_id, disks)
        self.require_distinct(disks)
        for disk in disks:
            self.require_empty(Path(disk), overwrite_leftovers=True)  # those of the layout before this one


def _holdings(kind: HoldingKind, found: Iterable[tuple[str, str, str]]) -> Iterable[tuple[Holding, str]]:
    """One for each run and name; `found` is (run id, name, disk). A group without a name is one that was never made."""
    disks: dict[tuple[str, str], list[str]] = {}
    for run_id, name, disk in found:
        disks.setdefault((run_id, name or scratch_name(run_id)), []).append(disk)
    for (run_id, name), own in disks.items():
        yield Holding(kind, name, holding_on_disks(kind, tuple(own), run_id).detail), run_id


def _there(disks: tuple[str, ...]) -> list[Path]:
    return [Path(disk) for disk in disks if device_number(disk)]


def _on(disks: tuple[str, ...]) -> list[LabelledDisk]:
    numbers = {device_number(disk) for disk in disks} - {None}
    return [pv for pv in physical_volumes() if device_number(pv.path) in numbers]
