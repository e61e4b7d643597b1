"""The shipped units under a real systemd: runs do their work in their sandbox, and what it forbids is refused."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.lab.inside.host import GATE_OFF, RUN_FOLDER, SITE, SLOW_COPY, Host, catalogue_rows, tool, until
from tests.lab.inside.moments import copying
from tests.lab.inside.units import (
    SHIPPED,
    UNITS,
    drop_in,
    environment,
    install,
    logged,
    shown,
    systemctl,
    transient,
)

RUN = "backupd-run@nightly.service"
SMALL_PROBE = ("--file-size", "16M", "--seconds", "1", "--repeat", "1", "--modes", "direct", "--max-wait", "2")
RECOVER = "backupd-recover.service"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """They stay: nothing starts by itself."""
    install()


@pytest.fixture(autouse=True)
def recovered(host: Host) -> Iterator[None]:
    """Before anybody looks for what is left: whoever starts it waits until it has released, not until it has ended."""
    yield
    until(lambda: shown(RECOVER, "ActiveState") in ("inactive", "failed"))


@pytest.fixture
def quick(host: Host) -> Iterator[None]:
    """Units take their backups without waiting for the gate."""
    with environment({"BACKUPD_CONFIG": str(host.configured(GATE_OFF))}):
        yield


def newest() -> tuple[str, str]:
    """Id and status of the newest run; empty where there is none."""
    found = catalogue_rows("SELECT run_id, status FROM runs ORDER BY started_at DESC LIMIT 1")
    run_id, status = found[0] if found else ("", "")
    return run_id, status


@contextmanager
def copying_in_its_unit(host: Host) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The template's unit has been started and its run copies: the run's id, and the waiting `systemctl start`."""
    before = {run_id for (run_id,) in catalogue_rows("SELECT run_id FROM runs")}
    with (
        environment({"BACKUPD_CONFIG": str(host.configured(SLOW_COPY))}),
        subprocess.Popen(["systemctl", "start", RUN]) as waiting,
    ):
        until(lambda: newest()[0] not in before)
        run_id = newest()[0]
        main = Path(f"/proc/{shown(RUN, 'MainPID')}/mountinfo")
        until(lambda: str(RUN_FOLDER / "mnt" / run_id) in main.read_text())
        yield run_id, waiting


def test_systemd_finds_no_fault_in_the_units(host: Host) -> None:
    files = [str(UNITS / path.name) for path in SHIPPED.iterdir() if path.is_file() and "@" not in path.name]
    ours = ("backupd-run@nightly.service", "backupd-run@nightly.timer", "backupd-binlog@nightly.service")
    files += [str(UNITS / name) for name in ours]
    assert tool("systemd-analyze", "verify", "--man=no", *files) == ""


def test_a_backup_with_its_gate_succeeds_in_the_sandbox(host: Host) -> None:
    tool("modprobe", "--remove", "dm-snapshot")  # as after a boot: the sandbox does not let LVM fetch it
    systemctl("start", RUN)
    run_id, status = newest()
    assert (status, shown(RUN, "Result")) == ("success", "success")
    [(windows,)] = catalogue_rows("SELECT count(*) FROM samples WHERE run_id = ?", run_id)
    assert windows > 3


def test_a_probe_a_drill_and_a_verification_succeed_in_a_transient_units_sandbox(host: Host, quick: None) -> None:
    assert "proven in" in transient("backupd-run-drill", "/usr/bin/backupd", "drill")
    assert "all of it read back" in transient("backupd-run-verify", "/usr/bin/backupd", "verify", "latest")
    assert "PENALTY" in transient("backupd-run-probe", "/usr/bin/backupd", "probe", "nightly", *SMALL_PROBE)


def test_a_proof_hosts_unit_drills_what_is_on_its_target_and_leaves_its_proof_there(host: Host, quick: None) -> None:
    systemctl("start", RUN)
    run_id, _ = newest()
    systemctl("start", "backupd-prove.service")
    assert shown("backupd-prove.service", "Result") == "success"
    assert f"run {run_id} of job nightly" in next(line for line in logged().splitlines() if line.startswith("proven: "))
    assert list(SITE.backups.glob(f"*/nightly/{run_id}/proof-*.json"))


