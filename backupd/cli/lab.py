"""`backupd lab …`: a machine with real LVM and a real server under load, from one command.

Knows: options, and the exit statuses of the lab itself (125 failed, 124 deadline).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from backupd.cli.output import say
from backupd.host.signals import cancellable
from backupd.lab.options import (
    DEFAULT_DEADLINE_SECONDS,
    DEFAULT_ROWS,
    DiskModel,
    Filesystem,
    Init,
    Kernel,
    LabLayout,
    LabOptions,
    Load,
    ServerKind,
)
from backupd.vocabulary.errors import LabError

LAB_FAILED = 125
DEADLINE_PASSED = 124

app = typer.Typer(help="A machine with real LVM and a real server under load.", no_args_is_help=True)

DisksOption = Annotated[DiskModel, typer.Option("--disks", help="Type of disk to imitate.")]
LayoutOption = Annotated[LabLayout, typer.Option("--layout", help="Layout of the volume on its three disks.")]
FilesystemOption = Annotated[Filesystem, typer.Option("--filesystem", help="File system of the volume.")]
RowsOption = Annotated[int, typer.Option("--rows", help="Rows in the InnoDB table.")]
LoadOption = Annotated[str, typer.Option("--load", metavar="none|closed|RATE", help="RATE: transactions per second.")]
ThinOption = Annotated[bool, typer.Option("--thin", help="Make the volume thin, in a thin pool.")]
ServerOption = Annotated[
    ServerKind, typer.Option("--server", help="Database server; downloaded once from its distribution.")
]
InitOption = Annotated[Init, typer.Option("--init", help="The machine's init process.")]
SpareDisksOption = Annotated[int, typer.Option("--spare-disks", help="Number of additional empty disks.")]
KernelOption = Annotated[
    Kernel,
    typer.Option(
        "--kernel",
        help=(
            "uml: the newest user-mode kernel that Debian has; uml-installed: the installed one; host: no virtual"
            " machine, this host's own device mapper."
        ),
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help=("Folder for backups, catalogue and logs. [default: temporary]")),
]
DeadlineOption = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", help="Stop the machine after this time.")
]


@app.command("run", context_settings={"allow_interspersed_args": False})
def run_command(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…")],
    disks: DisksOption = DiskModel.HDD,
    layout: LayoutOption = LabLayout.STRIPED,
    filesystem: FilesystemOption = Filesystem.XFS,
    rows: RowsOption = DEFAULT_ROWS,
    load: LoadOption = "closed",
    kernel: KernelOption = Kernel.UML,
    out: OutOption = None,
    deadline: DeadlineOption = DEFAULT_DEADLINE_SECONDS,
    thin: ThinOption = False,
    server: ServerOption = ServerKind.MARIADB_10,
    init: InitOption = Init.SCRIPT,
    spare_disks: SpareDisksOption = 0,
) -> None:
    """Start a machine, run COMMAND in it as root, end with its exit status (125: the lab failed, 124: timed out)."""
    from backupd.lab import run as lab

    options = LabOptions(
        disks, layout, filesystem, rows, Load.parse(load), kernel, out, deadline, thin, server, init, spare_disks
    )
    with cancellable(), _lab_statuses():
        raise typer.Exit(lab.run_lab(options, tuple(command), say=_say))


@app.command("shell")
def shell_command(
    disks: DisksOption = DiskModel.HDD,
    layout: LayoutOption = LabLayout.STRIPED,
    filesystem: FilesystemOption = Filesystem.XFS,
    rows: RowsOption = DEFAULT_ROWS,
    load: LoadOption = "closed",
    out: OutOption = None,
    deadline: DeadlineOption = DEFAULT_DEADLINE_SECONDS,
    thin: ThinOption = False,
    server: ServerOption = ServerKind.MARIADB_10,
    init: InitOption = Init.SCRIPT,
    spare_disks: SpareDisksOption = 0,
) -> None:
    """Start a machine with a prompt."""
    from backupd.lab import run as lab

    options = LabOptions(
        disks, layout, filesystem, rows, Load.parse(load), Kernel.UML, out, deadline, thin, server, init, spare_disks
    )
    with cancellable(), _lab_statuses():
        raise typer.Exit(lab.shell(options, say=_say))


@app.command("clean")
def clean_command() -> None:
    """Remove prepared disks, downloaded servers, and leftovers of labs that died."""
    from backupd.lab import run as lab

    for name in lab.clean():
        say(f"removed {name}")


@contextmanager
def _lab_statuses() -> Iterator[None]:
    """The lab's own failures have statuses that no backupd command inside it uses."""
    from backupd.lab.machine import DeadlinePassed

    try:
        yield
    except LabError as error:
        _say(error.message)
        if error.hint:
            _say(f"hint: {error.hint}")
        raise typer.Exit(DEADLINE_PASSED if isinstance(error, DeadlinePassed) else LAB_FAILED) from error


def _say(sentence: str) -> None:
    """To stderr: stdout is the command's."""
    sys.stderr.write(f"lab: {sentence}\n")
    sys.stderr.flush()
