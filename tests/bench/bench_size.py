"""How much memory and time a backup takes at 5 TiB and 400,000 or a million files: `make bench-size`.

Real are the listing of so many files, the reader, the streams, zstd, the objects and the index on a folder, an
SFTP and an S3 server, the manifest with the frames of 5 TiB, and the verification and the restore of what was stored.
Made up are the files, of which a few have content and one has 5 TiB of holes; the tablespaces that a server names,
every second file; the frames, which are told and not read; and the bytes: a GiB of noise, which fills every buffer
many times over, comes last, when all else that a run keeps is in memory, and is stored as if it were the datadir's
largest object (a target chooses the size of its parts by that).

Each case runs in a process of its own, which has loaded what a run loads. Its memory is what it and all its children
have resident (VmRSS) together, with their memory files, looked at twenty times a second; the servers that it stores on
are not counted. The limit holds for every step of a run; what a restore takes is told.

Started as `python -m tests.bench.bench_size [--folder DIR] [--case FILES:KIND ...] [--bytes MIB]`. The exit status is 1
where a limit is missed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from shutil import rmtree

from backupd.archive import Sink, heap
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stations import FRAME_BYTES
from backupd.config import CopyConfig
from backupd.operations.backup.image import Tablespaces
from backupd.operations.backup.storing import Contents, Storing
from backupd.operations.copies.fan_out import Copies
from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.verify import verify_backup
from backupd.policy.trust import Trust
from backupd.targets import BackupSource, Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import LabError
from backupd.vocabulary.storage import Frame, StoredObject
from tests.bench.bench_copy import manifest_of
from tests.bench.memory import Memory, MemoryStep, children_of
from tests.manners import usual_manner
from tests.servers import loopback
from tests.servers.loopback import MACHINE

FILES_MIB = {400_000: 256, 1_000_000: 512}  # at most, up to so many files
DATADIR_BYTES = 5 << 40
NOISE_MIB = 1024

_JOB, _RUN, _TOLD = "bench", "r", "told"
_LARGEST_FILE = 32 << 30  # of the datadir that is told of
_CASES = tuple(f"{files}:{kind}" for files in FILES_MIB for kind in ("folder", "sftp", "s3"))
RESTORED = "restored"  # the step that is none of a run's
OF_5_TIB = "manifest of 5 TiB"  # with one that has as many frames, however few files there are
_FOLDER_FILES = 10_000
_NOISE = "the_last_of_all_"  # as their names begin: an archive has its files in the order of their names
_NOISE_FILES = 4
_NOISE_BLOCK = 8 << 20  # zstd at its first level looks back less far
_ONE_HAS_CONTENT = 10  # of so many
_SERVERS = dict(loopback.EACH)


def main(argv: Sequence[str]) -> int:
    """Run the cases and print what they took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_size")
    parser.add_argument("--folder", type=Path, help="where all of it is made; a new one where temporary files go")
    parser.add_argument("--case", nargs="+", default=_CASES, metavar="FILES:KIND", help="0 files: noise alone")
    parser.add_argument("--bytes", type=int, default=NOISE_MIB, help="of noise, in MiB")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.within:
        _within(asked.folder, *asked.case)
        return 0
    missed = False
    with tempfile.TemporaryDirectory(prefix="backupd-bench-", dir=asked.folder) as made:
        folder = Path(made)
        for case in asked.case:
            files = int(case.partition(":")[0])
            if not (folder / str(files)).exists():
                make_files(folder / str(files), files, asked.bytes << 20)
            missed |= _print(case, run_case(folder, case))
    return int(missed)


def run_case(folder: Path, case: str) -> Iterator[MemoryStep]:
    """The steps of this case as they are done, in a process of its own; the files that it takes are in the folder.

    Raises:
        LabError: it failed.
    """
    inside = ("--within", "--folder", str(folder), "--case", case)
    command = [sys.executable, "-P", "-m", "tests.bench.bench_size", *inside]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield MemoryStep(**json.loads(line))
    if process.returncode:
        raise LabError(f"case {case} failed: see above")


