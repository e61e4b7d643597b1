"""Whole disks that a bench is given, in memory: the contract `ScratchDisks`, for stories that have no such disks.

One `FakeScratchDisks` knows what is on each disk. A group or an array that could not be made, because it was told to
fail, leaves its marks on the disks, as a killed one would.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backupd.lvm import holding_on_disks, scratch_name
from backupd.lvm.disk_marks import require_markable
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import ScratchLayout

MIB = 1 << 20
MEMBER = {HoldingKind.SCRATCH_GROUP: "LVM2_member", HoldingKind.SCRATCH_ARRAY: "linux_raid_member"}


@dataclass(frozen=True)
class OnDisks:
    """A group or an array; `run_id` is None for somebody else's, `whole` is False for what is left of one."""

    kind: HoldingKind
    name: str
    disks: tuple[str, ...]
    run_id: str | None
    whole: bool = True


@dataclass
class FakeScratchDisks:
    """The disks of a host. `told` hears of a group with its disks, and with none when it is gone."""

    sizes: dict[str, int] = field(default_factory=lambda: {"/dev/sdx": 512 * MIB, "/dev/sdy": 512 * MIB})
    aliases: dict[str, str] = field(default_factory=dict)  # another path -> disk
    held: dict[str, str] = field(default_factory=dict)  # disk -> what somebody has on it
    leftovers: set[str] = field(default_factory=set)  # disks with data in no known format
    made: list[OnDisks] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)  # names of groups and arrays that are in use
    has_mdadm: bool = True
    fails: str = ""  # this verb
    happened: Callable[[str], None] = lambda verb: None
    told: Callable[[str, tuple[str, ...]], None] = lambda vg, disks: None

    def require_distinct(self, disks: tuple[str, ...]) -> None:
        """By the disks that the paths lead to."""
        self._called("require_distinct")
        real = [self._disk(disk) for disk in disks]
        for disk in real:
            if real.count(disk) > 1:
                raise Refused(f"{disk} is given twice", hint="give each disk once")

    def require_empty(self, disk: Path, *, overwrite_leftovers: bool = False) -> int:
        """Nothing is known to be on it."""
        self._called("require_empty")
        real = self._disk(str(disk))
        if real not in self.sizes:
            raise Refused(f"{disk} does not exist", hint="see `lsblk -p`")
        found = self.contents(real)
        if found:
            raise Refused(f"{disk} is not empty: it has {', '.join(found)}", hint=f"wipefs --all {disk}")
        if real in self.leftovers and not overwrite_leftovers:
            raise Refused(f"{disk} is not empty: it has data", hint="--overwrite-leftovers")
        return self.sizes[real]

    def make_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """Its disks are marked, also where the rest went wrong."""
        self._make(OnDisks(HoldingKind.SCRATCH_GROUP, vg, disks, run_id), "make_group")
        self.told(vg, disks)

    def remove_group(self, vg: str, disks: tuple[str, ...], run_id: str) -> None:
        """Only that run's; somebody else's of this name on these disks is told of."""
        self._remove(HoldingKind.SCRATCH_GROUP, vg, run_id, "remove_group")
        self.told(vg, ())
        real = {self._disk(disk) for disk in disks}
        for one in self.made:
            if one.kind is HoldingKind.SCRATCH_GROUP and one.name == vg and real & set(one.disks):
                raise SnapshotError(f"volume group {vg} has no tag of run {run_id}", hint="vgs -o +tags")

    def make_array(self, name: str, layout: ScratchLayout, run_id: str) -> Path:
        """Its disks are marked, also where the rest went wrong."""
        if name != scratch_name(run_id):
            raise ValueError(name)
        if not self.has_mdadm:
            raise SnapshotError("mdadm is not installed", hint="apt-get install mdadm")
        self._make(OnDisks(HoldingKind.SCRATCH_ARRAY, name, layout.disks, run_id), "make_array")
        return Path("/dev/md127")

    def remove_array(self, name: str, disks: tuple[str, ...], run_id: str) -> None:
        """Only that run's."""
        self._remove(HoldingKind.SCRATCH_ARRAY, name, run_id, "remove_array")

    def ours(self) -> tuple[tuple[Holding, str], ...]:
        """What bears a run's mark, whole or not."""
        self._called("ours")
        return tuple(self._ours())

    def contents(self, disk: str) -> tuple[str, ...]:
        """What wipefs would find."""
        own = [MEMBER[one.kind] for one in self.made if disk in one.disks]
        return (*([self.held[disk]] if disk in self.held else []), *own)

    def _ours(self) -> Iterator[tuple[Holding, str]]:
        for one in self.made:
            if one.run_id is not None:
                holding = holding_on_disks(one.kind, one.disks, one.run_id)
                yield Holding(one.kind, one.name if one.whole else holding.name, holding.detail), one.run_id

    def _make(self, wanted: OnDisks, verb: str) -> None:
        assert wanted.run_id is not None
        require_markable(wanted.run_id, wanted.disks)
        self.require_distinct(wanted.disks)
        for disk in wanted.disks:
            self.require_empty(Path(disk), overwrite_leftovers=True)
        if any((one.kind, one.name) == (wanted.kind, wanted.name) for one in self.made):
            raise Refused(f"there is {wanted.name} already", hint="backupd recover")
        real = tuple(self._disk(disk) for disk in wanted.disks)
        self.made.append(OnDisks(wanted.kind, wanted.name, real, wanted.run_id, whole=self.fails != verb))
        self._called(verb)

    def _remove(self, kind: HoldingKind, name: str, run_id: str, verb: str) -> None:
        self._called(verb)
        gone = [one for one in self.made if (one.kind, one.run_id) == (kind, run_id)]
        if gone and name in self.busy:
            raise SnapshotError(f"{name} is in use", hint="see what uses it")
        self.made = [one for one in self.made if one not in gone]

    def _disk(self, path: str) -> str:
        return self.aliases.get(path, path)

    def _called(self, verb: str) -> None:
        self.happened(verb)
        if verb == self.fails:
            raise SnapshotError(f"{verb} failed, as told", hint="none: it is a test")
