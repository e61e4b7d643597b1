"""A lab on this machine's own device mapper: loop devices, a volume group of its own, everything under one folder.

Knows: how to keep away from the machine's own disks (LVM sees our loop devices only, by a configuration of its own)
and servers (socket, datadir and mount points are ours). Only for who asks for it; needs root.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backupd.host.process import run, spawned
from backupd.lab import images, room, workbench
from backupd.lab.machine import DeadlinePassed
from backupd.lab.options import Init, LabOptions, ServerKind
from backupd.lab.plan import Plan, Purpose, plan_for
from backupd.lab.run import Say, out_folder
from backupd.lab.site import LabSite, host_site
from backupd.lab.sizes import Needs, needs_for
from backupd.report import words
from backupd.vocabulary.errors import CommandError, LabError

_QUICK_SECONDS = 60.0


def run_on_host(options: LabOptions, command: tuple[str, ...], *, say: Say) -> int:
    """Run the command beside a lab on this kernel; its exit status. Nothing of the lab is left afterwards.

    Raises:
        LabError: not root, no device mapper, too little room, or a part of the lab failed.
        DeadlinePassed: the command was ended at the deadline.
    """
    _require_host(options)
    deadline = time.monotonic() + options.deadline_seconds
    needs = needs_for(options.rows, deadline_seconds=options.deadline_seconds, spare_disks=options.spare_disks)
    with out_folder(options.out) as out, _folder(needs, say) as folder, ExitStack() as owed:
        site = host_site(folder, out=out, pid=os.getpid())
        for part in (site.runtime, site.state, site.server_temporary, site.lvm_system, site.backups):
            part.mkdir(parents=True, exist_ok=True)
        os.environ["LVM_SYSTEM_DIR"] = str(site.lvm_system)
        plan = plan_for(Purpose.RUN, options, command=command, python=sys.executable, out=out)
        try:
            raw = [owed.enter_context(_loop(path)) for path in images.make_blank(folder, plan.sizes)[:4]]
            spare = [owed.enter_context(_loop(path)) for path in images.make_spares(folder, plan.spare_disks)]
            prepared = plan_for(Purpose.PREPARE, options, command=(), python=sys.executable, out=out)
            workbench.prepare(site, prepared, raw, lambda _: None)
            return _work(site, plan, [*raw, *spare], deadline, say)
        except CommandError as error:
            raise LabError(error.message, hint=error.hint) from error


def _work(site: LabSite, plan: Plan, raw: Sequence[Path], deadline: float, say: Say) -> int:
    with workbench.working(site, plan, raw, lambda _: None) as spare:
        before = dict(os.environ), Path.cwd()
        home = site.state / "home"
        home.mkdir(exist_ok=True)
        workbench.become_the_operator(site, python=plan.python, home=home, spare_disks=spare)
        if spare:
            say(workbench.spare_sentence(spare))
        try:
            return _command(plan, max(0.0, deadline - time.monotonic()))
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            workbench.bring_out(site, Path(plan.out))


def _command(plan: Plan, seconds: float) -> int:
    with spawned(plan.command, stdout=None, stderr=None) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired as late:
            raise DeadlinePassed("the lab's deadline passed", hint="allow more time with --deadline SECONDS") from late
    return 128 - status if status < 0 else status


def _require_host(options: LabOptions) -> None:
    if options.server is not ServerKind.MARIADB_10:
        raise LabError(
            f"--kernel host runs this machine's own server, not {options.server}",
            hint="omit --server, or use --kernel uml",
        )
    if options.init is not Init.SCRIPT:
        raise LabError(f"--kernel host has no first process of its own: not {options.init}", hint="use --kernel uml")
    room.require_packages(options)
    if os.geteuid() != 0:
        raise LabError("--kernel host needs root", hint="use sudo, or --kernel uml, which does not")
    if not Path("/dev/mapper/control").exists():
        raise LabError("this kernel has no device mapper", hint="modprobe dm-mod, or use --kernel uml")


@contextmanager
def _folder(needs: Needs, say: Say) -> Iterator[Path]:
    """A folder with room for the disks, gone at the end."""
    parent = Path(tempfile.gettempdir())
    free = shutil.disk_usage(parent).free
    if free < needs.disks:
        raise LabError(
            f"not enough space in {parent}: the lab's disks need {words.size(needs.disks)}, {words.size(free)} are"
            " free",
            hint="set TMPDIR to a folder with more space, or ask for fewer --rows or a shorter --deadline",
        )
    say(f"needs up to {words.size(needs.disks)} of disks in {parent}; uses this machine's own device mapper")
    with tempfile.TemporaryDirectory(prefix="backupd-lab-", dir=parent) as folder:
        yield Path(folder).resolve()


@contextmanager
def _loop(image: Path) -> Iterator[Path]:
    device = run(["losetup", "--find", "--show", str(image)], timeout_seconds=_QUICK_SECONDS).stdout.strip()
    try:
        yield Path(device)
    finally:
        run(["losetup", "--detach", device], timeout_seconds=_QUICK_SECONDS, must_finish=True)
