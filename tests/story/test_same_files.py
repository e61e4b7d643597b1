"""The archived folder is the datadir: whatever is mounted where, no other tree is stored, and all of it is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.vocabulary.errors import ExitStatus, Refused, SnapshotError
from backupd.vocabulary.servers import DataPath, Flavour
from backupd.vocabulary.volumes import DeviceNumber
from tests.story.test_every_failure import assert_failed_and_clean
from tests.story.test_good_run import unpacked
from tests.story.world import World


@pytest.fixture
def bound(tmp_path: Path) -> World:
    """The datadir's mount shows one folder of the volume; somebody else's `mysql` lies at the same place of another."""
    world = World(tmp_path, bound="tenants/one")
    stranger = tmp_path / "volume" / "mysql"
    stranger.mkdir()
    for name in ("ibdata1", "secret.ibd"):
        (stranger / name).write_text("a stranger's")
    return world


def test_behind_a_bind_mount_the_datadir_is_stored_and_nothing_of_strangers(bound: World) -> None:
    row = bound.back_up()
    names = unpacked(stored(bound, "data-1.tar.zst"))
    assert row.error is None
    assert "secret.ibd" not in names
    assert b"a stranger's" not in names.values()
    assert names["ibdata1"] == (bound.datadir / "ibdata1").read_bytes()
    assert bound.left() == []


def stored(world: World, name: str) -> Path:
    return next(world.vault.rglob(name))


def moved_aside(world: World) -> None:
    """Somebody puts another folder where the datadir was."""
    world.datadir.rename(world.datadir.with_name("old"))
    (world.datadir / "shop").mkdir(parents=True)
    for name in ("ibdata1", "ib_logfile0", "bin.000001", "shop/orders.ibd"):
        (world.datadir / name).write_bytes(bytes(20_000))


def gone(world: World) -> None:
    world.datadir.rename(world.datadir.with_name("old"))


def another_file(world: World) -> None:
    """The folder is the same, the system tablespace is not."""
    (world.datadir / "ibdata1").rename(world.datadir / "was")
    (world.datadir / "ibdata1").write_bytes(bytes(100_000))


def moved_behind_a_link(world: World) -> None:
    """The server works on in its folder, and so does whoever follows the link: out of the snapshot, to live files."""
    moved = world.datadir.with_name("moved")
    world.datadir.rename(moved)
    world.datadir.symlink_to(moved)


def file_behind_a_link(world: World) -> None:
    moved = world.datadir / "moved"
    (world.datadir / "ibdata1").rename(moved)
    (world.datadir / "ibdata1").symlink_to(moved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (moved_behind_a_link, "mysql is reached by a symbolic link in the snapshot, at mysql of its file system"),
        (file_behind_a_link, "ibdata1 is reached by a symbolic link in the snapshot, at mysql/ibdata1"),
        (moved_aside, "mysql differs from what the snapshot has at mysql of its file system"),
        (gone, "mysql is not in the snapshot"),
        (another_file, "ibdata1 differs from what the snapshot has at mysql/ibdata1"),
    ],
)
def test_a_datadir_that_was_replaced_before_the_snapshot_is_no_backup(
    world: World, change: Callable[[World], None], words: str
) -> None:
    world.at["lock.granted"] = lambda: change(world)
    error = world.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert words in error.message
    assert "findmnt" in error.hint
    assert_failed_and_clean(world, world.row(), error, ExitStatus.SNAPSHOT)
    assert world.stored() == []


def test_a_tablespace_that_the_server_has_and_the_snapshot_lacks_ends_the_run_before_anything_is_stored(
    world: World,
) -> None:
    hidden = world.datadir / "shop" / "hidden.ibd"
    world.at["host.create"] = hidden.unlink  # as if another file system had been seen there
    hidden.write_bytes(bytes(100))
    world.database.lost = {"shop/hidden.ibd": 7}
    world.at["host.mount"] = lambda: hidden.write_bytes(bytes(100))
    error = world.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert "tablespaces that are not in the snapshot: shop/hidden.ibd" in error.message
    assert_failed_and_clean(world, world.row(), error, ExitStatus.SNAPSHOT)
    assert world.stored() == []


def dropped(world: World) -> None:
    (world.datadir / "shop" / "orders.ibd").unlink()


def dropped_and_made_again(world: World) -> None:
    """Gone at the instant of the snapshot; afterwards there is a table of that name, in another tablespace."""
    dropped(world)

    def make() -> None:
        (world.datadir / "shop" / "orders.ibd").write_bytes(b"new")
        world.database.lost["shop/orders.ibd"] = 99

    world.at["host.mount"] = make


@pytest.mark.parametrize("change", [dropped, dropped_and_made_again])
def test_a_table_that_went_before_the_snapshot_fails_no_run(world: World, change: Callable[[World], None]) -> None:
    world.at["lock.granted"] = lambda: change(world)
    row = world.back_up()
    assert (row.error, row.attention) == (None, ())


def test_a_table_without_a_file_such_as_a_discarded_one_fails_no_run(world: World) -> None:
    world.database.lost = {"shop/discarded.ibd": 5}
    assert world.back_up().error is None


def numbered(*names: str) -> dict[str, int]:
    return {f"{name}.ibd": number for number, name in enumerate(names, start=100)}


OF_EVERY_SERVER = ("mysql/gtid_slave_pos", "mysql/innodb_index_stats", "mysql/innodb_table_stats", "sys/sys_config")


@pytest.mark.parametrize("count", [3, 40])
def test_a_server_of_which_no_table_is_here_is_another_one(world: World, count: int) -> None:
    """As one in a container whose port is published here, and whose datadir has the path of the host's own server's."""
    (world.datadir / "shop" / "orders.ibd").unlink()
    for name in OF_EVERY_SERVER:
        (world.datadir / name).parent.mkdir(exist_ok=True)
        (world.datadir / f"{name}.ibd").touch()
    world.database.lost = numbered(*(f"prod/t{number}" for number in range(count)), *OF_EVERY_SERVER)
    error = world.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert f"none of the {count} tables that the server names is in its datadir" in error.message
    assert "prod/t0.ibd, prod/t1.ibd" in error.message
    assert "another server" in error.hint
    assert_failed_and_clean(world, world.row(), error, ExitStatus.SNAPSHOT)
    assert world.stored() == []


def test_of_tables_most_of_which_a_dictionary_alone_has_a_person_is_told(world: World) -> None:
    """A schema that was removed with its files, a server that was restored from a part of a backup."""
    world.database.lost = numbered(*(f"prod/t{number}" for number in range(40)))
    row = world.back_up()
    assert row.error is None
    (told,) = row.attention
    assert told.startswith(f"40 of the 41 tables that the server names are nowhere in its datadir {world.datadir} (")
    assert "prod/t0.ibd, prod/t1.ibd" in told


@pytest.mark.parametrize(
    "names",
    [
        ("shop/one", "shop/two", "shop/three", "shop/four"),
        ("shop/one#P#p0", "shop/one#p#p1#sp#s0", "shop/one#P#p2", "shop/one#P#p3"),
        ("shop/FTS_0000000000000016_DELETED", "shop/FTS_0000000000000016_CONFIG", "shop/one#i#01"),
        ("shop/#sql-ib20", "shop/#sql-ib21", "shop/#sql-alter-5-c"),
    ],
)
def test_tables_that_were_discarded_fail_no_run_however_many(world: World, names: tuple[str, ...]) -> None:
    """As for the import of a whole schema: their definitions are there. Those of InnoDB's own never are."""
    world.database.lost = numbered(*names)
    for name in ("one", "two", "three", "four"):
        (world.datadir / "shop" / f"{name}.frm").touch()
    row = world.back_up()
    assert (row.error, row.attention) == (None, ())


