"""The main job on real LVM under a real, loaded server: good runs, interrupted ones, and every kind of bad input.

What is tested stands in `inside/inside_*.py` and runs as root in the lab's machine; here a machine is started for each
group of them, as many at a time as there are processors (two at the most), each on a processor of its own. Two more,
or one where memory is short, take what they leave: a machine works half of its time and waits the other half, and the
groups that wait most are for those. The lab's own tests run beside them. A lab that cannot start is a failure: there is
no skip.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.lab.room import memory_available
from tests.lab.figures import FIGURE

CHECKOUT = Path(__file__).parents[2]
BACKUPD = Path(sys.executable).with_name("backupd")
ROWS = 5000
DEADLINE_SECONDS = 1800  # of a group, which takes a tenth of that where the machine has nothing else to do
MACHINES_AT_A_TIME = 2  # with a processor each
MACHINES_BESIDE = 2
MEMORY_OF_ALL = 20 << 30  # bytes, of five machines: these and one of the lab's own tests

pytestmark = pytest.mark.timeout(DEADLINE_SECONDS + 300)

CONTRACTS = (  # with what is real in the lab alone: the others pass the same suites in `make thorough-tests`
    *(f"tests/contract/test_{name}.py" for name in ("snapshots", "targets", "scratch_volumes", "scratch_disks")),
    *("-k", "lvm or linux or directory or not (fake or memory or sftp or s3 or blobs)"),
)

Results = Mapping["Group", "Future[Done]"]


@dataclass(frozen=True)
class Group:
    """Tests that share a machine, and the machine that they want."""

    name: str
    files: tuple[str, ...]
    layout: str = "striped"
    filesystem: str = "xfs"
    load: str = "20"  # transactions a second: a rate, so that a slow machine is not a saturated one
    thin: bool = False
    disks: str = "ssd"
    server: str = "mariadb-10.11"
    kernel: str = (
        "uml"  # the newest; or uml-installed, Debian 12's own: another rhythm, in which a fault was found once
    )
    init: str = "script"  # or systemd, and with it udev, as on most hosts: what a machine does takes it longer then
    spare_disks: int = 0
    waits: bool = False  # two thirds of its time: it sleeps, or its disks are slow
    figures: bool = False  # compares what we measure with what others do: minutes for each figure, in `make test-all`
    matrix: bool = False  # what another group tries, with another server, layout or kernel: in `make test-all`

    def __str__(self) -> str:
        return self.name

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """By which the targets of `make test-all` choose it; without any it is one of `make lab-tests`."""
        return [*([pytest.mark.figures] if self.figures else []), *([pytest.mark.matrix] if self.matrix else [])]

    def argv(self, out: Path) -> list[str]:
        """The command that starts the machine and runs the tests in it."""
        machine = [
            *("--rows", str(ROWS), "--disks", self.disks, "--load", self.load),
            *("--layout", self.layout, "--filesystem", self.filesystem),
            *(("--thin",) if self.thin else ()),
            *("--server", self.server, "--kernel", self.kernel),
            *("--init", self.init, "--spare-disks", str(self.spare_disks)),
            *("--out", str(out), "--deadline", str(DEADLINE_SECONDS)),
        ]
        told = [f"LAB_LAYOUT={self.layout}", f"LAB_FILESYSTEM={self.filesystem}", f"LAB_THIN={int(self.thin)}"]
        told += [f"LAB_SERVER={self.server}"]
        tests = ["python", "-m", "pytest", "-p", "no:cacheprovider", "--timeout=600", "--durations=5", *self.files]
        if not self.figures and not self.matrix:
            tests += ["-m", "not figures and not matrix"]
        return [str(BACKUPD), "lab", "run", *machine, "--", "env", f"--chdir={CHECKOUT}", *told, *tests]


@dataclass(frozen=True)
class Done:
    """What a machine's command ended with, and how long it all took."""

    process: subprocess.CompletedProcess[str]
    seconds: float


