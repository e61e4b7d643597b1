"""What is done in one machine: round after round, everyone in turn, the server under load and at rest before each.

Started in the machine as `python -m tests.bench.peers.rounds --load closed|rate [--rounds N] [--only NAME]…`. On stdout
it says as JSON, a line each: at what rate the server was loaded, and every reading.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path

from backupd.host.process import Completed, run
from backupd.lab import configuration, disks, load, server
from backupd.lab.guest import SPARE
from backupd.lab.options import CLOSED, Load
from backupd.lab.plan import GuestControl, Plan
from backupd.lab.site import LabSite, guest_site, host_site
from backupd.load.counters import KernelCounters
from backupd.mysql.session import Login, Session
from backupd.operations import context
from backupd.vocabulary.errors import BackupdError, LabError
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.records import RunDetails
from tests.bench.memory import Memory, children_of
from tests.bench.peers import calm, figures
from tests.bench.peers.contenders import (
    IF_ASKED,
    MYLVM_SNAPSHOT,
    NAMES,
    ON_FAST_PV,
    READERS,
    Contender,
    PeerGround,
    contenders,
    ours_restored,
    snapshot_settings,
    turns,
)
from tests.bench.peers.figures import BEFORE_SECONDS, Cost, Moments, Reading
from tests.bench.peers.processor import ProcessorUse

RATE_SHARE = 0.6  # of what the server does when nobody holds it back
_SATURATED_SECONDS = 20.0
_BACKUP_SECONDS = 900.0
_RESTORE_SECONDS = 300.0
_QUICK_SECONDS = 60.0
_ATTENTION = 3  # backupd: the backup is good, and there is something to look at
_LATE_SECONDS = 2.0  # the load's last line is written a second after its second
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class PeerMachine:
    """What a turn needs."""

    site: LabSite
    plan: Plan
    session: Session
    disks: tuple[Path, ...]
    everyone: dict[str, Contender]
    stored: Path  # where the rivals write


@dataclass(frozen=True, slots=True)
class LoadLogs:
    """Of one load, from its start on."""

    site: LabSite  # its runtime folder is this load's own

    def samples(self) -> list[load.LoadSample]:
        """A line a second."""
        return load.parse_load(self.site.load_log.read_text(encoding="utf-8"))

    def beats(self) -> list[load.Heartbeat]:
        """Twenty a second."""
        return load.parse_heartbeats(self.site.heartbeat_log.read_text(encoding="utf-8"))


def main(words: Sequence[str]) -> int:
    """Do all rounds and tell each reading as soon as it is there; 0 unless one failed."""
    parser = argparse.ArgumentParser(prog="rounds")
    parser.add_argument("--load", choices=("closed", "rate"), required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--only", choices=(*NAMES, *IF_ASKED, *READERS), action="append", default=[])
    told = parser.parse_args(words)
    site = guest_site()
    plan = Plan.from_json(GuestControl(Path("/run/lab/control")).plan.read_text(encoding="utf-8"))
    stored = site.backups / "peers"
    everyone = dict(contenders(PeerGround(site, plan.sizes.volume, SPARE[0]), stored))
    with Session.open(Login("root", socket=site.socket)) as session:
        machine = PeerMachine(site, plan, session, _disks_of(site), everyone, stored)
        rate = saturated(machine)
        asked = CLOSED if told.load == "closed" else Load("rate", max(1, round(RATE_SHARE * rate)))
        _tell({"load": str(asked), "saturated": rate})
        return int(_rounds(machine, told.only or NAMES, told.rounds, asked))


def _rounds(machine: PeerMachine, names: Sequence[str], rounds: int, asked: Load) -> bool:
    """Whether any of them failed."""
    walls: list[float] = []
    failed = False
    for number in range(rounds):
        for name in turns(names, number):
            reading = turn(machine, machine.everyone[name], number, asked, figures.pause_seconds(walls))
            if reading.cost and machine.everyone[name].backup:
                walls.append(reading.cost.wall)
            failed |= bool(reading.failed)
            _tell(reading.to_values())
    return failed


def saturated(machine: PeerMachine) -> float:
    """Transactions a second when the load waits for nothing but the server."""
    with loaded(machine, CLOSED) as logs:
        calm.await_calm(partial(calm.look, machine.session))
        time.sleep(_SATURATED_SECONDS + _LATE_SECONDS)
        samples = logs.samples()
    rate = load.rate_between(samples, samples[-1].at - _SATURATED_SECONDS, samples[-1].at)
    if not rate:
        raise LabError("the load did nothing")
    return rate


def turn(machine: PeerMachine, contender: Contender, number: int, asked: Load, pause: float) -> Reading:
    """One backup of one of them, and its restore. Afterwards nothing is left of it but what backupd has stored.

    Nor of one that failed: a snapshot that stayed would be paid for by everyone after it.
    """
    try:
        with _stage(machine, contender):
            with loaded(machine, asked) as logs:
                _nothing_cached_but_programs(contender)
                rested = calm.await_calm(partial(calm.look, machine.session))
                time.sleep(BEFORE_SECONDS)
                taken = _taken(machine, contender, pause)
                time.sleep(_LATE_SECONDS)
                samples, beats = logs.samples(), logs.beats()
            felt = figures.impact(samples, beats, taken.moments)
            details = _ours() if contender.is_backupd else None
            ends = figures.stages(details, taken.moments) if details is not None else []
            return Reading(
                contender.name,
                number,
                rested,
                felt,
                _cost(machine, contender, taken, details),
                figures.parts(samples, taken.moments.began, ends, undisturbed=felt.tps_before),
            )
    except (BackupdError, OSError) as error:
        _cleared(machine)
        hint = error.hint if isinstance(error, BackupdError) else ""
        return Reading(contender.name, number, failed=f"{error} {hint}".strip()[-2000:])


def _nothing_cached_but_programs(contender: Contender) -> None:
    """What is to be backed up has to be read from the disks.

    The programs lie on the host's file system, for whose every read the whole machine stands still (hostfs); a real
    one's disk would let only the program wait.
    """
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    _shell(contender.warm_up, Path("/"), seconds=_BACKUP_SECONDS, accept=(0, _ATTENTION))  # the processor may be short


def _cleared(machine: PeerMachine) -> None:
    """What a failed backup left of its snapshot is gone: ours by its own means, mylvmbackup's by name."""
    run(["backupd", "--quiet", "recover"], timeout_seconds=_BACKUP_SECONDS, accept=range(256))
    group = machine.site.volume_group
    argv = ["lvs", "--noheadings", "--options", "lv_path", "--select", f"vg_name={group} && lv_name={MYLVM_SNAPSHOT}"]
    for left in run(argv, timeout_seconds=_QUICK_SECONDS).stdout.split():
        run(["umount", left], timeout_seconds=_QUICK_SECONDS, accept=range(256))
        run(["lvremove", "--yes", left], timeout_seconds=_QUICK_SECONDS, must_finish=True)


