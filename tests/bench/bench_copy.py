"""How fast a copy is beside plain tools, and how much memory it takes: `make bench-copy`, on this host, a few minutes.

The same files, read from the disk as a new snapshot's are, by turns in each round: `tar -cf - . | zstd -1 -T0 > FILE`,
and `store_streams` to a folder beside it, with both digests, the frames and the members' index, in two streams, in as
many as it takes by itself, and encrypted. Each side's time ends when its file is durable: a target syncs what it
stores, so the plain tools' FILE is synced too. What that does to their time is told in a line of its own. Neither side
gives way to others, since what gives way on purpose cannot be compared with what does not.

Then back: `zstd -d < FILE | tar -x` and `unpack_objects`, both from a file that is not in the page cache, and neither
synced. A target elsewhere, its real server on this host, is compared with the folder. What counts is the ratio of the
medians. Seconds of processors are told too: on a host that does other things as well they say more than the clock does.

Memory is measured in a process of its own (`--memory`): encrypted, two streams, of these files and one of 1 TiB that is
all holes; and a binlog of 4 GiB that is all zeros, of which every byte is read.

Started as `python -m tests.bench.bench_copy [--rounds N] [--size MIB] [--folder DIR]`. The exit status is 1 where a
limit is missed.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from statistics import median

from backupd.archive import Sink
from backupd.archive.index import INDEX_OBJECT, written
from backupd.archive.packing import automatic_streams
from backupd.archive.sources import BinlogCut, Exclusions, list_members
from backupd.archive.stream import store_binlog, store_content, store_streams
from backupd.operations.restore.into_folder import unpack_objects
from backupd.policy.trust import Trust
from backupd.targets import BackupSource, Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import LabError
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import Flavour, Position, ServerFacts
from backupd.vocabulary.storage import Manifest, StoredObject
from backupd.vocabulary.volumes import Layout
from tests.bench import tablespaces
from tests.bench.memory import Memory
from tests.manners import usual_manner
from tests.servers import loopback
from tests.servers.loopback import MACHINE

ROUNDS = 5
SIZE_MIB = 512
COPY_AT_MOST = 1.10
ENCRYPTED_AT_MOST = 1.35
RESTORE_AT_MOST = 1.10
ELSEWHERE_AT_MOST = 1 / 0.7  # of the folder's time
MEMORY_MIB = 150

_JOB, _RUN = "bench", "r"
_EVERYTHING = Exclusions(datadir=PurePosixPath())
_SPARSE_BYTES = 1 << 40
_ZEROS_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """What one go at something took."""

    seconds: float
    processor_seconds: float  # of this process and its children


@dataclass(frozen=True, slots=True)
class TimedTask:
    """Something that is done once in each round."""

    name: str
    act: Callable[[], TaskTimes]
    beside: str = ""  # the contender that it is compared with; empty: it is one of those
    at_most: float | None = None  # times the other's median; None: only told
    took: list[TaskTimes] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of all goes."""
        return median(took.seconds for took in self.took)

    @property
    def processor_seconds(self) -> float:
        """The median of all goes."""
        return median(took.processor_seconds for took in self.took)