GROUPS = [  # the longest ones first, so that the last ones end together
    Group("service", ("tests/lab/inside/inside_service.py",), init="systemd", waits=True),
    Group("interruptions", ("tests/lab/inside/inside_interruptions.py",), init="systemd", waits=True),
    Group("fleet", ("tests/lab/inside/inside_fleet.py",), load="2"),
    # A short campaign: `make campaign OF=faults` is a long one.
    Group("under fire", ("tests/lab/inside/inside_fire.py",), load="none", waits=True),
    Group("units", ("tests/lab/inside/inside_systemd.py",), init="systemd"),
    Group("mishaps", ("tests/lab/inside/inside_mishaps.py",), waits=True),
    Group(
        "installed kernel",
        ("tests/lab/inside/inside_good_run.py", "tests/lab/inside/inside_replay.py"),
        kernel="uml-installed",
    ),
    Group("power cuts", ("tests/lab/inside/inside_power_cuts.py",), load="none"),
    Group("probe", ("tests/lab/inside/inside_probe.py",)),
    Group("contracts", CONTRACTS, load="none", spare_disks=2),
    Group("children volume", tuple(f"tests/lab/inside/inside_{name}.py" for name in ("children", "volume"))),
    # The last one drops the tables that cannot do without a lock.
    Group("refusals", tuple(f"tests/lab/inside/inside_{name}.py" for name in ("refusals", "elsewhere", "unlocked"))),
    Group(
        "mysql-9 linear ext4",
        ("tests/lab/inside/inside_good_run.py",),
        server="mysql-9",
        layout="linear",
        filesystem="ext4",
    ),
    Group("storage", ("tests/lab/inside/inside_storage.py", "tests/lab/inside/inside_storage_trouble.py")),
    Group(
        "mariadb-11 thin",
        tuple(f"tests/lab/inside/inside_{name}.py" for name in ("thin", "clone")),
        server="mariadb-11",
        thin=True,
        init="systemd",
    ),
    Group("proof under load", ("tests/lab/inside/inside_consistency.py",), waits=True),
    Group(
        "bench mishaps",
        ("tests/lab/inside/inside_bench_mishaps.py",),
        load="none",
        spare_disks=2,
        init="systemd",
        matrix=True,
    ),
    Group(
        "bench",
        ("tests/lab/inside/inside_disks.py", "tests/lab/inside/inside_bench.py", "-m", "not figures"),
        load="none",
        disks="hdd",
        spare_disks=2,
        waits=True,
        matrix=True,
    ),
    Group(
        "bench disks",
        ("tests/lab/inside/inside_bench_disks.py", "tests/lab/inside/inside_bench_volumes.py"),
        load="none",
        spare_disks=2,
        init="systemd",
        matrix=True,
    ),
    # Two of these servers share one processor here: beside others the clone fell behind 5 transactions a second.
    Group("clone mysql-9", ("tests/lab/inside/inside_clone.py",), server="mysql-9", load="2", matrix=True),
    Group("engines", ("tests/lab/inside/inside_engines.py",), matrix=True),
    Group(
        "engines mysql-9",
        ("tests/lab/inside/inside_engines.py",),
        server="mysql-9",
        layout="linear",
        filesystem="ext4",
        matrix=True,
    ),
    Group("layouts", ("tests/lab/inside/inside_layouts.py",), init="systemd", matrix=True),
    Group("volumes", ("tests/lab/inside/inside_volumes.py",), matrix=True),
    # Its disks are programs of the same processor: beside another machine that is short of it, stripes gain little.
    Group(
        "bench stripes",
        ("tests/lab/inside/inside_bench.py", "-m", "figures"),
        load="none",
        disks="hdd",
        spare_disks=2,
        figures=True,
    ),
    Group("tune", ("tests/lab/inside/inside_tune.py",), load="none", disks="hdd", spare_disks=1, figures=True),
    Group("probe figures", ("tests/lab/inside/inside_probe_figures.py",), load="none", disks="hdd", figures=True),
    Group("side by side", ("tests/lab/inside/inside_side_by_side.py",), load="none", spare_disks=2, figures=True),
    # Its kernel counts a write's time in tens of milliseconds: of few writes there is nothing to go by.
    Group("governor", ("tests/lab/inside/inside_governor.py",), load="60", disks="hdd", figures=True),
    Group("bench figures", ("tests/lab/inside/inside_bench_figures.py",), load="none", disks="hdd", figures=True),
    Group("bill figures", ("tests/lab/inside/inside_bill_figures.py",), load="closed", disks="hdd", figures=True),
    Group(
        "further interruptions probes",
        (*(f"tests/lab/inside/inside_{name}.py" for name in ("interruptions", "probe")), "-m", "matrix"),
        init="systemd",
        matrix=True,
    ),
    Group(
        "further mishaps refusals stores",
        (
            *(f"tests/lab/inside/inside_{name}.py" for name in ("mishaps", "refusals", "elsewhere")),
            *(f"tests/lab/inside/inside_{name}.py" for name in ("storage", "storage_trouble")),
            *("-m", "matrix"),
        ),
        matrix=True,
    ),
    Group(
        "newest kernel",
        ("tests/lab/inside/inside_good_run.py", "tests/lab/inside/inside_replay.py"),
        init="systemd",
        matrix=True,
    ),
    Group("mysql-9", ("tests/lab/inside/inside_good_run.py",), server="mysql-9", matrix=True),
    Group(
        "mariadb-11 linear ext4",
        ("tests/lab/inside/inside_good_run.py",),
        server="mariadb-11",
        layout="linear",
        filesystem="ext4",
        matrix=True,
    ),
    Group("thin", ("tests/lab/inside/inside_good_run.py",), thin=True, init="systemd", matrix=True),
    Group("clone", ("tests/lab/inside/inside_clone.py",), matrix=True),
    Group("lying disks", ("tests/lab/inside/inside_lying_disks.py",), layout="linear", disks="delay", matrix=True),
    Group(
        "more power cuts",
        ("tests/lab/inside/inside_power_cuts.py", "-m", "matrix"),
        load="none",
        matrix=True,
    ),
]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """Every group that is to be tested is under way; a result comes when its machine has ended."""
    selected = {item.name for item in request.session.items}
    wanted = [group for group in GROUPS if f"{test_job_in_the_lab.__name__}[{group}]" in selected]
    found: dict[Group, Future[Done]] = {group: Future() for group in wanted}
    waiting, working = (deque(group for group in wanted if group.waits is waits) for waits in (True, False))
    outs = {group: tmp_path_factory.mktemp("out") for group in wanted}  # pytest's factory is no thread's

    one_takes = threading.Lock()

    def next_of(lists: Sequence[deque[Group]]) -> Group | None:
        with one_takes:
            return next((groups.popleft() for groups in lists if groups), None)

    def machines(lists: Sequence[deque[Group]], *pinned: str) -> None:
        """One after the other, of the first list that has any."""
        while group := next_of(lists):
            began = time.monotonic()
            argv = [*pinned, *group.argv(outs[group])]
            try:
                process = subprocess.run(argv, capture_output=True, text=True, check=False)
            except OSError as error:
                found[group].set_exception(error)
            else:
                found[group].set_result(Done(process, time.monotonic() - began))

    cpus = sorted(os.sched_getaffinity(0))[-MACHINES_AT_A_TIME:]
    beside = MACHINES_BESIDE if memory_available() >= MEMORY_OF_ALL else 1
    lists = (waiting,) if any(group.figures for group in wanted) else (waiting, working)  # figures want a processor
    with ThreadPoolExecutor(len(cpus) + beside) as pool:
        lanes = [pool.submit(machines, (working, waiting), "taskset", "--cpu-list", str(cpu)) for cpu in cpus]
        lanes += [pool.submit(machines, lists) for _ in range(beside)]
        yield found
        for lane in lanes:
            lane.result()


@pytest.mark.parametrize("group", [pytest.param(group, marks=group.marks) for group in GROUPS], ids=str)
def test_job_in_the_lab(group: Group, results: Results, record_property: Callable[[str, object], None]) -> None:
    result = results[group].result()
    record_property("machine_seconds", result.seconds)
    done = result.process
    for line in done.stdout.splitlines():
        if line.startswith(FIGURE):
            record_property("figure", line.removeprefix(FIGURE))
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
