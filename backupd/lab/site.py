"""Where a lab's things lie, in the machine or on the host.

Knows: every path and name that disks, server, load and configuration share. Two labs on one kernel differ in
nothing but their site.
"""

from dataclasses import dataclass
from pathlib import Path

VOLUME = "data"
POOL = "pool"  # the thin pool that it is of, where it is of one


@dataclass(frozen=True, slots=True)
class LabSite:
    """One lab's names."""

    volume_group: str
    mount_point: Path  # of the volume
    runtime: Path  # sockets and logs; gone with the lab
    etc: Path  # backupd's configuration
    state: Path  # backupd's catalogue; a disk that is not the snapshotted one
    backups: Path  # the target: a folder of DIR outside
    socket: Path
    server_temporary: Path  # memory, or any folder that knows O_TMPFILE
    lvm_system: Path  # where lvmlocal.conf goes
    prefix: str  # of device-mapper names that we make ourselves
    port: int  # the server's, on 127.0.0.1; 0: it opens none

    @property
    def volume_path(self) -> Path:
        """The logical volume's device."""
        return Path("/dev") / self.volume_group / VOLUME

    @property
    def datadir(self) -> Path:
        """A folder on the volume, so that its root is free for `lost+found` and probe files."""
        return self.mount_point / "data"

    @property
    def configuration(self) -> Path:
        """What `backupd` reads."""
        return self.etc / "backupd.toml"

    @property
    def password_file(self) -> Path:
        """The backup account's password, for root's eyes."""
        return self.etc / "mysql-password"

    @property
    def catalogue(self) -> Path:
        """backupd's record, copied to DIR when the lab ends."""
        return self.state / "catalogue.sqlite"

    @property
    def server_configuration(self) -> Path:
        """The server's only option file."""
        return self.runtime / "server.cnf"

    @property
    def server_log(self) -> Path:
        """The server's error log."""
        return self.runtime / "server.log"

    @property
    def server_usr(self) -> Path:
        """Another distribution's `/usr`, where the server comes from one."""
        return self.runtime / "server-usr"

    @property
    def server_root(self) -> Path:
        """This tree with that `/usr`: what such a server sees."""
        return self.runtime / "server-root"

    @property
    def programs(self) -> Path:
        """First on PATH: what the lab puts in front of this root's own programs."""
        return self.runtime / "bin"

    @property
    def load_log(self) -> Path:
        """A line a second: see `lab.load`."""
        return self.runtime / "load.log"

    @property
    def heartbeat_log(self) -> Path:
        """A line for each heartbeat: see `lab.load`."""
        return self.runtime / "heartbeat.log"


def guest_site() -> LabSite:
    """The names inside the user-mode machine, the same in every lab."""
    return LabSite(
        volume_group="labvg",
        mount_point=Path("/srv/mysql"),
        runtime=Path("/run/lab"),
        etc=Path("/etc/backupd"),
        state=Path("/var/lib/backupd"),
        backups=Path("/backups"),
        socket=Path("/run/mysqld/mysqld.sock"),
        server_temporary=Path("/tmp"),  # noqa: S108 - memory of the machine's own
        lvm_system=Path("/etc/lvm"),
        prefix="lab",
        port=3306,
    )


def host_site(folder: Path, *, out: Path, pid: int) -> LabSite:
    """Names that no other lab and nothing of the host has; everything under `folder`."""
    return LabSite(
        volume_group=f"backupdlab{pid}",
        mount_point=folder / "volume",
        runtime=folder / "run",
        etc=folder / "etc",
        state=folder / "state",
        backups=out / "backups",
        socket=folder / "run" / "mysqld.sock",
        server_temporary=folder / "tmp",
        lvm_system=folder / "lvm",
        prefix=f"backupdlab{pid}",
        port=0,  # the host's own server may have it
    )
