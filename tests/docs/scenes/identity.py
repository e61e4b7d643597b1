"""A catalogue that was copied to another host, and what that host is told."""

from backupd.vocabulary.identity import Machine
from tests.docs.stage import Stage, host


def play(stage: Stage) -> None:
    with host(stage, "db-a") as there:
        there.runs("run", "nightly", "--run-id", "r1")
        there.world.machine = Machine("db-b", {"machine-id": "b2"}, boot_id="first boot")
        there.patch.setattr("backupd.vocabulary.identity.new_name", lambda name: f"{name}-59983028")
        there.types("identity", "show")
        there.types("recover", status=5)
        there.types("identity", "new", "--yes")