def make_files(root: Path, files: int, noise: int) -> None:
    """A datadir of so many small files with 5 TiB of holes, if any, and of so many bytes that do not compress."""
    root.mkdir()
    if files:
        _make_small(root, files)
    for number in range(_NOISE_FILES):
        block = os.urandom(_NOISE_BLOCK)
        with (root / f"{_NOISE}{number}.ibd").open("wb") as file:
            for _ in range(noise // _NOISE_FILES // _NOISE_BLOCK):
                file.write(block)


def _make_small(root: Path, files: int) -> None:
    with (root / "holes.ibd").open("wb") as file:
        file.truncate(DATADIR_BYTES)
    for number in range(files):
        if number % _FOLDER_FILES == 0:
            (root / _table(number)).parent.mkdir()
        with open(root / _table(number), "wb", buffering=0) as file:  # noqa: PTH123 - a million
            if number % _ONE_HAS_CONTENT == 0:
                file.write(b"x" * 100)


def _table(number: int) -> str:
    return f"schema_{number // _FOLDER_FILES:03}/customer_orders_{number:07}.ibd"


def _print(case: str, steps: Iterable[MemoryStep]) -> bool:
    """Whether the limit was missed."""
    files, _, kind = case.partition(":")
    limit = next((mib for most, mib in FILES_MIB.items() if int(files) <= most), None)
    what = f"{int(files):,} files" if int(files) else "noise"
    missed = False
    for step in steps:
        line = f"{what:15}  {kind:6}  {step.name:24}  {step.seconds:6.1f} s  {step.mib:5.0f} MiB"
        if limit is not None and step.name != RESTORED:
            missed |= step.mib > limit
            line += f" of {limit}  {'MISSED' if step.mib > limit else 'kept'}"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return missed


# --- in a case's process ---------------------------------------------------------------------------------------------


def _within(folder: Path, case: str) -> None:
    heap.confine()  # as a run does first of all
    files, _, kind = case.partition(":")
    vault = folder / "vault"
    vault.mkdir()
    try:
        with ExitStack() as owed:
            serving: AbstractContextManager[Target]
            serving = (
                nullcontext(DirectoryTarget("folder", vault, machine=MACHINE))
                if kind == "folder"
                else _SERVERS[kind](vault / kind)
            )
            target = owed.enter_context(serving)
            memory = owed.enter_context(Memory(beside=children_of(os.getpid())))
            _load_what_a_run_loads(target)
            for step in _steps(target, folder / files, folder / "out", memory, files=int(files)):
                sys.stdout.write(json.dumps(asdict(step)) + "\n")
                sys.stdout.flush()
    finally:
        rmtree(vault)
        rmtree(folder / "out", ignore_errors=True)


def _load_what_a_run_loads(target: Target) -> None:
    """All modules of a run, and the target's client: they are resident from its first second on."""
    import backupd.catalogue.store
    import backupd.operations.backup.run
    import backupd.wiring  # noqa: F401

    list(target.backups(_JOB))


def _steps(target: Target, root: Path, out: Path, memory: Memory, *, files: int) -> Iterator[MemoryStep]:
    with memory.of("loaded") as step:
        pass
    yield step()
    with memory.of("listed") as step:
        named = Tablespaces({_table(number): number for number in range(0, files, 2)})
        contents = Contents(root, list_members(root, Exclusions(datadir=PurePosixPath())), binlog=None)
        if missing := named.missing_in(contents.listing, b""):
            raise AssertionError(missing)
    yield step()
    told = _objects_of_the_datadir() if files else ()
    with memory.of("copied") as step:
        objects = _copied(target, contents)
    yield step()
    del contents, named
    if told:
        with memory.of(f"{OF_5_TIB} written") as step:
            target.publish(replace(manifest_of((*objects, *told)), run_id=_TOLD))
        yield step()
        del told
        with memory.of(f"{OF_5_TIB} read") as step:
            target.manifest(_JOB, _TOLD)
        yield step()
    target.publish(manifest_of(objects))
    source = BackupSource(target, _JOB, _RUN, Trust(unsigned=True))
    with memory.of("verified") as step:
        verify_backup(source)
    yield step()
    if isinstance(target, DirectoryTarget):
        with memory.of(RESTORED) as step:
            restore([source], to=out)
        yield step()


def _copied(target: Target, contents: Contents) -> tuple[StoredObject, ...]:
    """Through the target's own thread, as in a run; the target is told that an object may be the datadir's largest."""
    copy = CopyConfig(streams=2)
    most = copy.object_size + _LARGEST_FILE
    with Copies([target], _JOB, _RUN) as copies:

        def opened(
            name: str, *, at_most: int | None = None, idle: Callable[[], None] = lambda: None
        ) -> AbstractContextManager[Sink]:
            return copies.open_object(name, at_most=max(at_most or 0, most), idle=idle)

        return Storing(contents, opened, copy).store(usual_manner()).objects


def _objects_of_the_datadir() -> tuple[StoredObject, ...]:
    """Objects as 5 TiB that do not compress would have been stored in, held as a run holds them until it is done."""
    size = CopyConfig().object_size
    count = size // FRAME_BYTES
    return tuple(
        StoredObject(
            name=f"told-{number}.tar.zst",
            plain_bytes=size,
            stored_bytes=size,
            plain_sha256=_sha256(number),
            stored_sha256=_sha256(-number),
            files=0,
            frames=tuple(_frame(number * count + i) for i in range(count)),
        )
        for number in range(DATADIR_BYTES // size)
    )


def _frame(number: int) -> Frame:
    return Frame(FRAME_BYTES, FRAME_BYTES + number % 4096, _sha256(number))


def _sha256(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
