"""Machines whose server is real and whose volumes are not: what a backup needs of a database host without LVM.

Knows: the server in its container, the machine's own catalogue and key, and that a snapshot is a copy of the datadir
that is taken while everything in the container stands still. All else is as the stories have it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backupd.config import EncryptionConfig, LockConfig, SettleConfig
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.counting import ServerCounters
from backupd.mysql.locks import ServerLock
from backupd.mysql.server import MysqlServer
from backupd.operations.tools import Tools
from backupd.targets import Target
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import RunDetails
from tests.docker.containers import ServerContainer
from tests.fakes.lvm_host import LvmHost
from tests.story.world import World

PAGE = 16 << 10  # bytes: InnoDB's own


@dataclass
class StillVolumes(LvmHost):
    """Takes a snapshot while the server stands still; the disk under the next one has lost the `lost` pages."""

    server: ServerContainer | None = None
    lost: dict[str, int] = field(default_factory=dict)  # by file: the number of a page

    @contextmanager
    def call(self, verb: str) -> Iterator[None]:
        with ExitStack() as still:
            if verb == "create" and self.server is not None:
                still.enter_context(self.server.frozen())
            with super().call(verb):
                yield
            if verb == "create":
                self._lose()

    def _lose(self) -> None:
        (snapshot,) = self.lvs.values()
        assert snapshot.content is not None
        for name, page in self.lost.items():
            with (snapshot.content / name).open("r+b") as file:
                file.seek(page * PAGE)
                file.write(b"\xff" * PAGE)
        self.lost.clear()


class DatabaseHost(World):
    """A machine with this name, this server and one target."""

    def __init__(self, base: Path, name: str, server: ServerContainer) -> None:
        self._begun = False
        base.mkdir()
        self.server, self.volumes = server, StillVolumes(server=server, _store=TemporaryDirectory(dir=base))
        super().__init__(base, host=self.volumes, machine=Machine(name, {"machine-id": name}, boot_id="first boot"))
        self.stored_on: Target = self.vault_target
        self.volumes.folder = server.datadir
        with server.session() as session:  # it is the session's: another test's machine may have had a run of this name
            session.execute("DROP DATABASE IF EXISTS backupd_canary")
        self._begun = True

    @property
    def mount_root(self) -> Path:
        """A folder of the world's own while that makes its files: they are no server's."""
        return self.server.datadir if self._begun else super().mount_root

    @property
    def target(self) -> Target:
        return self.stored_on

    def tools_of(self, machine: str) -> Tools:
        connect = self.server.connect()
        return replace(
            super().tools_of(machine),
            server=MysqlServer(connect),
            lock=ServerLock(connect, LockConfig()),
            canary=MysqlCanary(connect),
            work_counters=ServerCounters(connect),
            probe=None,
        )

    def store(self, run_id: str, *, recipient: str) -> RunDetails:
        """A backup that only this recipient can read, as `backupd run` makes it."""
        job = self.job(
            targets=(self.target.name,),
            encryption=EncryptionConfig(recipients=(recipient,)),
            settle=SettleConfig(enabled=False),
        )
        return self.back_up(run_id, job=job)
