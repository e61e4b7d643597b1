"""The disk of a COW area dies and is replaced; then the disks of that day are compared, and the best is entered."""

from textwrap import dedent

from backupd import wiring
from tests.docs.stage import Stage, host
from tests.story.probe_world import ProbeWorld
from tests.story.test_replaced_disk import OLD, TUNE, fast_on_sde


def play(stage: Stage) -> None:
    with host(stage) as db1:
        probing = ProbeWorld(db1.world)
        probing.disk.speed = fast_on_sde(db1.world)
        db1.patch.setattr(wiring, "instruments", lambda: probing.instruments)
        db1.patch.setattr(wiring, "_data_mount", lambda _host: probing.subject.find())
        text = dedent(db1.terminal.configuration.read_text())
        table = f'[jobs.nightly.snapshot]\nsize = "20%"\npvs = ["{OLD}"]  # /dev/sde on 2026-11-20\n'
        db1.terminal.configuration.write_text(f"{text}\n{table}")
        lvm = db1.world.host
        free = lvm.free_by_pv.pop("/dev/sde")
        lvm.missing.add(OLD)
        stage.shown("the disk has died", db1.runs("check", "nightly", status=5))
        lvm.missing.clear()
        lvm.free_by_pv["/dev/sde"] = free
        lvm.replace_disk("/dev/sde")
        stage.shown("another disk is in its place", db1.runs("check", "nightly", status=3))
        db1.runs("probe", "nightly", *TUNE)
        entered = db1.terminal.configuration.read_text().rpartition("[jobs.nightly.snapshot]")
        stage.shown("what was entered", "".join(entered[1:]))
