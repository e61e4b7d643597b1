"""`backupd` as it is typed, in a process of its own, on a host of fakes: a real catalogue, real folders, no server.

    python -m tests.fakes.typed FOLDER --config FILE COMMAND…

Everything is what the command does but what needs a server or LVM: these are made anew in each process, in a folder
below `tempfile`'s that is gone when the command has ended. Each job, whose
name begins with "job", has a volume group of its own. Of a drill only what the server would be asked is left out.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from backupd import wiring
from backupd.cli.main import main
from backupd.host import machine_ids
from backupd.operations.restore import drill
from backupd.operations.tools import Places, Tools
from backupd.vocabulary.records import Check
from tests.fakes.lvm_host import LvmHost, striped_volume
from tests.story.world import World


@dataclass
class Typed(World):
    """A host whose catalogue, folders and target are those of every other command that is typed there."""

    shared: Path = field(kw_only=True)

    @property
    def vault(self) -> Path:
        return self.shared / "vault"

    @property
    def places(self) -> Places:
        folder = self.shared
        return Places(run=folder / "run", staging=folder / "staging", catalogue=folder / "catalogue.sqlite", spools=())

    def tools_of(self, machine: str) -> Tools:
        return replace(super().tools_of(machine), targets=(self.target.of_machine(machine),))


@contextmanager
def on_fakes(world: Typed) -> Iterator[None]:
    """Within the block this process's commands find these tools."""
    good = (Check("tables", ok=True, expected="3", found="3"),)
    with (
        patch.object(wiring, "tools", lambda _configuration, _job, machine: world.tools_of(machine)),
        patch.object(wiring, "host_tools", lambda _configuration, machine: world.tools_of(machine)),
        patch.object(wiring, "target", lambda _configuration, _name, machine: world.target.of_machine(machine)),
        patch.object(drill, "_ask_the_server", lambda _copy, _telling: (good, None)),
    ):
        yield


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="host-") as made:
        folder, *typed = sys.argv[1:]
        of_the_job = LvmHost(striped_volume(vg="-".join(["vg", *re.findall(r"job\w+", " ".join(typed))])))
        host = Typed(Path(made), of_the_job, machine=machine_ids.this_machine(), shared=Path(folder))
        sys.argv = ["backupd", *typed]
        with on_fakes(host):
            main()
