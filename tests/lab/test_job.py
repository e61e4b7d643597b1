"""The main job on real LVM under a real, loaded server: good runs, interrupted ones, and every kind of bad input.

What is tested stands in `inside/inside_*.py` and runs as root in the lab's machine; here a machine is started for each
group of them. A lab that cannot start is a failure: there is no skip.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
BACKUPD = Path(sys.executable).with_name("backupd")
ROWS = 5000
DEADLINE_SECONDS = 400


@dataclass(frozen=True)
class Group:
    """Tests that share a machine, and the machine that they want."""

    name: str
    files: tuple[str, ...]
    layout: str = "striped"
    filesystem: str = "xfs"
    load: str = "20"  # transactions a second: a rate, so that a slow machine is not a saturated one

    def __str__(self) -> str:
        return self.name


GROUPS = [
    Group("striped xfs", ("tests/lab/inside/inside_good_run.py",)),
    Group("linear ext4", ("tests/lab/inside/inside_good_run.py",), layout="linear", filesystem="ext4"),
    Group("interruptions", ("tests/lab/inside/inside_interruptions.py",)),
    Group("bad input", ("tests/lab/inside/inside_refusals.py", "tests/lab/inside/inside_mishaps.py")),
    Group("contracts", ("tests/contract/test_snapshots.py",), load="none"),
]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_job_in_the_lab(group: Group, tmp_path: Path) -> None:
    pytest_words = ["-p", "no:cacheprovider", "-q", "--timeout=120", "--durations=5", *group.files]
    machine = [
        *("--rows", str(ROWS), "--disks", "ssd", "--load", group.load),
        *("--layout", group.layout, "--filesystem", group.filesystem),
        *("--out", str(tmp_path), "--deadline", str(DEADLINE_SECONDS)),
    ]
    environment = [f"LAB_LAYOUT={group.layout}", f"LAB_FILESYSTEM={group.filesystem}"]
    command = ["env", f"--chdir={CHECKOUT}", *environment, "python", "-m", "pytest", *pytest_words]
    done = subprocess.run(
        [str(BACKUPD), "lab", "run", *machine, "--", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