def test_a_few_tables_that_a_dictionary_alone_has_fail_no_run(world: World) -> None:
    for name in ("one", "two", "three"):
        (world.datadir / "shop" / f"{name}.ibd").touch()
    world.database.lost = numbered("shop/gone", "shop/went", "shop/left")
    assert world.back_up().error is None


def test_mysql_is_known_by_its_uuid_and_may_have_discarded_every_table(world: World) -> None:
    world.database.facts = replace(world.database.facts, flavour=Flavour.MYSQL)
    world.database.lost = numbered(*(f"prod/t{number}" for number in range(40)))
    assert world.back_up().error is None


def test_a_table_made_between_the_question_and_the_snapshot_is_stored(world: World) -> None:
    world.at["lock.granted"] = lambda: (world.datadir / "shop" / "new.ibd").write_bytes(b"new")
    assert world.back_up().error is None
    assert unpacked(stored(world, "data-1.tar.zst"))["shop/new.ibd"] == b"new"


def test_tablespaces_behind_a_relative_link_are_found_where_they_are(world: World) -> None:
    elsewhere = world.mount_root / "large"
    (world.datadir / "shop").rename(elsewhere)
    (world.datadir / "shop").symlink_to("../large")
    world.database.paths = (*world.database.paths, DataPath("symlink", elsewhere, must_share=True))
    world.database.lost = {"shop/orders.ibd": 5}
    assert world.back_up().error is None
    assert "large/orders.ibd" in unpacked(stored(world, "data-1.tar.zst"))


def test_a_table_that_got_a_data_directory_of_its_own_after_the_preflight_ends_the_run(world: World) -> None:
    """Its file is elsewhere, and so nowhere in the datadir: it would be taken for one that was dropped."""
    world.database.lost = {"shop/far.ibd": 7}
    world.at["lock.granted"] = lambda: (world.datadir / "shop" / "far.isl").write_text("/mnt/nvme/shop/far.ibd")
    error = world.try_to_back_up()
    assert isinstance(error, SnapshotError)
    assert "tables with their own DATA DIRECTORY, created since the preflight: shop/far.isl" in error.message
    assert "rebuild the tables inside the datadir" in error.hint
    assert_failed_and_clean(world, world.row(), error, ExitStatus.SNAPSHOT)
    assert world.stored() == []


def test_a_table_of_another_server_beside_the_datadir_is_not_asked_where_it_lies(world: World) -> None:
    elsewhere, another = world.mount_root / "large", world.mount_root / "another" / "far.isl"
    (world.datadir / "shop").rename(elsewhere)
    (world.datadir / "shop").symlink_to("../large")
    world.database.paths = (*world.database.paths, DataPath("symlink", elsewhere, must_share=True))
    another.parent.mkdir()
    another.write_text("/mnt/nvme/far.ibd")
    assert world.back_up().error is None
    assert "another/far.isl" in unpacked(stored(world, "data-1.tar.zst"))


def test_another_file_system_within_the_datadir_is_refused(world: World) -> None:
    world.nested, world.nested_device = (world.datadir / "shop",), DeviceNumber(8, 2)
    error = world.try_to_back_up()
    assert isinstance(error, Refused)
    assert f"mount {world.datadir}/shop is on {world.datadir}/shop (8:2)" in error.message


def test_files_seen_through_another_mount_of_the_same_file_system_are_refused(world: World) -> None:
    world.nested = (world.datadir / "shop",)
    error = world.try_to_back_up()
    assert isinstance(error, Refused)
    assert f"one mount: outside of the mount at {world.mount_root}" in error.message
    assert f"{world.datadir}/shop is reached through {world.datadir}/shop" in error.message
    assert "without a separate bind mount" in error.hint
