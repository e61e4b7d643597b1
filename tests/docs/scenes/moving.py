"""Two backups move to another target, and the old one is pruned by the last rule that it had."""

from dataclasses import replace

from backupd import wiring
from backupd.config import Configuration, JobConfig
from backupd.operations.tools import Tools
from tests.docs.stage import Stage, host

_RULE = "[jobs.nightly.retention]\nkeep_last = {}"
_real = wiring.target


def play(stage: Stage) -> None:
    with host(stage) as db1:

        def tools(configuration: Configuration, job: JobConfig, machine: str) -> Tools:
            targets = tuple(_real(configuration, name, machine) for name in job.targets)
            return replace(db1.world.tools_of(machine), targets=targets)

        db1.patch.setattr(wiring, "target", _real)
        db1.patch.setattr(wiring, "tools", tools)
        base = db1.terminal.configuration.read_text().partition("[targets.vault]")[0]

        def configure(targets: str, keep_last: int) -> None:
            places = "".join(
                f'[targets.{name}]\ntype = "directory"\npath = "{db1.world.base / name}"\n' for name in ("old", "new")
            )
            job = f'[jobs.nightly]\nhost = "db1"\ntargets = [{targets}]\n{_RULE.format(keep_last)}\n'
            gate = "[jobs.nightly.settle]\nwindows = 1\nbaseline_windows = 1\n"
            db1.terminal.configuration.write_text(base + places + job + gate)

        for name in ("old", "new"):
            (db1.world.base / name).mkdir()
        configure('"old"', 3)
        for run_id in ("20261123-030000-1a2b", "20261124-030000-3c4d"):
            db1.runs("run", "nightly", "--run-id", run_id)
        configure('"old", "new"', 3)
        db1.types("copy", "--missing", "--from", "old", "--to", "new")
        configure('"new"', 1)
        db1.types("prune", "--dry-run")
