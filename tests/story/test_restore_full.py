"""A restore onto a disk that others fill meanwhile: it ends at once, with a sentence, and gives back what it took.

The disk is a small tmpfs in a mount namespace of a child's own.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import UsageError
from tests.fakes.target import BELIEVED, MACHINE
from tests.story.stored import JOB, RUN, Stream, content, put_in

pytestmark = pytest.mark.thorough

MIB = 1 << 20
DISK_BYTES = 40 * MIB
SMALL_FILES = [("./", b""), *((f"t{i}.ibd", content(f"t{i}", MIB)) for i in range(32))]
ONE_LARGE_FILE = [("./", b""), ("t.ibd", content("t", 32 * MIB))]


class Filling(DirectoryTarget):
    """While it is read, a neighbour takes most of the disk."""

    neighbour: Path
    read = 0

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        with super().reading(job, backup_id, name, **which) as chunks:
            yield self._counted(chunks) if name.startswith("data-") else chunks

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        self.neighbour.write_bytes(bytes(DISK_BYTES * 7 // 8))
        for chunk in chunks:
            self.read += len(chunk)
            yield chunk


def restore_there(vault: Path, disk: Path) -> None:
    """In the child."""
    target = Filling(vault.name, vault, machine=MACHINE)
    target.neighbour = disk / "neighbour"
    try:
        restore([BackupSource(target, JOB, RUN, BELIEVED)], to=disk / "restored")
    except UsageError as error:
        left = [path.name for path in disk.iterdir()]
        document = {"message": error.message, "hint": error.hint, "read": target.read, "left": left}
        sys.stdout.write(json.dumps(document))


@pytest.mark.parametrize("stream", [SMALL_FILES, ONE_LARGE_FILE], ids=["small files", "one large file"])
def test_a_disk_that_fills_meanwhile_ends_the_restore_at_once(tmp_path: Path, stream: Stream) -> None:
    vault, disk = put_in(tmp_path / "vault", {"data-1.tar.zst": stream}), tmp_path / "disk"
    disk.mkdir()
    code = (
        "from pathlib import Path; from tests.story.test_restore_full import restore_there;"
        f" restore_there(Path({str(vault)!r}), Path({str(disk)!r}))"
    )
    mount = f"mount -t tmpfs -o size={DISK_BYTES} none {shlex.quote(str(disk))}"
    child = f"{mount} && exec {shlex.join([sys.executable, '-c', code])}"
    alone = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c", child]
    said = subprocess.run(alone, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    told = json.loads(said.stdout)
    assert told["message"] == f"no space left in {disk / 'restored'} for data-1.tar.zst"
    assert told["hint"]
    assert told["read"] < (vault / MACHINE / JOB / RUN / "data-1.tar.zst").stat().st_size // 2
    assert told["left"] == ["neighbour"]
