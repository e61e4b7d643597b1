"""What of a snapshot is stored, under which name, wherever datadir and binlog lie."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pytest

from backupd.operations.backup import contents
from backupd.operations.backup.live_binlogs import live_binlogs
from backupd.operations.backup.preflight import Ready
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Frame, StoredObject
from backupd.vocabulary.volumes import Layout, MountPoint, VolumeGroup
from tests.fakes.lvm_host import striped_volume
from tests.fakes.server import FACTS
from tests.fakes.target import MACHINE

POSITION = Position("bin.000007", 4096, "0-1-7")
TAIL = contents.BinlogTail(POSITION)
OBJECT = StoredObject("data-1.tar.zst", 10, 5, "a" * 64, "b" * 64, 1, (Frame(10, 5, "b" * 64),))


def ready(root: Path, *, datadir: str = "mysql", binlog: str | None = "mysql/bin", **settings: str) -> Ready:
    volume = striped_volume()
    for folder in (datadir, *([str(Path(binlog).parent)] if binlog else [])):
        (root / folder).mkdir(parents=True, exist_ok=True)
    return Ready(
        facts=replace(
            FACTS,
            datadir=root / datadir,
            binlog_basename=root / binlog if binlog else None,
            settings={name: str(root / value) for name, value in settings.items()},
        ),
        paths=(),
        mount=MountPoint(root, volume.device, "xfs"),
        volume=volume,
        group=VolumeGroup("labvg", 4 << 20, 100),
        root=root,
    )


def left_out(known: Ready, *, include_binlogs: bool = False, tail: contents.BinlogTail = TAIL) -> set[str]:
    names = [
        "mysql/ibdata1",
        "mysql/ibtmp1",
        "mysql/bin.000006",
        "mysql/bin.000007",
        "mysql/bin.index",
        "mysql/relay.000001",
        "mysql/#innodb_redo/#ib_redo1",
        "mysql/#ib_16384_0.dblwr",
        ".backupd-r1/test_file.0",
    ]
    exclusions = contents.exclusions(known, tail, include_binlogs=include_binlogs)
    return {name for name in names if exclusions.left_out(PurePosixPath(name))}


def test_binlogs_relay_logs_temporary_files_and_our_own_are_left_out(tmp_path: Path) -> None:
    known = ready(tmp_path, relay_log_basename="mysql/relay")
    assert left_out(known) == {
        "mysql/ibtmp1",
        "mysql/bin.000006",
        "mysql/bin.000007",
        "mysql/bin.index",
        "mysql/relay.000001",
        ".backupd-r1/test_file.0",
    }


def test_earlier_binlogs_stay_in_when_asked_for(tmp_path: Path) -> None:
    assert "mysql/bin.000006" not in left_out(ready(tmp_path), include_binlogs=True)
    assert "mysql/bin.000007" in left_out(ready(tmp_path), include_binlogs=True)


def test_without_a_binlog_nothing_is_taken_for_one(tmp_path: Path) -> None:
    assert "mysql/bin.000006" not in left_out(ready(tmp_path, binlog=None))


@pytest.mark.parametrize(
    ("binlog", "file", "arcname"),
    [
        ("mysql/bin", "mysql/bin.000007", "mysql/bin.000007"),
        ("logs/bin", "logs/bin.000007", "logs/bin.000007"),
    ],
)
def test_the_named_binlog_is_read_from_the_snapshot_if_it_has_it(
    tmp_path: Path, binlog: str, file: str, arcname: str
) -> None:
    root, mounted = tmp_path / "volume", tmp_path / "mnt"
    cut = contents.binlog_cut(ready(root, binlog=binlog), TAIL, mounted)
    assert cut is not None
    assert cut.file == mounted / file
    assert (str(cut.arcname), cut.offset) == (arcname, 4096)


def test_a_binlog_that_the_snapshot_does_not_have_is_read_from_the_file_that_is_held_open(tmp_path: Path) -> None:
    known = ready(tmp_path / "volume", binlog="../elsewhere/bin")
    folder = tmp_path / "volume" / ".." / "elsewhere"
    (folder / "bin.index").write_text("./bin.000007\n")
    (folder / "bin.000007").write_text("the server's")
    assert contents.live_folder(ready(tmp_path / "volume")) is None
    place = contents.live_folder(known)
    assert place == (folder / "bin.index", folder)
    with live_binlogs(*place) as held:
        held.hold("bin.000007", with_earlier=False)
        (folder / "bin.000007").unlink()
        cut = contents.binlog_cut(known, TAIL, tmp_path, live=held)
        assert cut is not None
        assert (cut.file.read_text(), str(cut.arcname)) == ("the server's", ".backupd-binlog/bin.000007")


def test_the_header_of_an_encrypted_binlog_is_counted_by_no_position_and_stored(tmp_path: Path) -> None:
    known = ready(tmp_path)
    encrypted = replace(known, facts=replace(known.facts, settings={"binlog_encryption": "ON"}))
    cut = contents.binlog_cut(encrypted, contents.BinlogTail(POSITION), tmp_path)
    assert cut is not None
    assert cut.offset == 4096 + 512


@pytest.mark.parametrize(("binlog", "position"), [(None, POSITION), ("mysql/bin", Position())])
def test_without_a_position_there_is_no_binlog_to_store(tmp_path: Path, binlog: str | None, position: Position) -> None:
    assert contents.binlog_cut(ready(tmp_path, binlog=binlog), contents.BinlogTail(position), tmp_path) is None


def written(known: Ready) -> tuple[str, str | None]:
    run = RunDetails(
        "r1", "nightly", "db1", MACHINE, RunStatus.RUNNING, datetime(2026, 1, 2, tzinfo=UTC), position=POSITION
    )
    manifest = contents.manifest(
        known, run, objects=(OBJECT,), canary=None, locked=True, recipients=("age1x",), audit_head="ab"
    )
    assert (manifest.run, manifest.recipients, manifest.audit_head) == (contents.run_section(run), ("age1x",), "ab")
    assert manifest.filesystem == known.mount.filesystem
    assert (manifest.layout, manifest.volume, manifest.objects) == (Layout.STRIPED, "labvg/data", (OBJECT,))
    assert manifest.created_at.utcoffset() is not None
    return manifest.datadir, manifest.binlog


def test_the_manifest_names_the_datadir_below_the_archived_folder(tmp_path: Path) -> None:
    assert written(ready(tmp_path)) == ("mysql", "mysql/bin.000007")


def test_a_datadir_that_is_the_archived_folder_is_a_dot(tmp_path: Path) -> None:
    assert written(ready(tmp_path, datadir=".", binlog="bin")) == (".", "bin.000007")


def test_a_datadir_behind_a_link_is_told_where_it_is(tmp_path: Path) -> None:
    root = tmp_path / "volume"
    known = ready(root)
    (tmp_path / "var-lib-mysql").symlink_to(root / "mysql")
    linked = replace(known.facts, datadir=tmp_path / "var-lib-mysql", binlog_basename=tmp_path / "var-lib-mysql/bin")
    assert written(replace(known, facts=linked)) == ("mysql", "mysql/bin.000007")


def in_image(root: Path, index: str, *binlogs: str) -> Ready:
    known = ready(root, log_bin_index="mysql/bin.index")
    (root / "mysql" / "bin.index").write_text(index)
    for name in binlogs:
        (root / "mysql" / name).write_bytes(b"\xfebin" + bytes(96))
    return known


def test_without_a_lock_the_image_says_which_binlog_is_its_last_and_what_of_it_counts(tmp_path: Path) -> None:
    known = in_image(tmp_path, "./bin.000006\n/srv/live/bin.000007\n", "bin.000006", "bin.000007")
    tail = contents.tail_in_image(known, tmp_path)
    assert tail == contents.BinlogTail(Position("bin.000007"))
    cut = contents.binlog_cut(known, tail, tmp_path)
    assert cut is not None
    assert (cut.file, cut.offset) == (tmp_path / "mysql" / "bin.000007", 4), "what is no whole event counts for nothing"
    mysql = replace(known, facts=replace(known.facts, flavour=Flavour.MYSQL))
    cut = contents.binlog_cut(mysql, tail, tmp_path)
    assert cut is not None
    assert cut.offset == 100, "MySQL finds the end itself"


def test_what_recovery_needs_of_the_binlogs_before_is_stored_with_the_data(tmp_path: Path) -> None:
    tail = contents.BinlogTail(Position("bin.000007"), earlier=("bin.000006",))
    assert "mysql/bin.000006" not in left_out(ready(tmp_path), tail=tail)
    known = in_image(tmp_path, "./bin.000006\n./bin.000007\n", "bin.000007")
    cut = contents.binlog_cut(known, tail, tmp_path)
    assert cut is not None
    assert cut.earlier == ("bin.000006",)


@pytest.mark.parametrize("index", ["", "./bin.000007\n"], ids=["lists nothing", "lists what is not there"])
def test_an_image_whose_binlog_cannot_be_read_is_no_backup(tmp_path: Path, index: str) -> None:
    with pytest.raises(SnapshotError, match="the snapshot's binlog"):
        contents.tail_in_image(in_image(tmp_path, index), tmp_path)


def test_a_server_without_binlog_has_none_in_its_image(tmp_path: Path) -> None:
    assert contents.tail_in_image(ready(tmp_path, binlog=None), tmp_path) == contents.BinlogTail(Position())
