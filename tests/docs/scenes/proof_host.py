"""What a proof host says of three copies, one of them damaged, and what the database host says of another's proofs.

A drill's findings are made up: nothing is restored.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backupd.mysql import server_programs
from backupd.targets import BackupSource
from backupd.vocabulary.records import Drill
from backupd.vocabulary.servers import Flavour
from tests.cli.test_prove_command import Drills
from tests.docs.stage import Host, Stage, host
from tests.signers import signer
from tests.story.test_proof_hosts import HOST, drilled, leave

_CHECK = """
[prove.checks.orders]
job = "nightly"
machine = "db1-0a1b2c3d"
sql = "SELECT COUNT(*) FROM shop.orders"
at_least = 1000
"""
_INSTALLED = "10.11.19-MariaDB-0+deb12u1"


class _Damaged(Drills):
    """The copy of the run r2 has lost a table."""

    def __call__(self, sources: Sequence[BackupSource], tools: object, **how: Any) -> Drill:
        self.ok = sources[0].run_id != "r2"
        return super().__call__(sources, tools, **how)


def play(stage: Stage) -> None:
    with host(stage, "db2") as db2:
        _prove(db2)
    with host(stage) as db1:
        db1.world.back_up("r1")
        db1.configure(f'[proofs]\nsigners = ["{HOST.public}"]')
        leave(db1.world, drilled(), by=signer())
        db1.types("catalogue", "proofs")


def _prove(db2: Host) -> None:
    db2.patch.setattr("backupd.operations.restore.proof_host.drill", _Damaged())
    db2.patch.setattr(server_programs, "_programs", lambda _flavour, _folders: [("mariadbd", ()), ("mysqld", ())])
    db2.patch.setattr(server_programs, "_version", lambda *_asked: (Flavour.MARIADB, _INSTALLED, (10, 11, 19)))
    for run_id in ("r1", "r2"):
        db2.world.back_up(run_id)
    facts = db2.world.database.facts
    db2.world.database.facts = replace(facts, version="11.8.3-MariaDB", version_number=(11, 8, 3))
    db2.world.back_up("r3")
    db2.types("prove", "--all", status=9)
    db2.configure(_CHECK)
    db2.types("prove", status=9)