FORBIDDEN = [
    *(f"touch {folder}/backupd-was-here" for folder in ("/usr", "/boot", "/etc", "/root", "/home", "/sys/fs/cgroup")),
    *("echo 60 > /proc/sys/vm/swappiness", "head -c 1 /dev/mem", "head -c 1 /dev/kmsg", "head -c 1 /dev/tty0"),
    *("unshare --uts true", "date --set=@1", "hostname other", "rmmod loop", "mknod /var/lib/backupd/mem c 1 1"),
]
ALLOWED = [*(f"touch {folder}/backupd-was-here" for folder in ("/srv/mysql", "/backups", "/etc/lvm", "/run/backupd"))]


def test_what_a_run_has_no_business_with_is_refused(host: Host) -> None:
    each_one = (f"if ({each}) >/dev/null 2>&1; then echo did: {each}; fi" for each in [*FORBIDDEN, *ALLOWED])
    printed = transient("backupd-run-forbidden", "sh", "-c", "\n".join(each_one))
    assert [line for line in printed.splitlines() if line.startswith("did: ")] == [f"did: {each}" for each in ALLOWED]
    tool("sh", "-c", FORBIDDEN[0])  # nothing but the sandbox has refused it
    for each in [*ALLOWED, FORBIDDEN[0]]:
        Path(each.removeprefix("touch ")).unlink()


def units_that_see(mount_point: Path) -> set[str]:
    """Whose processes have something mounted there, in whatever namespace."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile; as a zombie it has no mounts any more (EINVAL)
            if str(mount_point) in (process / "mountinfo").read_text():
                found.add((process / "cgroup").read_text().rpartition("/")[2].strip())
    return found


def test_a_snapshots_mount_is_seen_by_its_run_alone_and_a_stopped_unit_gives_it_back(host: Host) -> None:
    with copying_in_its_unit(host) as (run_id, waiting):
        assert not copying(run_id)
        assert units_that_see(RUN_FOLDER / "mnt" / run_id) == {RUN}
        systemctl("stop", RUN)
        waiting.wait()
    require_cancelled(run_id, status=15)


def test_a_run_in_its_sandbox_can_be_cancelled_from_outside(host: Host) -> None:
    with copying_in_its_unit(host) as (run_id, waiting):
        host.backupd("cancel", run_id)
        assert newest() == (run_id, "cancelled"), "cancel returns when the run has ended"
        waiting.wait()
    require_cancelled(run_id, status=11)


def require_cancelled(run_id: str, *, status: int) -> None:
    """It ended as a cancelled run does, and so did the unit that this has begun."""
    systemctl("start", RECOVER)  # joins that one
    assert (*newest(), shown(RUN, "ExecMainStatus")) == (run_id, "cancelled", str(status))
    systemctl("reset-failed", RUN)


def test_a_killed_run_is_cleaned_up_after_by_its_unit(host: Host) -> None:
    with copying_in_its_unit(host) as (run_id, waiting):
        systemctl("kill", "--signal=KILL", RUN)
        waiting.wait()
        until(lambda: newest() == (run_id, "failed"))
    until(lambda: not host.left())  # the unit that its failure has begun is gone as well
    systemctl("reset-failed", RUN)


def test_what_must_not_be_killed_outlives_the_run_that_was(host: Host) -> None:
    """LVM ends by itself when backupd is gone."""
    witness = RUN_FOLDER / "ended-by-itself"
    transient("backupd-run-outlived", "sh", "-c", f"(sleep 1; touch {witness}) & exit 0")
    until(witness.exists)
    witness.unlink()


def test_what_was_left_at_a_power_cut_is_given_back_at_boot(host: Host) -> None:
    with host.running(SLOW_COPY) as run:
        run.until(copying)
        run.process.kill()
        run.ended(expect=-9)
    assert host.left()
    systemctl("start", RECOVER)
    assert newest() == (run.run_id, "failed")


def test_the_timer_starts_a_backup_without_a_daemon_and_gives_back_what_a_dead_run_left(
    host: Host, quick: None
) -> None:
    """The dead one was typed by hand: its mount is in the machine's namespace, where no sandbox reaches it."""
    with host.running(SLOW_COPY) as dead:
        dead.until(copying)
        dead.process.kill()
        dead.ended(expect=-9)
    assert host.left()
    drop_in("backupd-run@nightly.timer", "now", ["[Timer]", "OnCalendar=", "OnActiveSec=1s", "RandomizedDelaySec=0"])
    systemctl("daemon-reload")
    systemctl("start", "backupd-run@nightly.timer")
    until(lambda: newest()[0] != dead.run_id)
    systemctl("start", RUN)  # joins the one that is under way, and waits for its end
    systemctl("stop", "backupd-run@nightly.timer")
    assert newest()[1] == "success"
