"""A backup copied to a real store and back from it, and what a copy that was killed leaves there."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.operations.ownership import ownership_of
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.additional_copy import CopyRoute, clean_up, copy_run
from backupd.targets import BackupSource, Target
from backupd.targets.sftp import SftpTarget
from backupd.vocabulary.records import HoldingKind
from tests.bench import bench_copies
from tests.bench.memory import children_of
from tests.contract.s3_server import s3_config, s3_service, s3_target
from tests.contract.sftp_server import sftp_config, sftp_server
from tests.fakes.target import BELIEVED, MACHINE
from tests.servers.sshd import SshServer
from tests.story.test_recover import recover, wait_until_dead
from tests.story.world import World

__all__ = ["s3_service", "sftp_server"]

RANDOM = 7 << 20  # bytes that do not compress: two parts of an upload


@pytest.fixture(params=["sftp", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "s3":
        return s3_target(s3_config(request.getfixturevalue("s3_service")))
    server: SshServer = request.getfixturevalue("sftp_server")
    (tmp_path / "store").mkdir()
    return SftpTarget(sftp_config(server, tmp_path / "store"), machine=MACHINE)


@pytest.fixture
def world(tmp_path: Path, target: Target) -> World:
    """A host with one backup in its vault, and a store."""
    world = World(tmp_path / "host")
    (world.datadir / "shop" / "orders.ibd").write_bytes(os.urandom(RANDOM))
    world.back_up()
    world.others = [target]  # type: ignore[list-item]
    world.also_released = {HoldingKind.UPLOAD: lambda upload: world.target_of(upload).abandon(upload)}
    return world


def copy(world: World, origin: Target, destination: Target) -> None:
    with world.catalogue() as catalogue:
        ownership = ownership_of(catalogue, world.tools)
        route = CopyRoute(origin, destination, ownership, world.tools, lambda _job: None, takes_plain=True)
        clean_up(route)
        assert copy_run(route, "r1") is not None


def test_it_comes_back_as_it_went(world: World, target: Target) -> None:
    before = {path.name: path.read_bytes() for path in (world.backups / "r1").iterdir()}
    copy(world, world.target, target)
    assert verify_backup(BackupSource(target, "nightly", "r1", BELIEVED)).whole
    world.target.remove("nightly", "r1")
    with world.catalogue() as catalogue:
        catalogue.removed("r1", "vault", because="a test has said so")
    copy(world, target, world.target)
    assert {path.name: path.read_bytes() for path in (world.backups / "r1").iterdir()} == before
    assert [backup.target for backup in world.row().backups] == [target.name, "vault"]
    assert world.left() == []


def test_what_a_killed_copy_left_goes_and_the_next_one_is_whole(world: World, target: Target) -> None:
    child = os.fork()
    if child == 0:

        def die_in_the_middle(done: int, _total: int) -> None:
            if done > 6 << 20:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with world.catalogue() as catalogue:
                ownership = ownership_of(catalogue, world.tools)
                route = CopyRoute(world.target, target, ownership, world.tools, lambda _job: None, takes_plain=True)
                copy_run(route, "r1", copied=die_in_the_middle)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    wait_until_dead(world, "r1")
    recover(world).require_complete()
    assert list(target.backups("nightly")) == []
    copy(world, world.target, target)
    assert verify_backup(BackupSource(target, "nightly", "r1", BELIEVED)).whole
    assert world.left() == []


@pytest.mark.parametrize(
    ("kind", "reseal"),
    [
        pytest.param("folder", True, marks=pytest.mark.matrix),
        pytest.param("s3", False, marks=pytest.mark.matrix),
        ("s3", True),
    ],
)
def test_a_copy_takes_at_most_150_mib(tmp_path: Path, kind: str, reseal: bool) -> None:
    """Objects that are larger than all that is held of them: a process of its own, with all that it loads."""
    ground = bench_copies.Ground(tmp_path, 160 << 20)
    with bench_copies.SERVED[kind](ground), a_slow_store():
        assert ground.copy(kind, reseal=reseal).mib <= bench_copies.MEMORY_MIB


@contextmanager
def a_slow_store() -> Iterator[None]:
    """The store, where there is one, works a tenth of the time: all that may wait on the way to it does."""
    stores = [pid for pid in children_of(os.getpid()) if "versitygw" in Path(f"/proc/{pid}/cmdline").read_text()]
    ended = threading.Event()

    def disturb() -> None:
        while not ended.wait(0.05):
            for pid in stores:
                os.kill(pid, signal.SIGSTOP)
            ended.wait(0.45)
            for pid in stores:
                os.kill(pid, signal.SIGCONT)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        yield
    finally:
        ended.set()
        disturbing.join()
