"""Stage 2 of the lab's machine: the story inside the user-mode kernel.

Knows: what the machine is for (a plan), and how the outside learns of it (the control folder).
`guest-init.sh` has hidden the outside already.
Started as `python -m backupd.lab.guest PLAN`; when it ends, the machine is switched off.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

from backupd.host.process import run
from backupd.lab import disks, server, workbench
from backupd.lab.foreground import run_command, run_on_terminal
from backupd.lab.plan import GuestControl, Plan, Purpose, write_at_once
from backupd.lab.site import LabSite, guest_site
from backupd.vocabulary.errors import BackupdError, LabError

RAW = tuple(Path(f"/dev/ubd{letter}") for letter in "bcde")
SCRATCH = Path("/dev/ubdf")
SPARE = (Path("/dev/ubdg"), Path("/dev/ubdh"))
OUT = Path("/run/lab/out")
TERMINAL = "/dev/tty0"  # con0 of the kernel's command line
_QUICK_SECONDS = 60.0


def main(words: list[str]) -> int:
    """Do what the plan says; 0 when the lab itself did not fail, whatever the command did."""
    control = GuestControl(Path(words[0]).parent)
    try:
        plan = Plan.from_json(control.plan.read_text(encoding="utf-8"))
        site = guest_site()
        site.runtime.mkdir(parents=True, exist_ok=True)
        run(["modprobe", "-a", "dm-mod", "dm-snapshot", "loop"], timeout_seconds=_QUICK_SECONDS)
        if plan.has_udev:  # it has not seen what was there before it; of terminals there are a hundred
            run(["udevadm", "trigger", "--settle", "--subsystem-match=block"], timeout_seconds=_QUICK_SECONDS)
        else:
            workbench.without_udev()
        if plan.server_usr:
            mount_outside(plan.server_usr, site.server_usr)
        _reached(control, "stage 2")
        if plan.purpose is Purpose.PREPARE:
            _prepare(control, plan, site)
        else:
            _work(control, plan, site)
    except BackupdError as error:
        print(f"lab: {error.message}\nlab: hint: {error.hint}", flush=True)  # noqa: T201 - the console
        write_at_once(control.failure, json.dumps({"message": error.message, "hint": error.hint}))
        return 1
    return 0


def _prepare(control: GuestControl, plan: Plan, site: LabSite) -> None:
    run(["mkfs.ext4", "-q", "-E", "nodiscard", str(SCRATCH)], timeout_seconds=_QUICK_SECONDS)
    workbench.prepare(site, plan, RAW, lambda name: _reached(control, name))
    write_at_once(control.status, "0")


def _work(control: GuestControl, plan: Plan, site: LabSite) -> None:
    """The command's status is told while everything still stands: the outside then ends the machine as it is."""
    mount_outside(plan.out, OUT)
    (OUT / "backups").mkdir(exist_ok=True)
    mount_outside(f"{plan.out}/backups", site.backups)
    server.point_clients_at(site, Path("/etc/mysql/my.cnf"))
    raw = (*RAW, *SPARE[: plan.spare_disks])
    with (
        disks.mounted(SCRATCH, site.state),
        workbench.working(site, plan, raw, lambda name: _reached(control, name)) as spare,
    ):
        workbench.become_the_operator(site, python=plan.python, home=Path("/root"), spare_disks=spare)
        if spare:
            with control.stderr.open("a", encoding="utf-8") as said:
                said.write(f"lab: {workbench.spare_sentence(spare)}\n")
        write_at_once(control.started, "")
        if plan.purpose is Purpose.SHELL:
            status = run_on_terminal(plan.command, TERMINAL)
        else:
            status = run_command(plan.command, stdout=control.stdout, stderr=control.stderr)
        _reached(control, "command ended")
        workbench.bring_out(site, OUT)
        write_at_once(control.status, str(status))


def mount_outside(folder: str, at: Path) -> None:
    """The outside's folder is at `at`, writable. By system call: mount(8) would cut a path at its first comma.

    Raises:
        LabError: the kernel refused.
    """
    at.mkdir(parents=True, exist_ok=True)
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(b"outside", os.fsencode(at), b"hostfs", 0, os.fsencode(folder)) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise LabError(f"the machine cannot mount {folder}: {reason}", hint="it must be a folder that you may write")


def _reached(control: GuestControl, name: str) -> None:
    """A milestone: seconds on the machine's own clock, for whoever wonders where the time goes."""
    with control.milestones.open("a", encoding="utf-8") as file:
        file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {name}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
