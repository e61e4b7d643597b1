"""A snapshot of the volume, read once by one of several readers: `python -m tests.bench.peers.snapshot_reader HOW`.

Made without a lock, with the chunk size that a backup takes on these disks: what differs is who reads. It is removed as
soon as it has been read.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from backupd.archive.listing import Listing, divide
from backupd.archive.source_file import ReadingThread, batches
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.tarring import tar_stream
from backupd.host.process import run
from backupd.lab.site import VOLUME, LabSite, guest_site
from tests.bench.peers.contenders import MYLVM_SNAPSHOT

_COW_EXTENTS = "20%ORIGIN"
_CHUNK = "512k"
_READ_AHEAD_SECTORS = (16 << 20) // 512
_LVM_SECONDS = 60.0
_READ_SECONDS = 900.0


def _tar(root: Path, _device: Path) -> None:
    """GNU tar reads nothing where its output is /dev/null itself (its manual, "Dealing with Compressed Archives")."""
    line = ["bash", "-o", "pipefail", "-c", 'tar --sparse -C "$0" -cf - . | cat > /dev/null', str(root)]
    subprocess.run(line, check=True, timeout=_READ_SECONDS)


def _tar_with_read_ahead(root: Path, device: Path) -> None:
    run(["blockdev", "--setra", str(_READ_AHEAD_SECTORS), str(device)], timeout_seconds=_LVM_SECONDS)
    _tar(root, device)


def _own(streams: int) -> Callable[[Path, Path], None]:
    def read(root: Path, _device: Path) -> None:
        listing = list_members(root, Exclusions(datadir=PurePosixPath()))
        parts = [part for stream in divide(listing, streams, object_size=sys.maxsize) for part in stream]
        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(lambda part: _read_part(root, part), parts))

    return read


def _read_part(root: Path, part: Listing) -> None:
    """By a thread of its own: so many requests are in flight as there are parts."""
    with ReadingThread(gently=True, idle=lambda: None) as reader:
        for batch in batches(tar_stream(root, part)):
            reader.do(lambda content, batch=batch: content.blocks(batch))  # type: ignore[misc]


HOW: Mapping[str, Callable[[Path, Path], None]] = MappingProxyType(
    {"tar": _tar, "read-ahead": _tar_with_read_ahead, "own": _own(1), "own-by-three": _own(3)}
)


@contextmanager
def _snapshot(site: LabSite) -> Iterator[tuple[Path, Path]]:
    """Where it is mounted, and its device."""
    group, device = site.volume_group, Path(f"/dev/{site.volume_group}/{MYLVM_SNAPSHOT}")
    argv = ["lvcreate", "--yes", "--snapshot", "--name", MYLVM_SNAPSHOT, "--chunksize", _CHUNK]
    run([*argv, "--extents", _COW_EXTENTS, f"{group}/{VOLUME}"], timeout_seconds=_LVM_SECONDS, must_finish=True)
    try:
        root = site.runtime / "snapshot"
        root.mkdir(exist_ok=True)
        run(["mount", "-o", "ro,nouuid", str(device), str(root)], timeout_seconds=_LVM_SECONDS)
        try:
            yield root, device
        finally:
            run(["umount", str(root)], timeout_seconds=_LVM_SECONDS)
    finally:
        run(["lvremove", "--yes", f"{group}/{MYLVM_SNAPSHOT}"], timeout_seconds=_LVM_SECONDS, must_finish=True)


if __name__ == "__main__":
    read = HOW[sys.argv[1]]
    with _snapshot(guest_site()) as (mounted, snapshot_device):
        read(mounted, snapshot_device)
