"""What a person may ask of a lab, and the defaults.

Knows: names, bounds and how they travel as JSON.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backupd.vocabulary.errors import UsageError

DEFAULT_ROWS = 400_000
DEFAULT_DEADLINE_SECONDS = 900.0
MOST_SPARE_DISKS = 2  # the machine takes seven disks, of which the lab has five


class DiskModel(StrEnum):
    """How the disks behave. Only `hdd` has a queue and makes reads cost something."""

    HDD = "hdd"
    SSD = "ssd"
    DELAY = "delay"


class LabLayout(StrEnum):
    """How the volume is on its three disks."""

    STRIPED = "striped"
    LINEAR = "linear"


class Filesystem(StrEnum):
    """What the volume is formatted with."""

    XFS = "xfs"
    EXT4 = "ext4"


class Kernel(StrEnum):
    """Whose device mapper: a user-mode kernel's of our own, or this machine's."""

    UML = "uml"  # the newest that Debian has
    UML_INSTALLED = "uml-installed"  # the one of this machine's package: another rhythm, and slower
    HOST = "host"


class Init(StrEnum):
    """The first process of the machine."""

    SCRIPT = "script"  # the lab's own
    SYSTEMD = "systemd"  # this root's; under it runs what the lab needs, and no unit of this root


class ServerKind(StrEnum):
    """Which server runs in the lab, and which a drill starts there."""

    MARIADB_10 = "mariadb-10.11"  # Debian 12's, this root's own
    MARIADB_11 = "mariadb-11"  # Debian 13's
    MYSQL_9 = "mysql-9"  # Debian unstable's


@dataclass(frozen=True, slots=True)
class Load:
    """How the server is kept busy: not at all, as fast as it can, or at a rate (transactions a second)."""

    kind: str  # none | closed | rate
    rate: int = 0

    @classmethod
    def parse(cls, text: str) -> "Load":
        """`none`, `closed`, or a whole number of transactions a second.

        Raises:
            UsageError: anything else.
        """
        if text in ("none", "closed"):
            return cls(text)
        if text.isascii() and text.isdecimal() and int(text) > 0:
            return cls("rate", int(text))
        raise UsageError(
            f"no such load: {text!r}", hint="--load is none, closed, or a whole number of transactions a second"
        )

    def __str__(self) -> str:
        return str(self.rate) if self.kind == "rate" else self.kind


CLOSED = Load("closed")


@dataclass(frozen=True, slots=True)
class LabOptions:
    """One lab as asked for. `out` None means a temporary folder, gone when the lab ends.

    Raises:
        UsageError: on construction, when rows, the deadline or the spare disks are out of bounds.
    """

    disks: DiskModel = DiskModel.HDD
    layout: LabLayout = LabLayout.STRIPED
    filesystem: Filesystem = Filesystem.XFS
    rows: int = DEFAULT_ROWS
    load: Load = CLOSED
    kernel: Kernel = Kernel.UML
    out: Path | None = None
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
    thin: bool = False  # the volume is one of a thin pool; the pool's data then lies as `layout` says
    server: ServerKind = ServerKind.MARIADB_10
    init: Init = Init.SCRIPT
    spare_disks: int = 0  # of the same model, empty, in no volume group, for the command to do with as it likes

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise UsageError(f"a table of {self.rows} rows cannot be", hint="--rows is 1 or more")
        if not self.deadline_seconds > 0:
            raise UsageError(
                f"a deadline of {self.deadline_seconds:g} s has already passed", hint="--deadline is above 0"
            )
        if not 0 <= self.spare_disks <= MOST_SPARE_DISKS:
            raise UsageError(
                f"{self.spare_disks} spare disks cannot be", hint=f"--spare-disks is 0 to {MOST_SPARE_DISKS}"
            )
