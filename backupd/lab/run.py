"""One lab in a user-mode kernel, read aloud from outside: prepare disks once, copy them, start a machine, carry its
output, bring its status home.

Knows: deadlines, when a machine may be tried again, temporary folders.
"""

import contextlib
import fcntl
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from backupd.lab import images, kernels, room, roots
from backupd.lab.kernels import UserModeKernel
from backupd.lab.machine import DeadlinePassed, Hardware, LabMachine, booted, furnish
from backupd.lab.mconsole import tell_what_is_waited_for
from backupd.lab.options import Kernel, LabOptions
from backupd.lab.plan import GuestControl, Plan, Purpose, plan_for
from backupd.lab.processor import one_processor
from backupd.lab.sizes import needs_for, sizes_for
from backupd.lab.terminal import Relay, raw
from backupd.vocabulary.errors import LabError, UsageError

Say = Callable[[str], None]

_PREFIX, _LOCK = "backupd-lab-", "lock"
_LOOK_SECONDS = 0.05
_HUNG_SECONDS = 60.0  # without a milestone; the slowest one known takes 10 s on a busy machine
_ROWS_A_SECOND = 2000  # the least that preparing was seen to write
_ATTEMPTS = 2  # one hang in about 25 boots was seen


class MachineHung(LabError):
    """The machine stood still before the command was started: it may be tried again."""


@dataclass(frozen=True, slots=True)
class LabRun:
    """Where one lab's things lie outside, and until when it may take."""

    choice: room.FolderChoice
    kernel: UserModeKernel
    deadline: float  # monotonic
    say: Say
    server_usr: Path | None = None  # where the server's programs are, if they are not the machine's own


def run_lab(options: LabOptions, command: tuple[str, ...], *, say: Say) -> int:
    """Run the command in a new machine; its exit status. What it printed went to stdout and stderr as it came.

    DIR (`options.out`) then holds `backups/`, the catalogue and the logs; nothing else outside has changed but the
    cache of prepared disks.

    Raises:
        LabError: the lab failed; nothing of it is left running.
        DeadlinePassed: so did its deadline.
        UsageError: there is no command.
    """
    if not command:
        raise UsageError("no command to run in the lab", hint="backupd lab run -- COMMAND…")
    if options.kernel is Kernel.HOST:
        from backupd.lab.host import run_on_host

        return run_on_host(options, command, say=say)
    with out_folder(options.out) as out:
        return _lab(options, plan_for(Purpose.RUN, options, command=command, python=sys.executable, out=out), say)


def shell(options: LabOptions, *, say: Say) -> int:
    """A prompt in a new machine, on this terminal; the shell's exit status. Raises as `run_lab` does."""
    size = shutil.get_terminal_size()
    command = ("sh", "-c", f"stty rows {size.lines} cols {size.columns}; exec bash -i")
    with out_folder(options.out) as out:
        return _lab(options, plan_for(Purpose.SHELL, options, command=command, python=sys.executable, out=out), say)


def clean() -> list[str]:
    """Prepared disks and servers that no lab uses, and temporary folders of labs that died, are gone; their names."""
    gone = images.clean(images.cache_folder())
    for place in room.places():
        for folder in place.folder.glob(f"{_PREFIX}*"):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(str(folder))
    return gone


def _lab(options: LabOptions, plan: Plan, say: Say) -> int:
    choice, deadline = _require_room(options, say), time.monotonic() + options.deadline_seconds
    cache = images.cache_folder()
    with kernels.ready(options.kernel, cache, say=say) as kernel, roots.server_usr(options.server, cache) as usr:
        version = roots.version(options.server, usr)
        say(f"the server is {options.server}: {version}")
        (Path(plan.out) / "server-version").write_text(f"{options.server} {version}\n", encoding="utf-8")
        run = LabRun(choice, kernel, deadline, say, server_usr=usr)
        return _attempts(options, plan, run, _key(options, version))


def _attempts(options: LabOptions, plan: Plan, run: LabRun, key: str) -> int:
    for attempt in range(1, _ATTEMPTS + 1):
        with _temporary_folders(run) as (folder, control):
            with images.kept(images.cache_folder(), key, lambda part: _prepare(options, part, run)) as prepared:
                disks = images.copy_disks(prepared, folder)
            disks += images.make_spares(folder, plan.spare_disks)
            try:
                return _attended(plan, control, disks, run)
            except MachineHung as hung:
                if attempt == _ATTEMPTS:
                    raise
                run.say(f"{hung.message}; nothing was run in it: trying a new one")
            finally:
                _keep_console(control, plan)
    raise AssertionError("the last attempt returns or raises")


def _require_room(options: LabOptions, say: Say) -> room.FolderChoice:
    room.require_packages(options)
    needs = needs_for(options.rows, deadline_seconds=options.deadline_seconds, spare_disks=options.spare_disks)
    choice = room.choose(needs, room.places(), room.memory_available())
    say(choice.sentence(needs))
    return choice


def _key(options: LabOptions, version: str) -> str:
    return images.cache_key(options, server=version, sizes=sizes_for(options.rows), sources=images.sources_digest())


def _prepare(options: LabOptions, part: Path, run: LabRun) -> None:
    """Prepared disks are in the folder. A machine of its own makes them, on fast disks."""
    needs = needs_for(options.rows, deadline_seconds=options.deadline_seconds)
    room.require_cache_room(part, needs.cache, what="prepared disks")
    thin = "thin " if options.thin else ""
    what = f"{thin}{options.layout} {options.filesystem} disks with {options.rows} rows of {options.server}"
    run.say(f"preparing {what}, once for all labs like this")
    plan = plan_for(Purpose.PREPARE, options, command=(), python=sys.executable, out=part)
    for attempt in range(1, _ATTEMPTS + 1):
        with _temporary_folders(run) as (folder, control):
            try:
                _attended(plan, control, images.make_blank(folder, plan.sizes), run)
            except MachineHung as hung:
                if attempt == _ATTEMPTS:
                    raise
                run.say(f"{hung.message}; trying a new one")
            else:
                images.copy_disks(folder, part)
                return


