"""Four disks that behave as asked, and the volume on them.

Knows: nbdkit's and dm-delay's arguments, LVM's filter, how `data` is cut. The disk models and their figures are
explained in docs/pages/development/lab.md.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backupd.host.process import run, spawned
from backupd.lab.options import DiskModel, Filesystem, LabLayout
from backupd.lab.plan import Plan
from backupd.lab.site import POOL, VOLUME, LabSite
from backupd.lab.sizes import POOL_CHUNK_SIZE, POOL_METADATA_SIZE, STRIPE_SIZE, STRIPES, Sizes
from backupd.vocabulary.errors import LabError

_DELAY = "4ms"  # a seek; nbdkit serves one request at a time, reads included
_RATE = "1200M"  # bits a second: 150 MiB/s of one disk
# nbdkit's bucket is as large as one piece: what fills it while a disk is idle or seeks pays for no more than that.
# Smaller pieces would be more exact, but the machine's kernel wakes a sleeper up to a millisecond late.
_PIECE = "256K"
_BURST_SECONDS = 0.00175  # one piece at that rate; a smaller bucket never holds enough for one
_REQUEST_KIB = 1280  # the largest that the kernel makes for a SATA disk (its BLK_DEF_MAX_SECTORS)
_WRITE_DELAY_MILLISECONDS = 5
_QUICK_SECONDS = 60.0
_SLOW_SECONDS = 300.0
# What LVM touches before it suspends a device, 8 MiB by default, so that it need not ask for memory meanwhile; of this
# it was seen to use none (2.03.16, groups of one and of 121 volumes). Each page of it is a fault, which takes user-mode
# Linux 65 us: 130 ms under the server's lock, where the machine around it takes 6.
_RESERVED_KIB = 512

_WITHOUT_UDEV = """devices {
    obtain_device_list_from_udev = 0
    external_device_info_source = "none"
}
global {
    event_activation = 0
}
activation {
    udev_sync = 0
    udev_rules = 0
    verify_udev_operations = 0
}
"""


@contextmanager
def presented(model: DiskModel, raw: Sequence[Path], site: LabSite) -> Iterator[tuple[Path, ...]]:
    """The raw devices as disks of that model, for the length of the block, in the same order.

    Raises:
        CommandError: a program is missing or failed.
        LabError: no free nbd device, or nbdkit did not come up.
    """
    with ExitStack() as owed:
        match model:
            case DiskModel.SSD:
                yield tuple(raw)
            case DiskModel.HDD:
                run(["modprobe", "nbd"], timeout_seconds=_QUICK_SECONDS)
                yield tuple([owed.enter_context(_slow_disk(device, site)) for device in raw])
            case DiskModel.DELAY:
                yield tuple([owed.enter_context(_delayed_disk(device, site)) for device in raw])


def nbdkit_argv(device: Path, socket: Path) -> list[str]:
    """One disk arm: requests are served one at a time, each after a delay, and then for as long as its bytes take."""
    return [
        *("nbdkit", "--foreground", "--threads", "1", "--unix", str(socket)),
        *("--filter=delay", "--filter=blocksize", "--filter=rate", "file", str(device)),  # the first sees it first
        *(f"delay-read={_DELAY}", f"delay-write={_DELAY}"),
        *(f"maxdata={_PIECE}", f"rate={_RATE}", f"burstiness={_BURST_SECONDS}"),
    ]


def delay_table(device: Path, size: int) -> str:
    """A dm-delay table: reads at once, writes late. `size` is bytes."""
    return f"0 {size // 512} delay {device} 0 0 {device} 0 {_WRITE_DELAY_MILLISECONDS}"


def lvm_configuration(devices: Sequence[Path], *, with_udev: bool) -> str:
    """An lvmlocal.conf with which LVM sees these devices and no others; without udev, it asks none."""
    accepted = ", ".join(f'"a|^{device}$|"' for device in devices)
    seen = f"""devices {{
    use_devicesfile = 0
    filter = [ {accepted}, "r|.*|" ]
    global_filter = [ {accepted}, "r|.*|" ]
    hints = "none"
}}
activation {{
    reserved_memory = {_RESERVED_KIB}
}}
"""
    return seen if with_udev else seen + _WITHOUT_UDEV


def volume_argv(
    site: LabSite, layout: LabLayout, disks: Sequence[Path], sizes: Sizes, *, name: str = VOLUME
) -> list[str]:
    """`lvcreate` of `data` on the first three disks, equally much on each; the fourth stays free."""
    extents = sizes.extents_a_disk
    start = ["lvcreate", "--yes", "--name", name, "--extents", str(extents * STRIPES)]
    if layout is LabLayout.STRIPED:
        stripes = ["--stripes", str(STRIPES), "--stripesize", f"{STRIPE_SIZE}b"]
        return [*start, *stripes, site.volume_group, *(str(disk) for disk in disks[:STRIPES])]
    return [*start, site.volume_group, *(f"{disk}:0-{extents - 1}" for disk in disks[:STRIPES])]


def pool_argvs(site: LabSite, layout: LabLayout, disks: Sequence[Path], sizes: Sizes) -> list[list[str]]:
    """What makes `data` a volume of a thin pool that is as large, lies as `data` would, and has its metadata apart.

    Not by one `lvcreate`, which would put the metadata on one of the three disks, and write to it as `data` is written.
    """
    group, metadata = site.volume_group, f"{POOL}_metadata"
    chunk = ["--chunksize", f"{POOL_CHUNK_SIZE}b"]
    return [
        volume_argv(site, layout, disks, sizes, name=POOL),
        ["lvcreate", "--yes", "--name", metadata, "--size", f"{POOL_METADATA_SIZE}b", group, str(disks[STRIPES])],
        [
            "lvconvert",
            "--yes",
            "--type",
            "thin-pool",
            *chunk,
            "--poolmetadata",
            f"{group}/{metadata}",
            f"{group}/{POOL}",
        ],
        ["lvcreate", "--yes", "--name", VOLUME, "--virtualsize", f"{sizes.volume}b", "--thinpool", f"{group}/{POOL}"],
    ]


def format_argv(filesystem: Filesystem, device: Path) -> list[str]:
    """The file system's maker; discards are left out because a sparse file has nothing to discard yet."""
    if filesystem is Filesystem.XFS:
        return ["mkfs.xfs", "-q", "-K", str(device)]
    return ["mkfs.ext4", "-q", "-E", "nodiscard", str(device)]


