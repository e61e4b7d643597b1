"""`backupd restore` as a person meets it: into a folder, into a volume, and what it tells to do next."""

from pathlib import Path

import pytest

from backupd import wiring
from backupd.host.operator_name import operator
from backupd.mysql.replica_files import STATEMENTS_FILE
from backupd.vocabulary.errors import ExitStatus, Refused, ServerError
from backupd.vocabulary.records import HoldingKind
from tests.cli.terminal import Terminal
from tests.fakes.blank_volumes import FakeBlankVolumes
from tests.full_disk import no_room_for
from tests.story.stored import damaged
from tests.story.world import World

DEVICE = Path("/dev/labvg/data")


@pytest.fixture
def terminal(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on a host whose run `r1` has a backup."""
    world.back_up()
    return Terminal(world, monkeypatch, capsys)


@pytest.fixture
def blanks(terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch) -> FakeBlankVolumes:
    """The world's volume is blank."""
    made = FakeBlankVolumes()
    world.also_released = {
        HoldingKind.MOUNT: lambda holding: made.unmount(Path(holding.name)),
        HoldingKind.FILESYSTEM: lambda holding: made.wipe(Path("/dev", holding.name), holding.detail["uuid"]),
    }
    monkeypatch.setattr(wiring, "blank_volumes", lambda overwrite_leftovers=False: made.taken(overwrite_leftovers))
    return made


@pytest.mark.parametrize("words", [(), ("--to", "/somewhere", "--into-volume", "labvg/data")])
def test_a_restore_goes_to_a_folder_or_to_a_volume(terminal: Terminal, words: tuple[str, ...]) -> None:
    ended = terminal.run("restore", "r1", *words)
    assert ended.status == 2
    assert "hint: --to DIR, or --into-volume VG/LV" in ended.stderr


TO_LOAD = ("restore", "r1", "--tables", "shop.orders", "--into", "db1", "--as", "restored")


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (("--into", "db1"), "--into HOST and --as NAME belong together", "give all three: --tables"),
        (("--to", "/x", "--overwrite-leftovers"), "--overwrite-leftovers belongs to --into-volume", "omit it"),
        (("--into", "db1", "--as", "x"), "--into HOST and --as NAME belong together", "give all three"),
        (("--into", "db1", "--tables", "a.b"), "--into HOST and --as NAME belong together", "give all three"),
        (("--to", "/x", "--tables", "a.b", "--as", "x"), "--into HOST and --as NAME belong together", "give all three"),
        (
            ("--into", "db1", "--as", "x", "--tables", "a.b", "--to-latest"),
            "--into cannot load tables as of a moment",
            "use --tables DB.T --to DIR with the moment",
        ),
        (("--into", "db1", "--to", "/x", "--tables", "a.b"), "give one place to restore to", "--to DIR, or"),
        (
            ("--into", "db1", "--tables", "a.b", "--as", "x", "--prepare-replica"),
            "single tables can only be restored into a folder or a running server",
            "with --tables, give --to DIR, or --into HOST --as NAME",
        ),
        (
            ("--into", "db9:3306", "--tables", "a.b", "--as", "x"),
            "no host 'db9:3306'",
            "configured hosts: db1; add a table [hosts.NAME] for another server",
        ),
        (("--into", "db1", "--tables", "a.b", "--as", "a.b"), "'a.b' is not a name for a new schema", "letters, dig"),
        (
            ("--into", "db1", "--tables", "a.b", "--as", "backupd_loading_1"),
            "'backupd_loading_1' is not a name for a new schema",
            "letters, digits, _ and -",
        ),
        (
            ("--into", "db1", "--tables", "a.b,c.B", "--as", "x"),
            "two of these tables are called b, and both go into schema x",
            "load one after the other",
        ),
        (
            ("--into", "db1", "--tables", "a.b", "--tables", "c.B", "--as", "x"),
            "two of these tables are called b, and both go into schema x",
            "load one after the other",
        ),
        (("--into", "db1", "--tables", "b", "--as", "x"), "'b' is not a list of tables", "for example --tables shop"),
    ],
)
def test_what_cannot_be_loaded_into_a_server_is_a_sentence_before_anything_is_done(
    terminal: Terminal, world: World, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    ended = terminal.run("restore", "r1", *words)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert f"error: {sentence}" in ended.stderr
    assert f"hint: {hint}" in ended.stderr
    with world.catalogue() as catalogue:
        assert "restore-started" not in {entry.event for entry in catalogue.audit_entries(limit=None)}


def test_a_server_that_does_not_answer_is_told_before_anything_is_fetched(terminal: Terminal, world: World) -> None:
    ended = terminal.run(*TO_LOAD)
    assert (ended.status, ended.stdout) == (ExitStatus.SERVER, "")
    assert f"error: cannot connect to the server at {world.base}/mysqld.sock" in ended.stderr
    assert list(world.places.staging.glob("*")) == []
    with world.catalogue() as catalogue:
        told = catalogue.audit_entries(limit=1)[0]
    assert (told.event, told.detail["to"]) == ("restore-ended", "server db1, schema restored")
    assert (told.detail["outcome"], told.detail["code"]) == ("failed", "server-error")
    assert told.detail["targets"] == []


def test_a_restore_prints_what_a_replica_needs_next(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.run("restore", "r1", "--to", str(tmp_path / "back"))
    assert ended.stdout.startswith(f"restored run r1 to {tmp_path}/back: datadir {tmp_path}/back\n")
    assert "\nSTART SLAVE;\n" in ended.stdout
    assert "mariadb-binlog --start-position=" in ended.stdout
    assert not (tmp_path / "back" / STATEMENTS_FILE).exists()


def test_restores_and_what_became_of_them_are_in_the_audit_trail(
    terminal: Terminal, world: World, tmp_path: Path
) -> None:
    assert terminal.run("restore", "r1", "--to", str(tmp_path / "back")).status == ExitStatus.OK
    assert terminal.run("restore", "r1", "--to", str(tmp_path)).status == ExitStatus.USAGE  # it holds the first
    with world.catalogue() as catalogue:
        *_, good, _, bad = catalogue.audit_entries(limit=None)[::-1]
    assert (good.event, good.subject, good.detail["outcome"]) == ("restore-ended", "r1", "success")
    assert (good.detail["to"], bad.detail["to"]) == (str(tmp_path / "back"), str(tmp_path))
    assert (bad.event, bad.detail["outcome"], bad.detail["code"]) == ("restore-ended", "failed", "usage-error")
    assert (good.detail["targets"], bad.detail["targets"]) == (["vault"], ["vault"])  # the other's manifest was read
    listed = terminal.run("audit", "list").stdout
    assert "restore-started" in listed
    assert f"operator: {operator().name}" in listed


def test_prepared_for_a_replica_the_statements_lie_beside_the_datadir(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.run("restore", "r1", "--to", str(tmp_path / "back"), "--prepare-replica")
    written = (tmp_path / "back" / STATEMENTS_FILE).read_text()
    assert "\nSTART SLAVE;\n" in written
    assert written.rstrip() in ended.stdout


def test_statements_that_find_no_room_cost_no_restored_file(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room_for(STATEMENTS_FILE, monkeypatch)
    ended = terminal.run("restore", "r1", "--to", str(tmp_path / "back"), "--prepare-replica")
    assert ended.status == ExitStatus.USAGE
    assert f"error: {tmp_path}/back/{STATEMENTS_FILE} could not be written: No space left on device" in ended.stderr
    assert "hint: the restored copy is complete" in ended.stderr
    assert (tmp_path / "back" / "ibdata1").stat().st_size == 100_000


def test_a_lost_host_is_restored_on_another_that_knows_the_target_and_nothing_else(
    terminal: Terminal, world: World, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    configuration = elsewhere / "backupd.toml"
    configuration.write_text(
        f"""
        [catalogue]
        path = "{elsewhere}/catalogue.sqlite"
        [paths]
        run = "{elsewhere}/run"
        [hosts.spare]
        socket = "{elsewhere}/there-is-no-server.sock"
        user = "backupd"
        [targets.vault]
        type = "directory"
        path = "{world.vault}"
        [jobs.any]
        host = "spare"
        targets = ["vault"]
        """
    )
    rebuild = ["catalogue", "rebuild", "--target", "vault", "--trust", world.public_key]
    for typed in (rebuild, ["restore", "latest", "--to", str(elsewhere / "new")]):
        ended = terminal.run(*typed, configuration=configuration)
        assert ended.status == 0, ended.stderr
    assert (elsewhere / "new" / "ibdata1").stat().st_size == 100_000


def test_a_volume_is_filled_and_its_mount_line_printed(
    terminal: Terminal, blanks: FakeBlankVolumes, world: World
) -> None:
    ended = terminal.run("restore", "r1", "--into-volume", "labvg/data", "--prepare-replica")
    assert ended.status == 0, ended.stderr
    assert "restored run r1 to labvg/data: datadir MOUNT-POINT\n" in ended.stdout
    assert f"mount it: mount -t {blanks.kinds[DEVICE]} /dev/labvg/data MOUNT-POINT\n" in ended.stdout
    assert "cd MOUNT-POINT && rm -f" in ended.stdout
    assert "-- Its files belong to " in ended.stdout, "whoever runs this is no server"
    assert "chown --recursive --no-dereference mysql: MOUNT-POINT\n" in ended.stdout
    on_it = world.places.mount_point("r1")  # the fake leaves there what the device has
    assert (on_it / "ibdata1").stat().st_size == 100_000
    assert (on_it / STATEMENTS_FILE).read_text().rstrip() in ended.stdout
    assert blanks.mounted == {}


def test_a_broken_backup_leaves_the_volume_blank(terminal: Terminal, blanks: FakeBlankVolumes, world: World) -> None:
    for stored in (world.backups / "r1").glob("*.zst"):
        stored.write_bytes(damaged(stored.read_bytes()))
    assert terminal.run("restore", "r1", "--into-volume", "labvg/data").status == 9
    assert (blanks.held, blanks.mounted) == ({}, {})


def test_a_volume_that_holds_something_is_status_5(terminal: Terminal, blanks: FakeBlankVolumes) -> None:
    blanks.held[DEVICE] = "xfs"
    ended = terminal.run("restore", "r1", "--into-volume", "labvg/data")
    assert ended.status == Refused.exit_status
    assert "it has xfs" in ended.stderr


def test_data_in_no_known_format_is_overwritten_by_who_says_so(terminal: Terminal, blanks: FakeBlankVolumes) -> None:
    blanks.leftovers.add(DEVICE)
    ended = terminal.run("restore", "r1", "--into-volume", "labvg/data")
    assert ended.status == Refused.exit_status
    assert "--overwrite-leftovers" in ended.stderr
    assert terminal.run("restore", "r1", "--into-volume", "labvg/data", "--overwrite-leftovers").status == 0


def test_a_volume_that_stays_mounted_is_an_attention(terminal: Terminal, blanks: FakeBlankVolumes) -> None:
    blanks.fails = "unmount"
    ended = terminal.run("restore", "r1", "--into-volume", "labvg/data")
    assert ended.status == 3
    assert "attention: clean-up incomplete: unmount failed" in ended.stderr
    assert "restored run r1" in ended.stdout
    assert DEVICE in blanks.held


def test_tables_that_no_server_here_can_recover_are_an_attention_in_the_audit_trail_too(
    terminal: Terminal, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*asked: object, **more: object) -> None:
        raise ServerError("no matching server is here", hint="install one")

    monkeypatch.setattr("backupd.mysql.scratch.matching_program", refused)
    ended = terminal.run("restore", "r1", "--to", str(tmp_path / "back"), "--tables", "shop.orders")
    assert ended.status == ExitStatus.ATTENTION, ended.stderr
    assert "NOT recovered" in ended.stdout
    with world.catalogue() as catalogue:
        told = catalogue.audit_entries(limit=1)[0].detail
    assert told["outcome"] == "attention"
    assert "could not be recovered here: no matching server is here" in told["attentions"][0]
