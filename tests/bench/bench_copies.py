"""How fast `backupd copy` moves a stored backup beside a plain client: `make bench-copies`, on this host, ten minutes.

By turns in each round, the same objects of an encrypted backup go from a folder to another folder, to an SFTP and to an
S3 server, both real ones on this host:

- by a plain client, which compares nothing: `dd iflag=direct conv=fsync`, `sftp` (`put -f`), `upload_file` of boto3;
  to the folder by `cp` and `sync FILE` as well, which is told only: it reads many requests ahead, and through the page
  cache, where it takes the place of a database's pages; backupd reads past it, as that `dd` does;
- by `backupd copy`: until all of it is durable there, every byte having been compared on the way; and as a whole, with
  reading it back, beside the plain client and a `sha256sum` of what it wrote (in the folder that the server serves);
- by `backupd copy --recipients`, which decrypts and encrypts all of it on the way.

What is read is in no page cache. What counts is the ratio of the medians. Each copy runs in a process of its own, whose
memory, with all its children's, is looked at twenty times a second.

Started as `python -m tests.bench.bench_copies [--rounds N] [--size MIB] [--folder DIR] [--to KIND ...]`. The exit
status is 1 where a limit is missed.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from backupd import wiring
from backupd.archive import heap
from backupd.archive.encryption import read_identities
from backupd.archive.sealing import Encryptor
from backupd.cli.copy import _route
from backupd.operations import context
from backupd.operations.ownership import ownership_of
from backupd.operations.upkeep.additional_copy import copy_run
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy import manifest as manifests
from backupd.vocabulary.errors import LabError
from backupd.vocabulary.storage import Frame, StoredObject
from tests.bench.bench_copy import manifest_of
from tests.bench.memory import Memory
from tests.servers import s3server, sshd

ROUNDS = 5
SIZE_MIB = 512
RATE_AT_LEAST = 0.9  # of the plain client's
MEMORY_MIB = 150
KINDS = ("folder", "sftp", "s3")

_RUN, _JOB = "r", "bench"
_BLOCK = 1 << 20
_FRAME_MIB = 64
_OBJECTS = 2
_CONFIGURATION = """\
[catalogue]
path = "{folder}/catalogue.db"
[paths]
run = "{folder}/run"
staging = "{folder}/staging"
log = "{folder}/log"
[hosts.db1]
socket = "{folder}/nobody.sock"
user = "backupd"
[jobs.bench]
host = "db1"
targets = ["origin"]
[targets.origin]
type = "directory"
path = "{folder}/origin"
"""


@dataclass(frozen=True, slots=True)
class OneCopy:
    """What one `backupd copy` took."""

    seconds: float  # all of it
    send_seconds: float
    mib: float  # of memory, at the most


@dataclass(slots=True)
class Destination:
    """Where copies go, by whom."""

    kind: str
    plain: Callable[[Path, str], None]  # a file, by a name there: durable when it returns
    served: Path  # where on this host its objects lie
    cached: Callable[[Path, str], None] | None = None  # the same through the page cache
    cached_seconds: list[float] = field(default_factory=list)
    plain_seconds: list[float] = field(default_factory=list)
    compared_seconds: list[float] = field(default_factory=list)  # the same, and sha256sum of what was written
    copies: list[OneCopy] = field(default_factory=list)
    resealed: list[OneCopy] = field(default_factory=list)


class Ground:
    """A host with one encrypted backup in its folder `origin`, and the destinations that the configuration has."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.config = folder / "backupd.toml"
        self.keys = [_key(folder / f"key-{number}") for number in (1, 2)]
        (folder / "origin").mkdir()
        self.config.write_text(_CONFIGURATION.format(folder=folder))
        self._store(size)

    def _store(self, size: int) -> None:
        """The backup lies there and is known. Its bytes are noise: a copy looks into nothing but age's chunks."""
        configuration = context.configuration(self.config)
        with context.own_catalogue(configuration) as catalogue:
            name = catalogue.identity().name
            target = wiring.target(configuration, "origin", name)
            ownership = ownership_of(catalogue, wiring.host_tools(configuration, name))
            ownership.take(target)
            recipients = self.keys[0][1]
            objects = tuple(
                _stored(target.writing(_JOB, _RUN, object_), object_, size // _OBJECTS, recipients)
                for object_ in (f"data-{number + 1}.tar.zst.age" for number in range(_OBJECTS))
            )
            found = replace(manifest_of(objects), machine=name, run_id=_RUN, job=_JOB, recipients=(recipients,))
            target.publish(manifests.signed(found, ownership.signer()))
            rebuild(target, catalogue, catalogue.trust(name)).require_complete()
        self.objects = [folder / stored.name for folder in (self.folder / "origin" / name / _JOB / _RUN,)
                        for stored in objects]  # fmt: skip

    def copy(self, to: str, *, reseal: bool) -> OneCopy:
        """In a process of its own; nothing of it is left at the destination."""
        readers = [self.keys[1][1], str(self.keys[0][0])] if reseal else []
        argv = [sys.executable, "-m", "tests.bench.bench_copies", "--one", str(self.config), to, *readers]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"the copy to {to} failed: {done.stderr[-2000:]}")
        return OneCopy(**json.loads(done.stdout.splitlines()[-1]))


