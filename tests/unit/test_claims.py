"""Who may act now: locks that the kernel forgets when their holder dies."""

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from backupd.host.claims import Claims
from backupd.vocabulary.errors import Busy, ConfigurationError

NOBODY = 65534


def test_a_second_run_of_a_job_is_busy_and_told_whom_it_waits_for(tmp_path: Path) -> None:
    with Claims(tmp_path).job("nightly", "r1"), pytest.raises(Busy, match="run r1 of job nightly"):  # noqa: SIM117
        with Claims(tmp_path).job("nightly", "r2"):
            pass


def test_other_jobs_and_other_volume_groups_are_free(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with claims.job("nightly", "r1"), claims.volume_group("vg0", "r1"), claims.job("weekly", "r2"):  # noqa: SIM117
        with pytest.raises(Busy, match="run r1"), claims.volume_group("vg0", "r2"):
            pass


def test_a_disk_is_claimed_by_whatever_path_it_was_named(tmp_path: Path) -> None:
    one, other = Claims(tmp_path / "run"), Claims(tmp_path / "run")
    disk, alias = tmp_path / "sdb", tmp_path / "by-id"
    disk.touch()
    alias.symlink_to(disk)
    with one.disks((str(disk),), "r1"), pytest.raises(Busy, match="held by run r1"), other.disks((str(alias),), "r2"):
        pytest.fail("two have it")


def test_a_disk_is_one_benchs_and_whoever_is_refused_one_disk_has_claimed_none(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    with one.disks(("/dev/sdc", "/dev/sdb"), "r1"):
        with pytest.raises(Busy, match="disk dev-sdb is held by run r1"), other.disks(("/dev/sda", "/dev/sdb"), "r2"):
            pass
        with other.disks(("/dev/sda", "/dev/disk/by-id/sdb"), "r2"):
            pass
    with other.disks(("/dev/sdb", "/dev/sdc"), "r2"):
        pass


def test_a_lock_whose_file_cannot_be_removed_is_given_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", refused)
        with Claims(tmp_path).removing("r1"):
            pass
    assert "backup-r1.lock could not be removed: [Errno 30] Read-only file system" in caplog.text
    with Claims(tmp_path).removing("r1"):
        pass
    assert not (tmp_path / "backup-r1.lock").exists()


def test_a_backup_has_many_readers_or_one_that_removes_it(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    with one.reading("r1"), other.reading("r1"):
        with other.removing("r2"):
            pass
        with pytest.raises(Busy, match="a reader of backup r1"), other.removing("r1"):
            pass
    with one.removing("r1"), pytest.raises(Busy, match="`backupd prune` of backup r1"), other.reading("r1"):
        pass
    assert not (tmp_path / "lock" / "backup-r1.lock").exists()


def test_with_a_run_that_has_ended_several_do_different_things_and_nobody_recovers_it_meanwhile(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    with one.beside("r1", "copy"):
        if not (child := os.fork()):
            with other.beside("r1", "tables"):
                os._exit(0 if (Claims(tmp_path).holder_of_run("r1") or "").startswith("tables of run r1") else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (Claims(tmp_path).holder_of_run("r1") or "").startswith("copy of run r1"), "whoever came later has died"
        with other.beside("r1", "volume"):
            with pytest.raises(Busy, match="run r1 is held by volume of run r1"), other.run("r1"):
                pass
            with pytest.raises(Busy, match="copy r1 is held by copy of run r1"), other.beside("r1", "copy"):
                pass
        assert (tmp_path / "lock" / "run-r1.lock").exists()
    assert not (tmp_path / "lock" / "run-r1.lock").exists()
    with one.run("r1"), pytest.raises(Busy, match="run r1 is held by run r1"), other.beside("r1", "copy"):
        pass


def test_a_claim_ends_with_its_block_and_a_run_leaves_no_file(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with claims.run("r1"):
        assert (tmp_path / "lock" / "run-r1.lock").exists()
    assert not (tmp_path / "lock" / "run-r1.lock").exists()
    with claims.run("r1"):
        pass


@pytest.mark.parametrize("claim", [Claims.run, Claims.removing])
def test_a_claim_that_was_opened_while_its_holder_ended_is_one_that_others_see(
    tmp_path: Path, claim: Callable[[Claims, str], AbstractContextManager[None]]
) -> None:
    """The holder's file is gone by then, and a lock of a file that nobody finds would keep nobody out."""
    holder = ExitStack()
    holder.enter_context(claim(Claims(tmp_path), "r1"))

    class Late(Claims):
        def _open(self, path: Path) -> int:
            descriptor = super()._open(path)
            holder.close()
            return descriptor

    with claim(Late(tmp_path), "r1"), pytest.raises(Busy), claim(Claims(tmp_path), "r1"):
        pass
    assert list((tmp_path / "lock").iterdir()) == []


def test_a_lock_file_that_has_no_room_is_a_sentence_and_holds_nothing(tmp_path: Path) -> None:
    """The limit on a file's size stands for a full disk: the same call fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with (
            pytest.raises(ConfigurationError, match="cannot be written") as refused,
            Claims(tmp_path).run("r1"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "paths.run" in refused.value.hint
    assert list((tmp_path / "lock").iterdir()) == []
    with Claims(tmp_path).run("r1"):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from backupd.host.claims import Claims\n"
        "with Claims(pathlib.Path(sys.argv[1])).job('nightly', 'r1'):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy), Claims(tmp_path).job("nightly", "r2"):
            pass
        holder.kill()
        holder.wait()
        with Claims(tmp_path).job("nightly", "r2"):
            pass


def test_what_killed_holders_left_is_removed_and_what_is_held_or_lasts_stays(tmp_path: Path) -> None:
    claims, folder = Claims(tmp_path), tmp_path / "lock"
    if not (child := os.fork()):
        with claims.job("nightly", "r0"), claims.beside("r0", "copy-to-second"):
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (folder / "run-r2.lock").touch()  # its holder died before it could say who it was
    with claims.beside("r1", "copy-to-second"):
        Claims(tmp_path).forget_dead()
        assert {path.name for path in folder.iterdir()} == {
            *("job-nightly.lock", "copy-to-second-r1.lock", "run-r1.lock")
        }
    assert {path.name for path in folder.iterdir()} == {"job-nightly.lock"}


def test_a_lock_whose_holder_has_not_said_yet_who_it_is_is_waited_for(tmp_path: Path) -> None:
    with Claims(tmp_path).run("r1"):
        pass
    (tmp_path / "lock" / "run-r1.lock").touch()
    with (tmp_path / "lock" / "run-r1.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.1, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        with Claims(tmp_path).run("r1"):
            pass


class PassedOver:
    """The kernel's list of locks, read while others come and go: at first without the one that is looked for."""

    def __init__(self) -> None:
        self.looks = 0

    def read_text(self) -> str:
        self.looks += 1
        return "" if self.looks < 3 else Path("/proc/locks").read_text()


def test_a_lock_that_the_kernels_list_has_passed_over_is_held_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.host.claims._LOCKS", PassedOver())
    with Claims(tmp_path).job("nightly", "r1"):
        assert (Claims(tmp_path).holder_of_job("nightly") or "").startswith("run r1 of job nightly")
    assert Claims(tmp_path).holder_of_job("nightly") is None


def test_a_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be opened"), Claims(tmp_path / "file").run("r1"):
        pass


def test_nobody_else_can_open_a_lock_and_so_hold_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Claims(run).job("nightly", "r1"):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (run, *run.rglob("*"))}
    assert modes == {"run": 0o700, "lock": 0o700, "job-nightly.lock": 0o600}


def test_what_an_older_version_left_open_is_closed(tmp_path: Path) -> None:
    lock = tmp_path / "run" / "lock"
    lock.mkdir(parents=True, mode=0o755)
    (lock / "job-nightly.lock").touch(mode=0o644)
    for folder in (lock, lock.parent):
        folder.chmod(0o755)
    with Claims(tmp_path / "run").job("nightly", "r1"):
        pass
    assert [stat.S_IMODE(path.stat().st_mode) for path in (lock.parent, lock, lock / "job-nightly.lock")] == [
        *(0o700, 0o700, 0o600)
    ]


def test_a_folder_that_others_use_too_stays_open_to_them(tmp_path: Path) -> None:
    (tmp_path / "somebodys").touch()
    tmp_path.chmod(0o755)
    with Claims(tmp_path).run("r1"):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o700


def test_a_link_in_a_lock_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock" / "run-r1.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigurationError, match="cannot be opened"), Claims(tmp_path).run("r1"):
        pass
    assert not (tmp_path / "precious").exists()


def test_a_lock_folder_that_somebody_else_has_planted_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    os.chown(tmp_path / "lock", NOBODY, NOBODY)
    with pytest.raises(ConfigurationError, match=f"belongs to the user of id {NOBODY}"), Claims(tmp_path).run("r1"):
        pass


def test_a_process_of_somebody_else_s_that_locks_a_file_of_our_inode_s_number_holds_nothing(tmp_path: Path) -> None:
    """A pid comes round, and an inode's number is another file's on another file system: here both are the lock's."""
    path = tmp_path / "lock" / "job-nightly.lock"
    with Claims(tmp_path).job("nightly", "r1"):
        pass
    for folder in (path.parent, tmp_path):
        folder.chmod(0o755)
    path.chmod(0o644)
    with path.open() as file:
        argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        script = "import fcntl, time; fcntl.flock(0, fcntl.LOCK_SH); print('held', flush=True); time.sleep(60)"
        with subprocess.Popen([*argv, "/usr/bin/python3", "-c", script], stdin=file, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            path.write_text(f"run r1 of job nightly (process {other.pid})\n")
            assert Claims(tmp_path).holder_of_job("nightly") is None
            other.kill()


def test_who_may_not_read_a_lock_is_told_to_run_it_as_root(tmp_path: Path) -> None:
    with Claims(tmp_path).daemon():
        os.seteuid(NOBODY)
        try:
            with pytest.raises(ConfigurationError, match=r"the-daemon\.lock cannot be read: permission denied") as told:
                Claims(tmp_path).daemon_pid()
        finally:
            os.seteuid(0)
    assert told.value.hint == "run it as root"
