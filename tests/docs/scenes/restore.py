"""A run that was refused, as it is shown; and a new machine before the backups of the one that was lost."""

import shutil

from tests.docs.stage import Stage, host


def play(stage: Stage) -> None:
    with host(stage) as db1:
        db1.world.host.free_by_pv, free = dict.fromkeys(db1.world.host.free_by_pv, 0), db1.world.host.free_by_pv
        db1.runs("run", "nightly", "--run-id", "r1", status=5)
        db1.types("show", "latest")
        db1.world.host.free_by_pv = free
        db1.runs("run", "nightly", "--run-id", "r2")
    with host(stage, "new3") as new3:
        shutil.copytree(db1.world.vault, new3.world.vault, dirs_exist_ok=True)
        new3.types("catalogue", "rebuild", "--target", "vault")