def one_copy(config: Path, to: str, recipient: str | None, identity: str | None) -> OneCopy:
    """Copy, as the command does, and remove what was copied."""
    heap.confine()
    configuration = context.configuration(config)
    with context.own_catalogue(configuration) as catalogue, Memory() as memory:
        route = _route(configuration, catalogue, "origin", to)
        if recipient is not None and identity is not None:
            route = replace(route, recipients=(recipient,), identities=read_identities(Path(identity)))
        began = time.monotonic()
        with memory.of("copy") as step:
            done = copy_run(route, _RUN)
        seconds = time.monotonic() - began
        assert done is not None
        route.destination.remove(_JOB, _RUN)
        catalogue.removed(_RUN, to, because="the bench has measured it")
        return OneCopy(seconds, done.send_seconds, step().mib)


def main(argv: Sequence[str]) -> int:
    """Run the bench and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_copies")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--size", type=int, default=SIZE_MIB, help="of the backup, in MiB")
    parser.add_argument("--folder", type=Path, help="where all of it is made; a new one where temporary files go")
    parser.add_argument("--to", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.one:
        config, to, recipient, identity = (*asked.one, None, None)[:4]
        copy = one_copy(Path(config), to, recipient, identity)
        _say(json.dumps({"seconds": copy.seconds, "send_seconds": copy.send_seconds, "mib": copy.mib}))
        return 0
    with tempfile.TemporaryDirectory(prefix="backupd-bench-", dir=asked.folder) as made:
        ground = Ground(Path(made), asked.size << 20)
        missed = False
        for kind in asked.to:
            with SERVED[kind](ground) as destination:
                for number in range(asked.rounds):
                    sys.stderr.write(f"{kind}: round {number + 1} of {asked.rounds}\n")
                    _round(ground, destination)
                missed |= _print(destination, sum(path.stat().st_size for path in ground.objects))
        return 1 if missed else 0


def _round(ground: Ground, to: Destination) -> None:
    if to.cached is not None:
        to.cached_seconds.append(_by_client(ground, to.cached))
        for path in to.served.rglob("*.age"):
            path.unlink()
    began = time.monotonic()
    to.plain_seconds.append(_by_client(ground, to.plain))
    written = [path for path in to.served.rglob("*.age") if path.name in {one.name for one in ground.objects}]
    for path in written:
        _forget(path)
    _run("sha256sum", *map(str, written))
    to.compared_seconds.append(time.monotonic() - began)
    for path in written:
        path.unlink()
    to.copies.append(ground.copy(to.kind, reseal=False))
    to.resealed.append(ground.copy(to.kind, reseal=True))


def _by_client(ground: Ground, send: Callable[[Path, str], None]) -> float:
    for path in ground.objects:
        _forget(path)
    began = time.monotonic()
    for path in ground.objects:
        send(path, path.name)
    return time.monotonic() - began


def _print(to: Destination, size: int) -> bool:
    """Whether a limit was missed."""
    plain, compared = to.plain_seconds, to.compared_seconds
    rounds = f"{len(plain)} rounds, {len(os.sched_getaffinity(0))} processors"
    _say(f"\nto {to.kind}: {size >> 20} MiB, {rounds}")
    _say(f"{'':40}  seconds: median (from - to)   MiB/s   rate beside the plain one")
    rows = [
        *([("cp, through the page cache", to.cached_seconds, plain, None)] if to.cached_seconds else []),
        ("a plain client", plain, None, None),
        ("copy, until it is durable", [copy.send_seconds for copy in to.copies], plain, RATE_AT_LEAST),
        ("copy --recipients, until it is durable", [copy.send_seconds for copy in to.resealed], plain, None),
        ("a plain client, and sha256sum of it there", compared, None, None),
        ("copy, with reading it back", [copy.seconds for copy in to.copies], compared, None),
        ("copy --recipients, with reading it back", [copy.seconds for copy in to.resealed], compared, None),
    ]
    missed = False
    for name, seconds, beside, at_least in rows:
        line = f"{name:41} {median(seconds):14.2f} ({min(seconds):5.2f} - {max(seconds):5.2f})  "
        line += f"{(size >> 20) / median(seconds):6.0f}"
        if beside is not None:
            rate = median(beside) / median(seconds)
            line += f"   {rate:5.2f}"
            if at_least is not None:
                missed |= rate < at_least
                line += f"  of at least {at_least:.2f}  {'MISSED' if rate < at_least else 'kept'}"
        _say(line)
    for name, copies in (("copy", to.copies), ("copy --recipients", to.resealed)):
        most = max(copy.mib for copy in copies)
        missed |= most > MEMORY_MIB
        _say(f"memory at the most: {most:.0f} MiB of {MEMORY_MIB}, {name}  {'MISSED' if most > MEMORY_MIB else 'kept'}")
    return missed


# --- where copies go -------------------------------------------------------------------------------------------------


@contextmanager
def _folder(ground: Ground) -> Iterator[Destination]:
    to = ground.folder / "folder"
    (to / "plain").mkdir(parents=True)
    _configure(ground, f'[targets.folder]\ntype = "directory"\npath = "{to}"\n')

    def past_cache(path: Path, name: str) -> None:
        _run("dd", f"if={path}", f"of={to / 'plain' / name}", "bs=1M", "iflag=direct", "conv=fsync")

    def through_cache(path: Path, name: str) -> None:
        _run("cp", str(path), str(to / "plain" / name))
        _run("sync", str(to / "plain" / name))

    yield Destination("folder", past_cache, to / "plain", cached=through_cache)


@contextmanager
def _sftp(ground: Ground) -> Iterator[Destination]:
    to = ground.folder / "sftp"
    (to / "plain").mkdir(parents=True)
    with sshd.serving(ground.folder / "ssh") as server:
        _configure(ground, server.configuration("sftp", to))
        options = ["-q", "-P", str(server.port), "-i", str(server.key_file), "-o", "BatchMode=yes"]
        options += ["-o", f"UserKnownHostsFile={server.known_hosts}", "-b", "-", f"{server.user}@{server.address}"]

        def put(path: Path, name: str) -> None:
            _run("sftp", *options, given=f"put -f {shlex.quote(str(path))} {shlex.quote(str(to / 'plain' / name))}\n")

        yield Destination("sftp", put, to / "plain")


@contextmanager
def _s3(ground: Ground) -> Iterator[Destination]:
    import boto3

    with s3server.serving(ground.folder / "s3") as service:
        service.write_credentials(ground.folder / "credentials")
        _configure(ground, service.configuration("s3", ground.folder / "credentials"))
        client: Any = boto3.client(
            "s3",
            endpoint_url=service.endpoint,
            aws_access_key_id=service.access_key,
            aws_secret_access_key=service.secret_key,
            region_name="us-east-1",
        )

        def upload(path: Path, name: str) -> None:
            client.upload_file(str(path), s3server.BUCKET, f"plain/{name}")

        yield Destination("s3", upload, service.folder / s3server.BUCKET / "plain")


SERVED = {"folder": _folder, "sftp": _sftp, "s3": _s3}


def _configure(ground: Ground, table: str) -> None:
    with ground.config.open("a") as file:
        file.write(table)


# --- odds and ends ---------------------------------------------------------------------------------------------------


def _stored(opened: Any, name: str, size: int, recipient: str) -> StoredObject:
    encryptor, whole, frames = Encryptor([recipient]), sha256(), []
    with opened as writer:
        for begin in range(0, size, _FRAME_MIB << 20):
            frame, stored = sha256(), 0
            end = min(size, begin + (_FRAME_MIB << 20))
            for at in range(begin, end, _BLOCK):
                pieces = list(encryptor.take(os.urandom(min(_BLOCK, end - at))))
                for piece in [*pieces, *(encryptor.end() if at + _BLOCK >= size else ())]:
                    writer.write(piece)
                    frame.update(piece)
                    whole.update(piece)
                    stored += len(piece)
            frames.append(Frame(end - begin, stored, frame.hexdigest()))
    stored_bytes = sum(frame.stored_bytes for frame in frames)
    return StoredObject(name, size, stored_bytes, sha256().hexdigest(), whole.hexdigest(), 1, tuple(frames))


def _key(path: Path) -> tuple[Path, str]:
    """A new identity is in the file; its recipient."""
    from pyrage import x25519

    identity = x25519.Identity.generate()
    path.touch(mode=0o600)
    path.write_text(f"{identity}\n")
    return path, str(identity.to_public())


def _run(*argv: str, given: str = "") -> None:
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{argv[0]} failed: {done.stderr[-1000:]}")


def _forget(path: Path) -> None:
    """It is not in the page cache any more."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
