"""Who may act now: locks that the kernel forgets when their holder dies."""

import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from backupd.claims import Claims
from backupd.errors import Busy, ConfigurationError


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
        "from backupd.claims import Claims\n"
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


def test_a_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be opened"), Claims(tmp_path / "file").run("r1"):
        pass