def restrict_lvm(site: LabSite, disks: Sequence[Path], *, with_udev: bool) -> None:
    """From now on LVM, by this site's configuration, touches only these disks."""
    site.lvm_system.mkdir(parents=True, exist_ok=True)
    (site.lvm_system / "lvmlocal.conf").write_text(lvm_configuration(disks, with_udev=with_udev), encoding="utf-8")


def make_volume(site: LabSite, plan: Plan, disks: Sequence[Path]) -> None:
    """Volume group, `data` and its file system exist and are active."""
    run(["vgcreate", "--yes", site.volume_group, *map(str, disks)], timeout_seconds=_QUICK_SECONDS)
    thick = [volume_argv(site, plan.layout, disks, plan.sizes)]
    for argv in pool_argvs(site, plan.layout, disks, plan.sizes) if plan.thin else thick:
        run(argv, timeout_seconds=_QUICK_SECONDS)
    run(format_argv(plan.filesystem, site.volume_path), timeout_seconds=_SLOW_SECONDS)


@contextmanager
def active(site: LabSite) -> Iterator[None]:
    """The volume group is active within the block and not after it, whatever the command left mounted of it."""
    run(["vgchange", "--activate", "y", site.volume_group], timeout_seconds=_QUICK_SECONDS)
    try:
        yield
    finally:
        for left in mount_points_of(site, Path("/proc/self/mounts").read_text(encoding="utf-8")):
            run(["umount", left], timeout_seconds=_SLOW_SECONDS, must_finish=True)
        run(["vgchange", "--activate", "n", site.volume_group], timeout_seconds=_SLOW_SECONDS, must_finish=True)


def mount_points_of(site: LabSite, mounts: str) -> list[str]:
    """Where volumes of this group are mounted, the latest first. `mounts` is proc(5)'s, with octal escapes."""
    prefixes = (f"/dev/mapper/{site.volume_group}-", f"/dev/{site.volume_group}/")
    fields = [line.split(" ") for line in mounts.splitlines()]
    return [_unescaped(field[1]) for field in reversed(fields) if field[0].startswith(prefixes)]


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


@contextmanager
def mounted(device: Path, mount_point: Path) -> Iterator[None]:
    """The device is mounted within the block and not after it."""
    mount_point.mkdir(parents=True, exist_ok=True)
    run(["mount", str(device), str(mount_point)], timeout_seconds=_QUICK_SECONDS)
    try:
        yield
    finally:
        run(["umount", str(mount_point)], timeout_seconds=_SLOW_SECONDS, must_finish=True)


@contextmanager
def _slow_disk(device: Path, site: LabSite) -> Iterator[Path]:
    socket = site.runtime / f"{device.name}.nbd"
    with (
        (site.runtime / "nbdkit.log").open("ab") as log,
        spawned(nbdkit_argv(device, socket), stdout=log, stderr=log) as server,
    ):
        deadline = time.monotonic() + _QUICK_SECONDS
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"nbdkit does not serve {device}", hint=f"its output: {_last_words(log.name)}")
            time.sleep(0.02)
        slow = _free_nbd_device()
        run(["nbd-client", "-unix", str(socket), str(slow), "-b", "512"], timeout_seconds=_QUICK_SECONDS)
        try:
            _look_like_a_disk(slow)
            yield slow
        finally:
            run(["nbd-client", "-d", str(slow)], timeout_seconds=_QUICK_SECONDS)


def _look_like_a_disk(slow: Path) -> None:
    """The kernel takes it for one that turns, and makes requests as large as for one; it would cut them at 128 KiB.

    Before LVM sees it: a device of device mapper takes the limits that those under it have when its table is loaded.
    """
    queue = Path("/sys/block", slow.name, "queue")
    (queue / "max_sectors_kb").write_text(str(_REQUEST_KIB), encoding="ascii")
    (queue / "rotational").write_text("1", encoding="ascii")


def _free_nbd_device() -> Path:
    for number in range(16):  # the module's default nbds_max
        if not Path(f"/sys/block/nbd{number}/pid").exists() and Path(f"/dev/nbd{number}").exists():
            return Path(f"/dev/nbd{number}")
    raise LabError("no nbd device is free", hint="end other users of nbd, or use --disks ssd")


def _last_words(log: str) -> str:
    return Path(log).read_text(encoding="utf-8", errors="replace").strip()[-500:] or "(nothing)"


@contextmanager
def _delayed_disk(device: Path, site: LabSite) -> Iterator[Path]:
    size = int(run(["blockdev", "--getsize64", str(device)], timeout_seconds=_QUICK_SECONDS).stdout)
    name = f"{site.prefix}-{device.name}"
    table = delay_table(device, size)
    run(["dmsetup", "create", name, "--table", table], timeout_seconds=_QUICK_SECONDS, must_finish=True)
    try:
        yield Path("/dev/mapper") / name
    finally:
        run(["dmsetup", "remove", "--retry", name], timeout_seconds=_SLOW_SECONDS, must_finish=True)
