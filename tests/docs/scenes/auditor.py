"""A year's evidence: it is written and signed, and checked by somebody who has the public key alone."""

import subprocess
from contextlib import chdir, suppress
from pathlib import Path

from backupd.operations.restore.on_record import Deed
from backupd.vocabulary.errors import ServerError
from tests.cli.test_report_evidence import BROKEN, deed, drill
from tests.docs.stage import Host, Stage, host

_ALLOWED = "echo \"backupd $(cut -d' ' -f1,2 evidence_key.pub)\" > allowed_signers"
_VERIFY = (
    "ssh-keygen -Y verify -f allowed_signers -I backupd -n backupd-evidence -s evidence.html.sig < evidence{}.html"
)


def play(stage: Stage) -> None:
    with host(stage) as db1, chdir(db1.world.base):
        _year(db1)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "evidence_key"], check=True)
        settings = db1.terminal.configuration
        settings.write_text(settings.read_text().replace("canary = true", 'canary = true\nrestore_within = "7s"'))
        db1.configure(f'[evidence]\nsigning_key = "{db1.world.base}/evidence_key"')
        names = ("--html", "evidence.html", "--csv", "evidence.csv", "--output", "evidence.txt")
        db1.types("report", "--evidence", "--since", "365d", *names)
        stage.typed("cat evidence.txt", Path("evidence.txt").read_text())
        _shell(_ALLOWED)
        stage.typed(_VERIFY.format(""), _shell(_VERIFY.format("")))
        Path("evidence-changed.html").write_bytes(Path("evidence.html").read_bytes().replace(b"db1", b"db2", 1))
        stage.typed(_VERIFY.format("-changed"), _shell(_VERIFY.format("-changed")))


def _year(db1: Host) -> None:
    """A backup, one that failed and a good one after it; a verification, two drills, two restores and a clone."""
    world = db1.world
    world.back_up("r1")
    with world.catalogue() as catalogue, suppress(ServerError), catalogue.open_run("nightly", "db1", run_id="r2"):
        raise ServerError("the server went away", hint="")
    world.back_up("r3")
    db1.runs("verify", "r1")
    with world.catalogue() as catalogue:
        drill(world, catalogue, ok=False)
        deed(catalogue, Deed.RESTORE, "/srv/back", error=BROKEN)
        deed(catalogue, Deed.RESTORE, "/srv/other")
        deed(catalogue, Deed.CLONE, "/srv/clone")
        drill(world, catalogue, ok=True, later=1)


def _shell(line: str) -> str:
    return subprocess.run(
        line, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout
