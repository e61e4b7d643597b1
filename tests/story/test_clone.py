"""A clone that fails leaves nothing half-visible; what a server on it says is asked in the lab."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from stat import S_IMODE

import pytest

from backupd import targets
from backupd.mysql.derivation import Derived
from backupd.mysql.proof import Recovered
from backupd.mysql.replica_files import STATEMENTS_FILE
from backupd.mysql.seeding import Following, ReplicationSource, ReplicaWish, Seeded, Words
from backupd.operations.restore.clone import clone, new_server_id, require_another_id
from backupd.vocabulary.errors import ServerError, TargetError, UsageError, VerificationError
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import MARKER, Manifest
from tests.fakes.target import BELIEVED
from tests.full_disk import no_room_for
from tests.story.world import World

WANTED = ReplicaWish(77, Following.GTID, ReplicationSource("db1", "repl", password="s3cret"))


class Recovering:
    """A server on the copy that recovers to a position, and can be told something once."""

    error_log = ""

    def __init__(self, found: Recovered, *, ended: Check) -> None:
        self.session = self
        self.found = found
        self._ended = ended

    def shut_down(self) -> Check:
        return self._ended


@pytest.fixture
def manifest(world: World) -> Manifest:
    """Of the run `r1`, which has a backup of this world."""
    world.back_up()
    return world.target.manifest("nightly", "r1")


def copies(world: World) -> list[targets.BackupSource]:
    return [targets.BackupSource(world.target, "nightly", "r1", BELIEVED)]


def recovered_as_recorded(manifest: Manifest) -> Recovered:
    position = manifest.position
    return Recovered(position.binlog_offset, position.gtid, innodb_binlog=None, lsn=manifest.lsn, prepared=0)


@pytest.fixture
def recovering(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> Recovering:
    """What starts on a restored folder; the folder is marked as incomplete meanwhile."""
    server = Recovering(recovered_as_recorded(manifest), ended=Check("clean shutdown", ok=True, expected="", found=""))

    @contextmanager
    def running(self: object) -> Iterator[Recovering]:
        yield server

    def seed(session: object, position: object, wanted: ReplicaWish) -> Seeded:
        return Seeded(Words.MARIADB, manifest.position, ("CHANGE MASTER TO …",), ("START SLAVE",))

    monkeypatch.setattr("backupd.operations.restore.restored_copy.ScratchServer.running", running)
    monkeypatch.setattr("backupd.operations.restore.restored_copy.matching_program", lambda facts: "mariadbd")
    monkeypatch.setattr("backupd.operations.restore.restored_copy.recovered", lambda *asked, facts: server.found)
    monkeypatch.setattr(
        "backupd.operations.restore.restored_copy.derive",
        lambda server, manifest: Derived(manifest.position, recovered_as_recorded(manifest)),
    )
    monkeypatch.setattr("backupd.operations.restore.clone.seed", seed)
    return server


def test_a_clone_is_whole_and_says_how_it_is_started(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    made = clone(manifest, copies(world), WANTED, to=tmp_path / "clone")
    assert (made.datadir / "ibdata1").exists()
    assert f"datadir = {made.datadir}" in made.option_file.read_text()
    assert "START SLAVE;" in made.statements_file.read_text()
    names = {path.name for path in made.datadir.iterdir()}
    assert names & {MARKER, "bin.000001", "bin.index", "auto.cnf"} == set()


def test_nobody_else_can_enter_a_clone_as_long_as_we_work_in_it(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    to, seen = tmp_path / "clone", []
    clone(manifest, copies(world), WANTED, to=to, telling=lambda step: seen.append((step, S_IMODE(to.stat().st_mode))))
    assert seen == [("restoring", 0o700), ("recovering it and setting its replication source", 0o700)]
    assert to.stat().st_mode == world.datadir.stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_copy_that_recovers_to_another_position_is_no_replica(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path, exists: bool
) -> None:
    recovering.found = replace(recovering.found, gtid="0-1-1")
    to = tmp_path / "clone"
    if exists:
        to.mkdir()
    with pytest.raises(VerificationError, match="did not recover to its recorded position: gtid"):
        clone(manifest, copies(world), WANTED, to=to)
    assert to.exists() == exists
    assert not exists or list(to.iterdir()) == []


def test_a_server_that_does_not_end_cleanly_leaves_no_clone(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    recovering._ended = Check("clean shutdown", ok=False, expected="status 0", found="status 1")
    with pytest.raises(ServerError, match="status 1"):
        clone(manifest, copies(world), WANTED, to=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_no_binlog_is_removed_where_a_server_on_the_copy_has_put_a_link(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    to, live = tmp_path / "clone", tmp_path / "live"
    live.mkdir()
    (live / "bin.000001").touch()

    def shut_down() -> Check:
        (to / "logs").symlink_to(live)
        return recovering._ended

    recovering.shut_down = shut_down  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="points outside the restored copy"):
        clone(replace(manifest, binlog="logs/bin.000001"), copies(world), WANTED, to=to)
    assert (live / "bin.000001").exists()


def test_a_clone_whose_own_files_find_no_room_is_none(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room_for(STATEMENTS_FILE, monkeypatch)
    with pytest.raises(UsageError, match=f"{STATEMENTS_FILE} could not be written: No space left"):
        clone(manifest, copies(world), WANTED, to=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_a_copy_without_lock_and_binlog_has_no_position(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    without = replace(manifest, locked=False, position=Position(), binlog=None)
    with pytest.raises(VerificationError, match="without a lock"):
        clone(without, copies(world), WANTED, to=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_a_server_program_that_is_not_here_is_missed_before_anything_is_read(
    manifest: Manifest, world: World, tmp_path: Path
) -> None:
    elsewhere = replace(manifest, server=replace(manifest.server, version_number=(10, 1, 0)))
    (world.backups / "r1" / "data-1.tar.zst").unlink()
    with pytest.raises(ServerError, match=r"no mariadb 10\.1 server is installed here"):
        clone(elsewhere, copies(world), WANTED, to=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_an_unreadable_target_leaves_no_clone(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    (world.backups / "r1" / "binlog.tar.zst").unlink()
    with pytest.raises(TargetError):
        clone(manifest, copies(world), WANTED, to=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_a_folder_that_is_not_empty_stays_as_it_is(
    recovering: Recovering, manifest: Manifest, world: World, tmp_path: Path
) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "mine").write_text("keep me")
    with pytest.raises(UsageError, match="is not empty"):
        clone(manifest, copies(world), WANTED, to=tmp_path / "clone")
    assert [path.name for path in (tmp_path / "clone").iterdir()] == ["mine"]


def test_the_sources_own_id_is_refused_and_never_chosen(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(manifest, server=replace(manifest.server, settings={"server_id": "7"}))
    with pytest.raises(UsageError, match="7 is the server_id of db1 itself"):
        require_another_id(known, 7)
    drawn = iter([b"\0\0\0\0", b"\0\0\0\7", b"\0\0\1\0"])
    monkeypatch.setattr("backupd.operations.restore.clone.os.urandom", lambda size: next(drawn))
    assert new_server_id(known) == 256
