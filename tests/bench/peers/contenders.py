"""Who takes part, and with which settings: the only place that knows them. All pure.

Each is a shell pipeline that leaves a backup in a folder, and one that unpacks it again. The shell ends with the status
of the first program of a pipeline that failed.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from backupd.lab import configuration
from backupd.lab.site import VOLUME, LabSite
from backupd.lab.sizes import MIB

NOTHING = "nothing"
MYLVMBACKUP = "mylvmbackup, zstd -1"
MARIADB_BACKUP = "mariadb-backup, zstd -1"
MYDUMPER = "mydumper"
BACKUPD = "backupd"
FAST_PV = "backupd, COW area on a fast PV"
TUNED = "backupd, COW area and spool on fast disks"
SPOOL = "backupd, spool"
OUTSIDE = "backupd, compressed outside"
SPOOL_OUTSIDE = "backupd, spool, compressed outside"

# Who reads a snapshot, all else being equal, and by which word this program has him do it.
_READER = "tests.bench.peers.snapshot_reader"
READERS: Mapping[str, str] = MappingProxyType(
    {
        "GNU tar": "tar",
        "GNU tar, read-ahead of 16 MiB": "read-ahead",
        "own reader": "own",
        "own reader, three at once": "own-by-three",
    }
)

_OUTSIDE = "tests.bench.peers.outside"  # is `backupd`, but for who compresses

MYLVM_SNAPSHOT = f"{VOLUME}_snapshot"  # as mylvmbackup names it

_ZSTD = "zstd -1 --quiet"
_MYDUMPER_THREADS = 2
_COW_SHARE = 0.2  # of the volume, as backupd has it by default

# What the configuration that the lab makes for `backupd` says of the snapshot, and after it of the copy.
_ON_FAST_PV = 'size = "480MiB"\npvs = ["{fast_pv}"]'
_SPOOL = '\n\n[jobs.nightly.copy]\nspool = "{spool}"'
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        BACKUPD: configuration.SNAPSHOT,
        FAST_PV: _ON_FAST_PV,
        TUNED: _ON_FAST_PV + _SPOOL,
        SPOOL: configuration.SNAPSHOT + _SPOOL,
        OUTSIDE: configuration.SNAPSHOT,
        SPOOL_OUTSIDE: configuration.SNAPSHOT + _SPOOL,
    }
)
ON_FAST_PV = (FAST_PV, TUNED)
COMPRESSED_OUTSIDE = (OUTSIDE, SPOOL_OUTSIDE)
NAMES = (NOTHING, MYLVMBACKUP, MARIADB_BACKUP, MYDUMPER, BACKUPD, FAST_PV, TUNED)  # in the table's order
IF_ASKED = (SPOOL, *COMPRESSED_OUTSIDE)  # only where they are named


@dataclass(frozen=True, slots=True)
class PeerGround:
    """Where a contender works."""

    site: LabSite
    volume_size: int  # bytes
    fast_pv: Path  # in the group, on a disk that is not slowed


@dataclass(frozen=True, slots=True)
class Contender:
    """One of them, as typed. `restore` starts in an empty folder in memory, where the bytes are to lie."""

    name: str
    backup: str  # a shell's line; empty: nothing is done
    restore: str
    warm_up: str = ":"  # has its programs read before anything is measured
    is_backupd: bool = False
    loads_into_a_server: bool = False  # its restore needs one that is empty; its socket is `$SOCKET`


def contenders(ground: PeerGround, folder: Path) -> Mapping[str, Contender]:
    """All of them by name, in the order of the table. The rivals write into `folder`, backupd to its target."""
    site, stored = ground.site, shlex.quote(str(folder))
    # A job that is not there is refused once all that a run works with has been imported.
    warm_up = f"python -c 'import {_OUTSIDE}'"
    warm_up += " && { backupd --quiet run no-such-job || true; } && backupd --quiet check nightly"
    ours = [Contender(name, _run_of_ours(name), "", warm_up=warm_up, is_backupd=True) for name in SETTINGS]
    root = f"--user=root --socket={shlex.quote(str(site.socket))}"
    everyone = [
        Contender(NOTHING, "", ""),
        Contender(
            MYLVMBACKUP,
            shlex.join(mylvmbackup_argv(ground, folder)),
            f"zstd -dc {stored}/*.tar.zst | tar -x",
            warm_up='perl -c "$(command -v mylvmbackup)" && tar --version && zstd --version && lvs',  # no --version
        ),
        Contender(
            MARIADB_BACKUP,
            f"mariadb-backup --backup --stream=xbstream {root} | {_ZSTD} > {stored}/backup.xb.zst",
            f"zstd -dc {stored}/backup.xb.zst | mbstream -x && mariadb-backup --prepare --target-dir=.",
            warm_up="mariadb-backup --version && zstd --version",
        ),
        Contender(
            MYDUMPER,
            shlex.join(mydumper_argv(site, folder)),
            f'myloader --threads={_MYDUMPER_THREADS} --user=root --socket="$SOCKET" --directory={stored} '
            "--overwrite-tables",
            warm_up="mydumper --version",
            loads_into_a_server=True,
        ),
    ]
    reading = f"python -c 'import {_READER}' && tar --version && lvs"
    readers = [Contender(name, f"python -m {_READER} {how}", "", warm_up=reading) for name, how in READERS.items()]
    return MappingProxyType({one.name: one for one in (*everyone, *ours, *readers)})


def snapshot_settings(name: str, fast_pv: Path, *, spool: Path) -> str:
    """The lines of `[jobs.nightly.snapshot]`, and of what may follow it, with which this one of ours runs."""
    return SETTINGS[name].format(fast_pv=fast_pv, spool=spool)


def mylvmbackup_argv(ground: PeerGround, folder: Path) -> list[str]:
    """Its package's configuration, which it does not start without, but for zstd instead of `gzip --best`.

    The snapshot is as large as ours; its chunk size is LVM's default, for it has no option for another.
    """
    site = ground.site
    return [
        *("mylvmbackup", "--user=root", f"--socket={site.socket}", "--skip_mycnf"),
        *(f"--vgname={site.volume_group}", f"--lvname={VOLUME}", f"--relpath={site.datadir.name}", "--xfs"),
        *(f"--lvsize={int(ground.volume_size * _COW_SHARE) // MIB}m", "--skip_hooks", "--quiet"),
        *(f"--mountdir={site.runtime}/mylvmbackup", f"--backupdir={folder}"),
        f"--backuplv={MYLVM_SNAPSHOT}",
        *("--compress=zstd", "--compressarg=-1 --quiet --stdout", "--tarfilesuffix=.tar.zst"),
    ]


def mydumper_argv(site: LabSite, folder: Path) -> list[str]:
    """Everything but the server's own schemas; it compresses with zlib, and knows nothing else here."""
    return [
        *("mydumper", "--user=root", f"--socket={site.socket}", f"--threads={_MYDUMPER_THREADS}", "--compress"),
        *("--regex=^(?!(mysql|sys|performance_schema|information_schema)\\.)", f"--outputdir={folder}"),
    ]


def _run_of_ours(name: str) -> str:
    program = f"python -m {_OUTSIDE}" if name in COMPRESSED_OUTSIDE else "backupd"
    return f"{program} --quiet run nightly"


def ours_restored(run_id: str) -> str:
    """The line that restores a backup of ours."""
    return f"backupd --quiet restore {shlex.quote(run_id)} --to ."


def turns(names: Sequence[str], round_number: int) -> list[str]:
    """Their order in a round: everyone begins one in turn, so that no place in it is always the same one's."""
    first = round_number % len(names)
    return [*names[first:], *names[:first]]