def _attended(plan: Plan, control: GuestControl, disks: list[Path], run: LabRun) -> int:
    """Start a machine for the plan and stay with it until it has told its status."""
    furnish(control, replace(plan, server_usr=str(run.server_usr or "")), run.kernel)
    with one_processor(images.cache_folder() / "processors") as processor:
        hardware = Hardware(
            control=control,
            memory_folder=run.choice.memory.folder,
            disks=tuple(disks),
            kernel=run.kernel,
            interactive=plan.purpose is Purpose.SHELL,
            processor=processor,
        )
        return _running(hardware, plan, run)


def _running(hardware: Hardware, plan: Plan, run: LabRun) -> int:
    control = hardware.control
    carriers = [Carrier(control.stdout, sys.stdout.buffer), Carrier(control.stderr, sys.stderr.buffer)]
    with booted(hardware) as machine:
        try:
            if not hardware.interactive:
                return _status(machine, plan, carriers, run.deadline, time.sleep)
            relay = Relay(machine.process, hardware.console, control.started, sys.stdin.fileno(), sys.stdout.fileno())
            with raw(relay.keyboard):
                return _status(machine, plan, carriers, run.deadline, relay.pause)
        except LabError as error:
            if isinstance(error, DeadlinePassed | MachineHung):
                tell_what_is_waited_for(control.folder / "uml")
            if tail := machine.tail():
                run.say(f"the machine's console ended with:\n{tail}")
            raise


@dataclass(slots=True)
class Carrier:
    """Carries what a growing file gains to a stream."""

    source: Path
    stream: BinaryIO
    position: int = field(default=0)

    def carry(self) -> None:
        """Everything that the file holds by now has been written to the stream."""
        try:
            with self.source.open("rb") as file:
                file.seek(self.position)
                while piece := file.read(1024 * 1024):
                    self.stream.write(piece)
                    self.position += len(piece)
            self.stream.flush()
        except FileNotFoundError:
            return


def _status(
    machine: LabMachine, plan: Plan, carriers: list[Carrier], deadline: float, pause: Callable[[float], None]
) -> int:
    """Watch until the status is there.

    Raises:
        DeadlinePassed, MachineHung, LabError: as their names say.
    """
    control = machine.hardware.control
    patience = _HUNG_SECONDS + plan.rows / _ROWS_A_SECOND
    stage, since = "", time.monotonic()
    while True:
        alive = machine.alive  # asked first: what a machine that ended has written is complete
        for carrier in carriers:
            carrier.carry()
        if control.status.exists():
            for carrier in carriers:
                carrier.carry()
            return int(control.status.read_text(encoding="ascii"))
        _require_no_failure(control, alive=alive)
        now = time.monotonic()
        if now > deadline:
            raise DeadlinePassed("the lab's deadline passed", hint="allow more time with --deadline SECONDS")
        reached = _last_milestone(control)
        if reached != stage:
            stage, since = reached, now
        if not control.started.exists() and now - since > patience:
            raise MachineHung(f"the machine did not respond for {patience:.0f} s after: {stage or 'its start'}")
        pause(_LOOK_SECONDS)


def _require_no_failure(control: GuestControl, *, alive: bool) -> None:
    if control.failure.exists():
        failure = json.loads(control.failure.read_text(encoding="utf-8"))
        raise LabError(f"the machine failed: {failure['message']}", hint=failure["hint"])
    if not alive:
        raise LabError("the machine ended by itself, without a status", hint="its console's end is shown above")


def _last_milestone(control: GuestControl) -> str:
    try:
        return control.milestones.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
    except FileNotFoundError:
        return ""


@contextmanager
def out_folder(out: Path | None) -> Iterator[Path]:
    """DIR, made if it did not exist; a temporary one, gone at the end, if none was asked for."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="backupd-out-") as folder:
            yield Path(folder).resolve()
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "backups").mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {out}: {error.strerror}", hint="--out is a folder that you may write") from error
    yield out.resolve()


@contextmanager
def _temporary_folders(run: LabRun) -> Iterator[tuple[Path, GuestControl]]:
    """One for the disks and one for control, which the kernel can't see under /dev: it mounts its own there."""
    plain = [
        folder
        for folder in (Path(tempfile.gettempdir()).resolve(), Path("/var/tmp"))  # noqa: S108 - mkdtemp inside it
        if folder.parts[1:2] != ("dev",)
    ]
    with _temporary_folder(run.choice.disks.folder) as disks, _temporary_folder(plain[0]) as control:
        yield disks, GuestControl(control)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder of this lab's own, gone at the end. Its lock tells that we live: it is held until the folder is gone."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with (folder / "not-yet").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "not-yet").rename(folder / _LOCK)
            yield folder
        finally:
            shutil.rmtree(folder)


def _is_abandoned(folder: Path) -> bool:
    """Whether the lab that made this folder is gone: nobody holds its lock."""
    try:
        with (folder / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError, PermissionError):
        return False
    return True


def _keep_console(control: GuestControl, plan: Plan) -> None:
    """DIR has the console's log and the milestones, for who wonders afterwards."""
    for name in ("console.log", "milestones"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(control.folder / name, Path(plan.out) / name)
