"""A restore into the datadir of a server that runs: somebody has emptied it, and the server has not noticed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from backupd.operations.restore.unfinished import filling, resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.vocabulary.errors import Refused
from tests.contract.mariadb import mariadb, wait_until

WHAT = {"run": "r1", "job": "nightly"}


def wait_until_named_mariadbd(pid: int) -> None:
    """Until exec(2) has renamed the process: `Popen` returns a moment earlier, when its pipe is closed."""
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "mariadbd\n")


def test_a_datadir_that_was_emptied_beneath_its_server_is_refused_as_long_as_that_runs() -> None:
    with mariadb() as server:
        for path in server.datadir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        before = server.datadir.stat()
        for refused in (filling(server.datadir, WHAT), resumable(server.datadir, Unfinished("nightly", "r1", "c", ()))):
            with pytest.raises(Refused, match=r"a running server has .* as its datadir") as raised, refused:
                pytest.fail("it was filled")
            assert "SELECT the data you need first" in raised.value.hint
        after = server.datadir.stat()
        assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid), "its server may still work in it"


def test_so_is_one_that_was_removed_with_all_that_was_in_it() -> None:
    """What the server has open is the newest copy there is, until it ends."""
    with mariadb() as server:
        shutil.rmtree(server.datadir)
        for _ in ("it is not there", "somebody has made it anew"):
            with (
                pytest.raises(Refused, match=r"a running server has .* as its datadir"),
                filling(server.datadir, WHAT),
            ):
                pytest.fail("it was filled")
            assert not server.datadir.exists() or not list(server.datadir.iterdir())
            server.datadir.mkdir(exist_ok=True)


def test_so_is_an_empty_folder_in_which_its_datadir_was_removed(tmp_path: Path) -> None:
    """Where the volume is mounted is what was backed up, and the datadir was a folder in it."""
    datadir, named_alike = tmp_path / "data" / "mysql", tmp_path / "dat"
    program = shutil.copy("/bin/sleep", tmp_path / "mariadbd")
    for folder in (datadir, named_alike):
        folder.mkdir(parents=True)
    with subprocess.Popen([program, "600"], cwd=datadir) as server:
        try:
            wait_until_named_mariadbd(server.pid)
            datadir.rmdir()
            with (
                pytest.raises(Refused, match=f"a running server has {datadir} as its datadir: mariadbd, "),
                filling(datadir.parent, WHAT),
            ):
                pytest.fail("it was filled")
            with filling(named_alike, WHAT):
                pass
        finally:
            server.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts of its own")
@pytest.mark.parametrize("removed", ["its volume", "a folder of its volume"])
def test_what_a_container_s_server_had_is_known_by_where_it_lay_and_not_by_its_name(
    tmp_path: Path, removed: str
) -> None:
    """A name of the container's may be one of the host's as well, which has nothing to do with it."""
    on_host, in_container = tmp_path / "srv", tmp_path / "var"
    volume = on_host / "db" if removed == "its volume" else on_host
    datadir = in_container / "mysql" / "db".removeprefix(volume.name)
    program = shutil.copy("/bin/sleep", tmp_path / "mariadbd")
    for folder in (on_host / "db", in_container / "mysql"):
        folder.mkdir(parents=True)
    entering = f"mount --bind {volume} {in_container}/mysql && cd {datadir} && echo ready && exec {program} 600"
    command = ["unshare", "--mount", "sh", "-c", entering]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            wait_until_named_mariadbd(server.pid)
            (on_host / "db").rmdir()
            for refused in (on_host, on_host / "db"):
                with (
                    pytest.raises(Refused, match=f"a running server has {on_host}/db as its datadir: mariadbd, "),
                    filling(refused, WHAT),
                ):
                    pytest.fail("it was filled")
            with filling(in_container / "mysql", WHAT):
                pass
        finally:
            server.kill()


def test_a_folder_in_which_somebody_stands_is_filled_as_any(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=tmp_path), filling(tmp_path, WHAT) as made:
        assert not made