def main(argv: Sequence[str]) -> int:
    """Run the bench and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_copy")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--size", type=int, default=SIZE_MIB, help="of the files, in MiB")
    parser.add_argument("--folder", type=Path, help="where all of it is made; a new one where temporary files go")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.memory:
        return _tell_memory(asked.folder)
    with tempfile.TemporaryDirectory(prefix="backupd-bench-", dir=asked.folder) as made, ExitStack() as owed:
        ground = BenchFolders(Path(made))
        tablespaces.make(ground.root, asked.size << 20)
        contenders = _contenders(ground, owed)
        for number in range(asked.rounds):
            sys.stderr.write(f"round {number + 1} of {asked.rounds}\n")
            for contender in contenders:
                contender.took.append(contender.act())
        missed = _print_table(contenders, asked.size)
        return 1 if _print_memory(_memory(ground)) or missed else 0


class BenchFolders:
    """The folders in which it happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.file = folder / "plain.tar.zst"
        self.out = folder / "out"
        self.vault = DirectoryTarget("folder", _made(folder / "vault"), machine=MACHINE)
        self.stored: tuple[StoredObject, ...] = ()  # of the last copy into the vault that is not encrypted

    def plain_tools(self, *, sync: bool = True) -> TaskTimes:
        """tar and zstd, as anybody would."""
        command = f"tar -cf - . | zstd -1 -T0 -q > {shlex.quote(str(self.file))}"
        if sync:
            command += f"; sync {shlex.quote(str(self.file))}"
        self._forget_files()
        return _measured(lambda: _run(command, self.root))

    def plain_restore(self) -> TaskTimes:
        """The way back, of what `plain_tools` made."""
        _forget(self.file)
        _emptied(self.out)
        return _measured(lambda: _run(f"zstd -dc -q {shlex.quote(str(self.file))} | tar -xf -", self.out))

    def copy(self, target: Target, streams: int, *, recipients: tuple[str, ...] = ()) -> TaskTimes:
        """As a backup does, but for the snapshot and the reading back."""
        target.remove(_JOB, _RUN)
        self._forget_files()
        return _measured(lambda: self._copy(target, streams, recipients))

    def restore(self) -> TaskTimes:
        """The way back of the last copy in the vault, its streams at once."""
        _emptied(self.out)
        return _measured(self._restore)

    def _forget_files(self) -> None:
        for path in self.root.rglob("*.ibd"):
            _forget(path)

    def _copy(self, target: Target, streams: int, recipients: tuple[str, ...]) -> None:
        manner = usual_manner(gently=False, recipients=recipients)

        def open_object(name: str) -> AbstractContextManager[Sink]:
            return target.writing(_JOB, _RUN, name)

        stored = store_streams(
            self.root, list_members(self.root, _EVERYTHING), open_object, streams=streams, manner=manner
        )
        index = store_content(INDEX_OBJECT, written(stored.members), open_object=open_object, manner=manner)
        if target is self.vault and not recipients:
            self.stored = (*stored.objects, index)

    def _restore(self) -> None:
        unpack_objects(
            [BackupSource(self.vault, _JOB, _RUN, Trust(unsigned=True))], manifest_of(self.stored), to=self.out
        )


def manifest_of(objects: tuple[StoredObject, ...]) -> Manifest:
    """Of a backup of no server's."""
    server = ServerFacts(
        flavour=Flavour.MARIADB,
        version="",
        version_number=(0, 0, 0),
        datadir=Path("/nowhere"),
        socket=None,
        binlog_basename=None,
        binlog_expire_seconds=None,
        read_only=False,
        is_replica=False,
        redo_logging=True,
        page_size=16 << 10,
    )
    return Manifest(
        run_id=_RUN,
        job=_JOB,
        host="",
        machine=MACHINE,
        created_at=datetime.now(UTC),
        objects=objects,
        server=server,
        position=Position(),
        lsn=None,
        layout=Layout.LINEAR,
        volume="",
        datadir=".",
        run=RunSection(started_at=datetime.now(UTC)),
    )


def _contenders(ground: BenchFolders, owed: ExitStack) -> list[TimedTask]:
    """In the order of a round: a restore follows the copy that it restores."""
    vault, plain, back, two = ground.vault, "tar | zstd", "zstd | tar", "folder, 2 streams"
    auto = f"folder, auto ({automatic_streams()} streams)"
    recipients = (_recipient(),)
    return [
        TimedTask(plain, ground.plain_tools),
        TimedTask("the same, not synced", lambda: ground.plain_tools(sync=False), plain),
        TimedTask(
            "encrypted, 2 streams", lambda: ground.copy(vault, 2, recipients=recipients), plain, ENCRYPTED_AT_MOST
        ),
        TimedTask(auto, lambda: ground.copy(vault, 0), plain, COPY_AT_MOST),
        TimedTask(two, lambda: ground.copy(vault, 2), plain, COPY_AT_MOST),
        TimedTask(back, ground.plain_restore),
        TimedTask("restore, 2 streams", ground.restore, back, RESTORE_AT_MOST),
        *(
            _elsewhere(name, owed.enter_context(serving(ground.folder / name)), ground, beside=two)
            for name, serving in loopback.EACH
        ),
    ]