@contextmanager
def loaded(machine: PeerMachine, asked: Load) -> Iterator[LoadLogs]:
    """The server is under that load, whose logs are new, for the length of the block."""
    with tempfile.TemporaryDirectory(dir=machine.site.runtime) as folder:
        site = replace(machine.site, runtime=Path(folder))
        with load.generator(site, replace(machine.plan, load=asked)) as wait_for_load:
            wait_for_load()
            yield LoadLogs(site)


@contextmanager
def _stage(machine: PeerMachine, contender: Contender) -> Iterator[None]:
    """It finds as much to copy as everyone else: no binlog but the current one; and what its settings name is there."""
    machine.session.execute("FLUSH BINARY LOGS")
    logs = machine.session.query("SHOW BINARY LOGS")
    machine.session.execute("PURGE BINARY LOGS TO %s", logs[-1]["Log_name"])
    with ExitStack() as owed:
        machine.stored.mkdir()
        owed.callback(shutil.rmtree, machine.stored)
        if contender.is_backupd:
            if contender.name in ON_FAST_PV:
                owed.enter_context(_fast_pv(machine))
            spool = machine.site.state / "spool"  # not on the slowed disks
            spool.mkdir(mode=0o700, exist_ok=True)
            settings = snapshot_settings(contender.name, SPARE[0], spool=spool)
            text = configuration.text(machine.site, snapshot=settings)
            machine.site.configuration.write_text(text, encoding="utf-8")
        yield


