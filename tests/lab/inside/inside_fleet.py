"""A fleet of three real hosts: a source and two replicas, sshd, agents, snapshots; and a control host on PostgreSQL.

A night end to end, whose control host is killed while the copy goes on; and a replica that refuses when it is asked.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from backupd.vocabulary.fleet import FleetBackup, FleetState
from backupd.vocabulary.records import GOOD, Phase, RunStatus
from tests.fleet.control_host import ControlHost, control_host
from tests.fleet.postgres import postgres
from tests.lab.figures import FIGURE
from tests.lab.inside.cluster import JOB, Cluster, Member, cluster
from tests.lab.inside.host import Host, mounted, stored, tool
from tests.lab.inside.inside_layouts import OWN

pytestmark = pytest.mark.timeout(1500)  # 500 where a machine has nothing else to do, and some are half as fast
_LATE_SECONDS = 10
_RATE = "5MiB"  # a second: a copy of ten seconds and more
_FLEET = """
[control]
database = "{url}"
key_file = "{cluster.key_file}"
known_hosts = "{cluster.known_hosts}"
user = "root"
port = 0
poll = "5s"
connect_timeout = "60s"
answer_timeout = "2m"
{hosts}
[clusters.shop]
members = ["db1", "db2", "db3"]
[policies.default]
member = "least-lag"
allow_source = false
windows = ["00:00-00:00"]
retries = 0
[targets.vault]
slots = 1
"""
_HOST = """
[hosts.{name}]
address = "{ssh.address}"
port = {ssh.port}
"""


@dataclass(frozen=True)
class Fleet:
    """Three hosts, and who decides which of them is backed up."""

    cluster: Cluster
    control: ControlHost
    vault: Path

    def ended(self, backup_id: str) -> FleetBackup:
        """What became of it, once that is known."""
        self.control.until(lambda: self.is_over(backup_id))
        return self._backup(backup_id)

    def is_over(self, backup_id: str) -> bool:
        """Whether it is known."""
        return self._backup(backup_id).state in (FleetState.DONE, FleetState.FAILED, FleetState.MISSED)

    def copied(self, backup_id: str, member: Member) -> None:
        """It is being copied, on this member; what ended before that is told with why."""
        self.control.until(lambda: copies(member, backup_id) or self.is_over(backup_id))
        assert copies(member, backup_id), (self._backup(backup_id), self.control.said())

    def owed(self) -> str:
        """The one backup that the night owes, by its id."""
        self.control.until(lambda: len(self.control.records.history()) == 1)
        return self.control.records.history()[0].owed.id

    def overlaps(self) -> int:
        """Of all runs that there ever were on any member, how many began before the one before them had ended."""
        spans = sorted((run.started_at, run.ended_at) for one in self.cluster.members for run in one.runs())
        return sum(one[1] is None or one[1] > next_one[0] for one, next_one in pairwise(spans))

    def _backup(self, backup_id: str) -> FleetBackup:
        found = self.control.records.backup(backup_id)
        assert found is not None
        return found


@pytest.fixture
def fleet(host: Host, tmp_path: Path) -> Iterator[Fleet]:
    """Nothing serves yet. What it leaves on the machine is looked for afterwards."""
    with ExitStack() as stack:
        made = stack.enter_context(cluster(tmp_path, rate=_RATE))
        url = stack.enter_context(postgres()).url.replace("@/", "@localhost/")
        hosts = "".join(_HOST.format(name=one.name, ssh=one.ssh) for one in made.members)
        text = _FLEET.format(url=url, cluster=made, hosts=hosts)
        yield Fleet(made, stack.enter_context(control_host(tmp_path, url, text)), tmp_path / "vault")


def copies(member: Member, run_id: str) -> bool:
    """Its snapshot is mounted."""
    return str(member.mounts / run_id) in mounted()


def proven(fleet: Fleet, member: Member, run_id: str) -> None:
    """There is a backup, of a snapshot, and every byte of it is as it was recorded."""
    manifest = json.loads((stored(fleet.vault, run_id) / "manifest.json").read_text())
    assert (manifest["volume"], manifest["machine"]) == (OWN, member.identity())
    (verified,) = json.loads(member.backupd("verify", run_id, "--json"))["copies"]
    assert (verified["status"], verified["bytes_read"]) == ("verified", verified["bytes_stored"])


def test_a_night_on_three_hosts_whose_control_host_is_killed_while_the_copy_goes_on(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    db1, db2, db3 = fleet.cluster.members
    fleet.cluster.behind(db2=0, db3=_LATE_SECONDS)
    night = _a_night(fleet, db2)
    assert (db1.runs(), db3.runs()) == ([], [])
    refused = _asked_for_by_hand(fleet, db3)
    assert "not on LVM" in refused.tries[0].said
    assert [len(one.runs()) for one in fleet.cluster.members] == [0, 1, 1]
    assert len({one.identity() for one in fleet.cluster.members}) == len(fleet.cluster.members)
    assert fleet.overlaps() == 0
    told = {one["id"]: one for one in json.loads(fleet.control.told("history", "--json"))["backups"]}
    assert {name: (one["state"], one["host"], one["tries"]) for name, one in told.items()} == {
        night.owed.id: ("done", "db2", 1),
        refused.owed.id: ("failed", "db3", 1),
    }
    assert "not on LVM" in told[refused.owed.id]["said"]
    status = json.loads(fleet.control.told("status", "--json"))
    assert [(one["cluster"], one["last_good"]) for one in status["clusters"]] == [("shop", night.owed.id)]
    assert status["control"]["at_work"]
    with capsys.disabled():
        sys.stdout.write(f"{_figures(fleet, db2)}\n")


def _figures(fleet: Fleet, best: Member) -> str:
    """What the night came to, as a line of its own for whoever started the machine."""
    (run,) = best.runs()
    assert run.ended_at is not None
    assert run.lock is not None
    assert run.backup is not None
    counts = "; ".join(f"{one.name}: {len(one.runs())} runs" for one in fleet.cluster.members)
    took = (run.ended_at - run.started_at).total_seconds()
    return (
        f"\n{FIGURE}{counts}; overlaps: {fleet.overlaps()}; the run on {best.name} took {took:.1f} s, the lock"
        f" {1000 * run.phases[Phase.LOCK_HOLD]:.0f} ms, stored {run.backup.bytes_stored} bytes"
    )


def _a_night(fleet: Fleet, best: Member) -> FleetBackup:
    """It owes one backup, and the member that is fit and least behind makes it, whoever controls."""
    first = fleet.control.serve()
    owed = fleet.owed()
    fleet.copied(owed, best)
    first.kill()
    first.wait()
    assert [run.status for run in best.runs()] == [RunStatus.RUNNING]
    assert len(tool("lvs", "--noheadings", "--options", "lv_name", "@backupd").split()) == 1
    begun = fleet.control.times_at_work()  # on a busy machine the first may have lost its lock and begun anew
    fleet.control.serve()
    fleet.control.until(lambda: fleet.control.times_at_work() > begun)
    backup = fleet.ended(owed)
    assert (backup.state, [one.host for one in backup.tries]) == (FleetState.DONE, [best.name]), backup
    (run,) = best.runs()
    assert (run.run_id, run.job, run.status in GOOD) == (owed, JOB, True), run
    proven(fleet, best, owed)
    assert [one.owed.id for one in fleet.control.records.history()] == [owed]
    return backup


def _asked_for_by_hand(fleet: Fleet, member: Member) -> FleetBackup:
    """Of a host that cannot be backed up: a person asks for it by name, and is told why there is none."""
    asked = fleet.control.told("run", member.name).split()[-1]
    backup = fleet.ended(asked)
    assert (backup.state, [one.host for one in backup.tries]) == (FleetState.FAILED, [member.name]), backup
    assert backup.tries[0].status is RunStatus.REFUSED
    return backup
