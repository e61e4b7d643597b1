"""What the outside asks of a machine, as one JSON document in the control folder, and what comes back beside it.

Knows: the names in the control folder, which is all that the two sides share.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from backupd.lab.options import DiskModel, Filesystem, Init, LabLayout, LabOptions, Load, ServerKind
from backupd.lab.sizes import Sizes, sizes_for


class Purpose(StrEnum):
    """Why a machine is started."""

    PREPARE = "prepare"  # make volume, file system, server and rows; shut down cleanly
    RUN = "run"  # one command under load
    SHELL = "shell"  # a person under load


@dataclass(frozen=True, slots=True)
class Plan:
    """One machine's work. `out` is a folder outside; the machine mounts it."""

    purpose: Purpose
    disks: DiskModel
    layout: LabLayout
    filesystem: Filesystem
    rows: int
    load: Load
    command: tuple[str, ...]
    python: str
    out: str
    thin: bool = False
    server: ServerKind = ServerKind.MARIADB_10
    init: Init = Init.SCRIPT
    spare_disks: int = 0
    server_usr: str = ""  # a folder outside: another distribution's `/usr`, which the machine mounts

    @property
    def sizes(self) -> Sizes:
        """The disks' sizes follow from the rows."""
        return sizes_for(self.rows)

    @property
    def has_udev(self) -> bool:
        """As on a host of today, udev makes the device nodes and looks at every new device; it comes with systemd."""
        return self.init is Init.SYSTEMD

    def to_json(self) -> str:
        """The document; `from_json` is its inverse."""
        return json.dumps({**asdict(self), "load": str(self.load)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        return cls(
            purpose=Purpose(raw["purpose"]),
            disks=DiskModel(raw["disks"]),
            layout=LabLayout(raw["layout"]),
            filesystem=Filesystem(raw["filesystem"]),
            rows=raw["rows"],
            load=Load.parse(raw["load"]),
            command=tuple(raw["command"]),
            python=raw["python"],
            out=raw["out"],
            thin=raw["thin"],
            server=ServerKind(raw["server"]),
            init=Init(raw["init"]),
            spare_disks=raw["spare_disks"],
            server_usr=raw["server_usr"],
        )


def plan_for(purpose: Purpose, options: LabOptions, *, command: tuple[str, ...], python: str, out: Path) -> Plan:
    """A plan; disks are always `ssd` while they are prepared, since what is on them does not depend on their speed.

    Spare disks hold nothing, so there is nothing about them to prepare.
    """
    return Plan(
        purpose=purpose,
        disks=DiskModel.SSD if purpose is Purpose.PREPARE else options.disks,
        layout=options.layout,
        filesystem=options.filesystem,
        rows=options.rows,
        load=options.load,
        command=command,
        python=python,
        out=str(out),
        thin=options.thin,
        server=options.server,
        init=Init.SCRIPT if purpose is Purpose.PREPARE else options.init,
        spare_disks=0 if purpose is Purpose.PREPARE else options.spare_disks,
    )


@dataclass(frozen=True, slots=True)
class GuestControl:
    """The control folder: a handful of files that both sides see at once (hostfs writes through)."""

    folder: Path

    @property
    def plan(self) -> Path:
        """Outside to inside: the plan."""
        return self.folder / "plan.json"

    @property
    def stdout(self) -> Path:
        """Inside to outside, growing: what the command printed."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """Inside to outside, growing."""
        return self.folder / "stderr"

    @property
    def started(self) -> Path:
        """Exists from just before the command starts: from then on a machine is never tried again."""
        return self.folder / "started"

    @property
    def milestones(self) -> Path:
        """Inside to outside, growing: `SECONDS NAME`, seconds since the kernel started."""
        return self.folder / "milestones"

    @property
    def status(self) -> Path:
        """Inside to outside, last of all and at once: the exit status as a number."""
        return self.folder / "status"

    @property
    def failure(self) -> Path:
        """Inside to outside: why the lab itself failed, fact and hint as JSON."""
        return self.folder / "failure.json"


def write_at_once(path: Path, text: str) -> None:
    """The file exists only when it is whole: the other side polls for it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)