@contextmanager
def _fast_pv(machine: PeerMachine) -> Iterator[None]:
    """The spare disk is in the group, past what makes the disks of this machine slow; and after the block no more."""
    site = machine.site
    disks.restrict_lvm(site, [*machine.disks, SPARE[0]], with_udev=machine.plan.has_udev)
    run(["vgextend", "--yes", site.volume_group, str(SPARE[0])], timeout_seconds=_QUICK_SECONDS, must_finish=True)
    try:
        yield
    finally:
        run(["vgreduce", site.volume_group, str(SPARE[0])], timeout_seconds=_QUICK_SECONDS, must_finish=True)
        disks.restrict_lvm(site, machine.disks, with_udev=machine.plan.has_udev)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What is known of a backup once it has ended."""

    moments: Moments
    disks: DiskCounters
    memory: float  # MiB
    processor: dict[str, float]  # seconds, by owner


def _taken(machine: PeerMachine, contender: Contender, pause: float) -> _Taken:
    """The backup, or the pause for as long as others take."""
    with Memory(beside=children_of(os.getpid())) as memory:
        with memory.of("this process") as alone:
            before, worked = _disk_use(machine), ProcessorUse.now()
        with memory.of(contender.name) as took:
            began = time.time()
            if contender.backup:
                accept = (0, _ATTENTION) if contender.is_backupd else (0,)
                _shell(contender.backup, Path("/"), seconds=_BACKUP_SECONDS, accept=accept)
            else:
                time.sleep(pause)
            ended = time.time()
    used = ProcessorUse.now().since(worked)
    return _Taken(Moments(began, ended), _disk_use(machine).since(before), max(0.0, took().mib - alone().mib), used)


def _cost(
    machine: PeerMachine,
    contender: Contender,
    taken: _Taken,
    details: RunDetails | None,
) -> Cost:
    stored = machine.stored
    restore = contender.restore
    if details is not None:
        stored = machine.site.backups / details.machine / details.job / details.run_id
        restore = ours_restored(details.run_id)
    return Cost(
        wall=taken.moments.ended - taken.moments.began,
        stored=sum(path.stat().st_size for path in stored.rglob("*") if path.is_file()),
        disks=taken.disks,
        memory=taken.memory,
        processor=taken.processor,
        restore=_restored(machine, restore, into_server=contender.loads_into_a_server) if restore else 0.0,
        lock_held=details.lock.hold_seconds if details and details.lock else None,
        cow=details.snapshot.cow_used_peak if details and details.snapshot else None,
    )


def _restored(machine: PeerMachine, line: str, *, into_server: bool) -> float:
    """Seconds of that, with no load on the server."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        folder = Path(name)
        if not into_server:
            return _shell(line, folder, seconds=_RESTORE_SECONDS).seconds
        empty = host_site(folder, out=folder, pid=os.getpid())
        for part in (empty.runtime, empty.server_temporary, empty.mount_point):
            part.mkdir(parents=True)
        server.install(empty, machine.plan.server)
        with server.running(empty, machine.plan.server, fast_and_loose=True):
            return _shell(f"export SOCKET={empty.socket}; {line}", folder, seconds=_RESTORE_SECONDS).seconds


def _shell(line: str, folder: Path, *, seconds: float, accept: Sequence[int] = (0,)) -> Completed:
    argv = ["env", f"--chdir={folder}", "bash", "-o", "pipefail", "-c", line]
    return run(argv, timeout_seconds=seconds, accept=accept)


def _ours() -> RunDetails:
    with context.catalogue(context.configuration(None)) as catalogue:
        return catalogue.run("latest")


def _disks_of(site: LabSite) -> tuple[Path, ...]:
    argv = ["pvs", "--noheadings", "--options", "pv_name", "--select", f"vg_name={site.volume_group}"]
    return tuple(map(Path, run(argv, timeout_seconds=_QUICK_SECONDS).stdout.split()))


def _disk_use(machine: PeerMachine) -> DiskCounters:
    """Of the volume's disks together, since they were made."""
    counters = KernelCounters()
    return reduce(DiskCounters.plus, (counters.disk(counters.number_of(disk)) for disk in machine.disks))


def _tell(values: object) -> None:
    sys.stdout.write(f"{json.dumps(values)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
