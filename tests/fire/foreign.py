"""Other people's things beside ours, with names and tags that look like ours, generated from a seed.

Knows: what backupd must never take for its own: an LV that lacks one of the three tags, or bears another machine's, a
device-mapper device that is only called so, a mount, a process that has LVM's name, a schema, and files and objects
beside those of a backup. `marks` tells of each what shows that it was touched.
"""

import hashlib
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backupd.lvm import MACHINE_TAG, RUN_TAG, TAG
from tests.fire.world import SITE, World
from tests.lab.inside.host import tool

_UNWATCHED = ("--config", "activation/monitoring=0")
_SIZE = "4m"

Ask = Callable[[str], list[tuple[Any, ...]]]  # a statement, its rows


@dataclass(frozen=True, slots=True)
class Foreign:
    """What is not ours, for the length of its block."""

    folders: Sequence[Path]  # that hold nothing but what is foreign
    files: Sequence[Path]
    volumes: Mapping[str, str]  # its name, its uuid
    devices: Sequence[str]
    mounts: Sequence[Path]
    pids: Sequence[int]
    tables: Sequence[str]

    def marks(self, *, volumes: Mapping[str, str], mounts: frozenset[str], ask: Ask) -> dict[str, str]:
        """Each of them that is there, with what shows a change. `volumes` are those of the machine, by `vg/lv uuid`."""
        found: dict[str, str] = {f"volume {name}": volumes[name] for name in self.volumes if name in volumes}
        found |= {f"device {name}": "there" for name in self.devices if Path("/dev/mapper", name).exists()}
        found |= {f"mount {path}": "there" for path in self.mounts if str(path) in mounts}
        found |= {f"process {pid}": "there" for pid in self.pids if _is_alive(pid)}
        for table in self.tables:
            [(_, checksum)] = ask(f"CHECKSUM TABLE {table}")
            if checksum is not None:  # as of a table that is not there
                found[f"table {table}"] = str(checksum)
        for path in (*self.files, *(path for folder in self.folders for path in sorted(folder.rglob("*")))):
            with suppress(FileNotFoundError):
                found[f"file {path}"] = _digest(path)
        return found


@contextmanager
def planted(world: World, luck: random.Random, machine: str) -> Iterator[Foreign]:
    """They are there for the length of the block. `machine` is ours."""
    other = f"{machine.rpartition('-')[0]}-{luck.randrange(1 << 32):08x}"
    run_id = f"20260101-000000-{luck.randrange(1 << 16):04x}"
    with ExitStack() as owed:
        volumes = {}
        for number, tags in enumerate(_tags(machine, other, run_id)):
            name = f"backupd-{run_id}-{number}"
            tool("lvcreate", "--yes", *_UNWATCHED, "--name", name, "--size", _SIZE, *_tagged(tags), SITE.volume_group)
            volumes[f"{SITE.volume_group}/{name}"] = run_id
        snapshot = f"backupd-{run_id}-cow"
        origin = f"{SITE.volume_group}/backupd-{run_id}-0"
        tool("lvcreate", "--yes", *_UNWATCHED, "--snapshot", "--name", snapshot, "--size", _SIZE, origin)
        volumes[f"{SITE.volume_group}/{snapshot}"] = run_id
        device = f"{SITE.volume_group}-backupd--{run_id.replace('-', '--')}--x"
        tool("dmsetup", "create", device, "--table", "0 8 zero")
        mount = world.folder / "mnt" / run_id
        mount.mkdir(parents=True)
        tool("mount", "-t", "tmpfs", "-o", "size=1m", "backupd", str(mount))
        shell = owed.enter_context(_process_called("lvm", run_id))
        schema = f"backupd_{luck.randrange(1 << 16):04x}"
        table = f"{schema}.canary"
        tool("mariadb", f"--execute=CREATE DATABASE {schema}; CREATE TABLE {table} SELECT '{run_id}' AS run_id")
        folders = [_others_backup(root, other, run_id) for root in world.targets.values()]
        folders.append(_written(world.folder / "staging-not" / f"drill-{run_id}", "data").parent)
        files = [file for root in world.targets.values() for file in _beside_ours(root, machine, run_id)]
        files += [_written(SITE.mount_point / "backupd-notes", "text"), _written(mount / ".backupd", "text")]
        yield Foreign(folders, files, volumes, (device,), (mount,), (shell.pid,), (table,))


def _tags(machine: str, other: str, run_id: str) -> list[list[str]]:
    """Whose all of these are is somebody else's: a mark is three tags, one of each kind, of this machine."""
    return [
        [],
        [TAG],
        [TAG, f"{RUN_TAG}{run_id}"],
        [TAG, f"{MACHINE_TAG}{machine}"],
        [f"{MACHINE_TAG}{machine}", f"{RUN_TAG}{run_id}"],
        [TAG, f"{MACHINE_TAG}{other}", f"{RUN_TAG}{run_id}"],
        [TAG, f"{MACHINE_TAG}{machine}", f"{MACHINE_TAG}{other}", f"{RUN_TAG}{run_id}"],
    ]


def _tagged(tags: Sequence[str]) -> list[str]:
    return [word for tag in tags for word in ("--addtag", tag)]


def _others_backup(root: Path, other: str, run_id: str) -> Path:
    """An unfinished and a finished one of another machine, and what it is writing now."""
    for name in (f"{run_id}/manifest.json", f"{run_id}/data-1.tar.zst", "half/.data-1.tar.zst.partial", "half/index"):
        _written(root / other / "nightly" / name, f"of {other}")
    return root / other


def _beside_ours(root: Path, machine: str, run_id: str) -> list[Path]:
    """Where backupd writes, but nothing that it writes."""
    names = ["notes.txt", "by hand/data-1.tar.zst", f".{run_id}", "nightly.txt"]
    return [_written(root / machine / "nightly" / name, "mine") for name in names] + [_written(root / "README", "mine")]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


@contextmanager
def _process_called(name: str, run_id: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Somebody's program of this name, with a run's id among its words."""
    words = ["bash", "-c", f"exec -a {name} sleep 86400 {run_id.partition('-')[0]}"]
    with subprocess.Popen(words, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _digest(path: Path) -> str:
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "folder"
    return f"{content} {status.st_mode:o} {status.st_mtime_ns if path.is_file() else 0}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
