"""How far a run has come, read off the world and not off the run: each is asked with the run's id."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.lab.inside.host import RUN_FOLDER, SITE, catalogue_rows, mounted, stored, tool


def begun(run_id: str) -> bool:
    """Its row is there."""
    return bool(catalogue_rows("SELECT 1 FROM runs WHERE run_id = ?", run_id))


def probing(run_id: str) -> bool:
    """Its probe file is there: it measures the baseline."""
    return any((SITE.mount_point / f".backupd-probe-{run_id}").glob("*"))


def locked(run_id: str) -> bool:
    """LVM makes its COW area: that is done under the lock only."""
    return Path(f"/dev/mapper/{SITE.volume_group}-backupd--{run_id.replace('-', '--')}").exists()


def snapshotted(run_id: str) -> bool:
    """Its COW area is a snapshot's by now: the kernel copies on write."""
    name = f"{SITE.volume_group}-backupd--{run_id.replace('-', '--')}"
    table = subprocess.run(["dmsetup", "table", name], capture_output=True, text=True, check=False)
    return " snapshot " in table.stdout


def unlocked(run_id: str) -> bool:
    """The row that is written just after the unlock is there: the gate begins to watch."""
    statement = f"SELECT 1 FROM backupd_canary.canary WHERE run_id = '{run_id}' AND moment = 'after'"
    return locked(run_id) and bool(tool("mariadb", "--batch", "--skip-column-names", f"--execute={statement}"))


def copying(run_id: str) -> bool:
    """The snapshot is mounted."""
    return str(RUN_FOLDER / "mnt" / run_id) in mounted()


def storing_to(target: Path) -> Callable[[str], bool]:
    """The moment when an object has been begun on this target."""

    def storing(run_id: str) -> bool:
        return any(stored(target, run_id).glob(".*"))

    return storing


def copied(run_id: str) -> bool:
    """The last object has its final name."""
    return (stored(SITE.backups, run_id) / "binlog.tar.zst").exists()