def _elsewhere(name: str, target: Target, ground: BenchFolders, *, beside: str) -> TimedTask:
    return TimedTask(f"{name}, 2 streams", lambda: ground.copy(target, 2), beside, ELSEWHERE_AT_MOST)


def _print_table(contenders: Sequence[TimedTask], size_mib: int) -> bool:
    """Whether a limit was missed."""
    by_name = {contender.name: contender for contender in contenders}
    _say(f"{size_mib} MiB from the disk, {len(contenders[0].took)} rounds, {len(os.sched_getaffinity(0))} processors")
    _say(f"{'':28}  seconds: median (from - to)   MiB/s   processors' s   ratio   limit")
    missed = False
    for contender in contenders:
        spread = [took.seconds for took in contender.took]
        line = f"{contender.name:28}  {contender.seconds:14.2f} ({min(spread):5.2f} - {max(spread):5.2f})  "
        line += f"{size_mib / contender.seconds:6.0f}  {contender.processor_seconds:14.2f}"
        if contender.beside:
            ratio = contender.seconds / by_name[contender.beside].seconds
            line += f"   {ratio:5.2f}"
            if contender.at_most is not None:
                late = ratio > contender.at_most
                missed |= late
                line += f"   {contender.at_most:5.2f}  {'MISSED' if late else 'kept'}"
            line += f"  of: {contender.beside}"
        _say(line)
    return missed


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory(ground: BenchFolders) -> dict[str, float]:
    """MiB at the most, of a process that copies: by what it copied."""
    with (ground.root / "all-holes.ibd").open("wb") as file:
        file.truncate(_SPARSE_BYTES)
    command = [sys.executable, "-P", "-m", "tests.bench.bench_copy", "--memory", "--folder", str(ground.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"what was to tell its memory failed: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _tell_memory(folder: Path) -> int:
    """In that process."""
    ground = BenchFolders(folder)
    (folder / "binlog.000001").touch()
    os.truncate(folder / "binlog.000001", _ZEROS_BYTES)
    cut = BinlogCut(folder / "binlog.000001", _ZEROS_BYTES, PurePosixPath("binlog.000001"))
    with Memory() as memory:
        with memory.of("2 streams and 1 TiB of holes, encrypted") as copied:
            ground.copy(ground.vault, 2, recipients=(_recipient(),))
        ground.vault.remove(_JOB, _RUN)
        with memory.of(f"and then {_ZEROS_BYTES >> 30} GiB of zeros") as cut_off:
            store_binlog(
                cut, open_object=lambda name: ground.vault.writing(_JOB, _RUN, name), manner=usual_manner(gently=False)
            )
    _say(json.dumps({step.name: step.mib for step in (copied(), cut_off())}))
    return 0


def _print_memory(found: dict[str, float]) -> bool:
    """Whether the limit was missed."""
    for what, mib in found.items():
        _say(f"memory at the most: {mib:.0f} MiB of {MEMORY_MIB}, {what}  {'kept' if mib <= MEMORY_MIB else 'MISSED'}")
    return max(found.values()) > MEMORY_MIB


# --- odds and ends of a round ----------------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _measured(act: Callable[[], None]) -> TaskTimes:
    before, began = os.times(), time.monotonic()
    act()
    after = os.times()
    return TaskTimes(time.monotonic() - began, sum(after[:4]) - sum(before[:4]))


def _run(command: str, folder: Path) -> None:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise LabError(f"`{command}` failed: {done.stderr.decode(errors='replace')}")


def _recipient() -> str:
    from pyrage import x25519

    return str(x25519.Identity.generate().to_public())


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _emptied(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _forget(path: Path) -> None:
    """It is not in the page cache any more."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
