"""A volume group on disks that a person named: made with our tags, and gone without a trace.

The group is no part of LVM's archive in /etc/lvm: it lives for minutes, and LVM keeps ten files of each group for good.
No command is given `--yes` or `--force` before it is proven that everything which it will remove is ours.
"""

from collections.abc import Sequence

from backupd.lvm import Mark, report, run_of_tags
from backupd.lvm.disk_marks import pv_uuid, run_of_pv
from backupd.lvm.refusals import carry_out
from backupd.lvm.report import LabelledDisk
from backupd.lvm.snapshots import reported
from backupd.vocabulary.errors import SnapshotError

_NO_ARCHIVE = ("--config", "backup { backup=0 archive=0 }")  # vgremove 2.03.16 knows no --autobackup


def run_of(pv: LabelledDisk, machine: str) -> str | None:
    """The machine's run whose PV it is: in a group by its tags, in none by its own uuid; None for anybody else's."""
    return run_of_tags(pv.vg_tags, machine) if pv.vg else run_of_pv(pv.uuid, machine)


def make(vg: str, disks: Sequence[str], mark: Mark) -> None:
    """The disks, which are empty, are PVs with our mark, and then a group with our tags.

    Raises:
        SnapshotError: LVM would not; what it did before is for `remove`.
    """
    for place, disk in enumerate(disks):
        carry_out(pv_argv(disk, mark, place), what=f"{disk} could not be made a PV", hint="see `lsblk` and `dmesg`")
    hint = "disks of one group need sectors of the same size: lsblk -o name,log-sec,phy-sec"
    carry_out(group_argv(vg, disks, mark), what=f"cannot create volume group {vg}", hint=hint)


def remove(vg: str, pvs: Sequence[LabelledDisk], mark: Mark) -> None:
    """The group is gone, if it is that run's; `pvs` is LVM's report of now.

    Raises:
        SnapshotError: it holds a volume that is not that run's, or LVM failed.
    """
    if not any(pv.vg == vg and run_of(pv, mark.machine) == mark.run_id for pv in pvs):
        return
    strangers = [lv.name for lv in _volumes(vg) if lv.mark != mark]
    if strangers:
        raise SnapshotError(
            f"volume group {vg} is not removed: {', '.join(strangers)} in it has no tag of run {mark.run_id}",
            hint=f"if nobody needs it: lvremove {vg}/{strangers[0]}, then `backupd recover`",
        )
    hint = f"see what uses its volumes: lsof, `dmsetup ls --tree`; then: vgremove {vg}"
    carry_out(["vgremove", "--yes", *_NO_ARCHIVE, "--", vg], what=f"volume group {vg} could not be removed", hint=hint)


def unlabel(pvs: Sequence[LabelledDisk], mark: Mark) -> None:
    """No disk that is in no group bears a label of that run any more; `pvs` is LVM's report of now.

    Raises:
        SnapshotError: LVM failed.
    """
    for pv in pvs:
        if not pv.vg and run_of(pv, mark.machine) == mark.run_id:
            hint = f"it has nothing but backupd's label: pvremove {pv.path}"
            argv = ["pvremove", *_NO_ARCHIVE, "--", pv.path]
            carry_out(argv, what=f"{pv.path} could not be emptied again", hint=hint)


def pv_argv(disk: str, mark: Mark, place: int) -> list[str]:
    """The command that labels a disk. Without `--yes` it refuses one that holds something."""
    uuid = report.dashed(pv_uuid(mark, place))
    return ["pvcreate", *_NO_ARCHIVE, "--uuid", uuid, "--norestorefile", "--", disk]


def group_argv(vg: str, disks: Sequence[str], mark: Mark) -> list[str]:
    """The command that makes the group, tagged from its first instant."""
    return ["vgcreate", *_NO_ARCHIVE, *mark.tag_words, "--", vg, *disks]


def _volumes(vg: str) -> tuple[report.TaggedVolume, ...]:
    return report.parse_tagged(reported(report.volumes_argv(vg=vg)))
