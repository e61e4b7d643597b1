"""The disk of a COW area dies, and is replaced by another one."""

from tests.docs.stage import Stage, host
from tests.fakes.lvm_host import pv_uuid

_OLD = pv_uuid("/dev/sde")


def play(stage: Stage) -> None:
    with host(stage) as db1:
        db1.configure(f'[jobs.nightly.snapshot]\npvs = ["{_OLD}"]')
        lvm = db1.world.host
        lvm.free_by_pv.pop("/dev/sde")
        lvm.missing.add(_OLD)
        stage.call("vgreduce", "vgreduce")
        stage.shown("the disk has died", db1.runs("check", "nightly", status=5))
        lvm.missing.clear()
        lvm.free_by_pv["/dev/sde"] = 255
        lvm.replace_disk("/dev/sde")
        stage.shown("another disk is in its place", db1.runs("check", "nightly", status=3))
