"""Where the kernel says that a folder lies, by what it knows a file, and what keeps a mount from going.

As root, in a mount namespace of the tests' own. That it or a loop device cannot be had is an error, not a skip.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import backupd

_LAYOUT = """
set -e
truncate -s 16M volume.img
mkfs.ext4 -q -E lazy_itable_init=0,nodiscard volume.img
mkdir volume datadir snapshot
mount -o loop volume.img volume
mkdir -p volume/tenants/one/shop volume/tenants/one/redo volume/elsewhere
echo one > volume/tenants/one/ibdata1
echo two > volume/ibdata1
mount --bind volume/tenants/one datadir
mount --bind volume/elsewhere datadir/redo
mkdir glanced kept
mount -t tmpfs tmpfs glanced
mount -t tmpfs tmpfs kept
ln -s datadir link
sync
cp --sparse=always volume.img snapshot.img
mount -o loop,ro,noload snapshot.img snapshot
exec "$@"
"""
_LOOK = """
import json, logging
from pathlib import Path
from backupd.vocabulary.errors import SnapshotError
from backupd.host.filesystem import identity
from backupd.lvm.mounting import LinuxMounts, mount_of, mounts_below

class Glance(logging.Handler):  # somebody has a file open until it is waited for
    def __init__(self, folder):
        super().__init__()
        self.file = (folder / "file").open("w")
        self.waited = ""

    def emit(self, record):
        self.waited = record.getMessage()
        self.file.close()

def unmounted(folder, *, glance=None):
    log = logging.getLogger("backupd.lvm.mounting")
    log.setLevel(logging.INFO)
    log.addHandler(glance)
    LinuxMounts().unmount(folder)
    log.removeHandler(glance)
    return [folder.exists(), glance.waited]

def kept(folder):
    with (folder / "file").open("w"):
        try:
            LinuxMounts(patience_seconds=0).unmount(folder)
        except SnapshotError as error:
            return error.message

def told(path):
    mount, real = mount_of(path), path.resolve()
    return [mount.path.name, mount.filesystem, str(mount.inside(real))]

datadir, snapshot = Path("datadir"), Path("snapshot")
known = {str(path): [identity(path).inode, identity(path).generation] for path in (
    datadir, datadir / "ibdata1", snapshot / "tenants/one", snapshot / "tenants/one/ibdata1", snapshot / "ibdata1",
)}
print(json.dumps({
    "datadir": told(datadir), "link": told(Path("link")), "file": told(datadir / "ibdata1"),
    "redo": told(datadir / "redo"), "shop": told(datadir / "shop"),
    "below": [path.name for path in mounts_below(datadir.resolve())],
    "same device": mount_of(datadir).device == mount_of(datadir / "redo").device == mount_of(Path("volume")).device,
    "known": known,
    "glanced": unmounted(Path("glanced"), glance=Glance(Path("glanced"))), "kept": kept(Path("kept")),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What is seen of a datadir behind a bind mount, with another one in it."""
    folder = tmp_path_factory.mktemp("places")
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _LAYOUT, "sh", sys.executable, "-c", _LOOK]
    environment = {"PYTHONPATH": str(Path(backupd.__file__).parents[1]), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    ran = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    if "unshare:" in ran.stderr or "mount:" in ran.stderr:
        pytest.fail(f"run the tests as root, with CAP_SYS_ADMIN and loop devices: {ran.stderr}", pytrace=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_folder_behind_a_bind_mount_is_told_by_its_place_in_the_file_system(told: dict[str, object]) -> None:
    assert told["datadir"] == told["link"] == ["datadir", "ext4", "tenants/one"]
    assert told["shop"] == ["datadir", "ext4", "tenants/one/shop"]
    assert told["file"] == ["datadir", "ext4", "tenants/one/ibdata1"]


def test_mount_of_the_same_file_system_within_a_folder_is_seen_though_its_device_is_the_same(
    told: dict[str, object],
) -> None:
    assert told["redo"] == ["redo", "ext4", "elsewhere"]
    assert (told["below"], told["same device"]) == (["redo"], True)


def test_file_is_known_again_in_a_copy_of_its_file_system_and_no_other_is_taken_for_it(
    told: dict[str, object],
) -> None:
    known = told["known"]
    assert isinstance(known, dict)
    assert known["datadir"] == known["snapshot/tenants/one"]
    assert known["datadir/ibdata1"] == known["snapshot/tenants/one/ibdata1"] != known["snapshot/ibdata1"]
    assert all(isinstance(generation, int) for _, generation in known.values())


def test_mount_that_somebody_looks_at_for_a_moment_is_waited_for_and_then_gone(told: dict[str, object]) -> None:
    glanced = told["glanced"]
    assert isinstance(glanced, list)
    there, said = glanced
    assert not there
    assert "glanced could not be unmounted" in said
    assert "in use by process" in said
    assert "waiting for up to 30 s" in said


def test_mount_that_somebody_keeps_is_told_with_whoever_has_it(told: dict[str, object]) -> None:
    assert "kept could not be unmounted" in str(told["kept"])
    assert "in use by process" in str(told["kept"])


_DAEMONS_SANDBOX = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
cd "$1"
for name in plain bound disk; do mkdir "$name"; mount -t tmpfs "$name" "$name"; done
mount -o remount,bind,ro bound
mount -o remount,ro disk
unshare --mount sh -c 'mount -o remount,bind,ro plain; mount -o remount,bind,ro /; exec "$@"' sh "$2" -c "$3"
:
"""
_SEEN_BY_THE_DAEMON = """
import json
from pathlib import Path
from backupd.config import DirectoryConfig
from backupd.service.target_rooms import look_at

def up(name):
    return look_at(DirectoryConfig(name=name, type="directory", path=Path.cwd() / name)).up

print(json.dumps({name: up(name) for name in ("plain", "bound", "disk")}))
"""


def test_folder_that_is_read_only_in_the_daemons_sandbox_alone_is_there_for_its_runs(tmp_path: Path) -> None:
    """As under `ProtectSystem=strict`; the shell is process 1, as systemd is, and its mounts are what a run sees."""
    alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    argv = [*alone, "sh", "-c", _DAEMONS_SANDBOX, "sh", str(tmp_path), sys.executable, _SEEN_BY_THE_DAEMON]
    environment = {"PYTHONPATH": str(Path(backupd.__file__).parents[1]), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    seen = subprocess.run(argv, stdout=subprocess.PIPE, env=environment | {"INVOCATION_ID": "1"}, check=True).stdout
    assert json.loads(seen) == {"plain": True, "bound": False, "disk": False}
