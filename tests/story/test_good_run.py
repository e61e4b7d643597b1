"""A run that goes well: what its row says, what is on the target, and that nothing else is left."""

import hashlib
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from backupd.config import CopyConfig, LockConfig, LockStrategy, SettleConfig
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.penalty import GateOutcome, Reason
from backupd.vocabulary.records import Phase, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.volumes import Layout
from tests.story.world import FILES, World


def unpacked(stored: Path) -> dict[str, bytes]:
    """What a person finds in an object with nothing but zstd and tar."""
    into = stored.parent / f"{stored.name}.unpacked"
    into.mkdir()
    zstd = subprocess.run(["zstd", "-dc", str(stored)], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(into)], input=zstd.stdout, check=True)
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def test_the_row_of_a_good_run_says_everything_that_was_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "backupd.operations.backup.settling.LOOK_SECONDS", 3600.0
    )  # no second look, however long the copy takes
    row = world.back_up()
    assert (row.status, row.error, row.attention) == (RunStatus.SUCCESS, None, ())
    assert set(row.phases) == set(Phase) - {Phase.PREFLUSH, Phase.SEND}  # the job asks for neither
    assert all(seconds >= 0 for seconds in row.phases.values())
    assert row.verdict is not None
    assert (row.verdict.outcome, row.verdict.reason) == (GateOutcome.START, Reason.SETTLED)
    assert row.position == Position("bin.000001", 1100, "0-1-1100")  # the canary's row moved it from 1000
    assert row.lock is not None
    assert (row.lock.strategy, row.lock.lsn) == ("ftwrl", 4711)
    assert row.snapshot is not None
    assert (row.snapshot.layout, row.snapshot.stripes, row.snapshot.volume) == (Layout.STRIPED, 3, "labvg/data")
    assert row.snapshot.cow_used_peak == 2 * row.snapshot.chunk_size
    assert {sample.stage for sample in row.samples} == {"baseline", "settle"}
    assert row.ended_at is not None


def test_option_files_are_stored_with_the_backup(world: World) -> None:
    options = world.base / "my.cnf"
    options.write_text("[mysqld]\ninnodb_buffer_pool_size = 1G\npassword = hunter22\n")
    assert world.back_up(job=world.job(copy=CopyConfig(option_files=(options,)))).status is RunStatus.SUCCESS
    found = unpacked(world.backups / "r1" / "options.tar.zst")
    (text,) = found.values()
    assert b"innodb_buffer_pool_size = 1G" in text
    assert b"hunter22" not in text


def test_a_good_run_has_its_bill_and_so_has_its_manifest(world: World) -> None:
    row = world.back_up()
    assert row.bill is not None
    assert (row.bill.disks, row.bill.copied_on_write) == (3, 2 * 65536)
    assert row.bill.seconds > 0
    section = world.target.manifest("nightly", "r1").run.bill
    assert section is not None
    assert asdict(section) == asdict(row.bill)
    assert not world.work_counters.is_open


def test_a_failed_run_has_cost_as_much(world: World) -> None:
    world.at["host.mount"] = lambda: world.host.write(1 << 40)
    assert isinstance(world.try_to_back_up(), SnapshotError)
    assert world.row().bill is not None


def test_nobody_looks_at_the_servers_counters_between_lock_request_and_unlock(world: World) -> None:
    looks: list[int] = []
    for event in ("lock.asked", "lock.granted", "host.create", "lock.ended"):
        world.at[event] = lambda: looks.append(world.work_counters.looks)
    world.back_up()
    assert len(set(looks)) == 1
    assert world.work_counters.looks > looks[0]


def test_a_server_whose_counters_cannot_be_read_is_backed_up_without_an_estimate(world: World) -> None:
    world.work_counters.is_gone = True
    row = world.back_up()
    assert (row.status, row.losses) == (RunStatus.SUCCESS, None)
    assert row.bill is not None


def unlocked(world: World) -> World:
    """A server with nothing but InnoDB, and the binlogs that it had at the instant of the snapshot."""
    world.lock.strategy = "none"
    (world.datadir / "bin.index").write_text("./bin.000001\n./bin.000002\n")
    for number in (1, 2):
        (world.datadir / f"bin.00000{number}").write_bytes(b"\xfebin" + bytes(96))
    return world


def test_without_a_lock_the_run_names_the_binlog_and_leaves_the_rest_to_a_drill(world: World) -> None:
    row = unlocked(world).back_up(job=world.job(lock=LockConfig(strategy=LockStrategy.NONE)))
    assert row.status is RunStatus.SUCCESS
    assert row.position == Position("bin.000002")
    assert row.lock is not None
    assert (row.lock.strategy, row.lock.wait_seconds, row.lock.hold_seconds) == ("none", 0.0, 0.0)
    manifest = world.target.manifest("nightly", "r1")
    assert (manifest.locked, manifest.position) == (False, Position("bin.000002"))
    assert (manifest.lsn, manifest.binlog) == (4711, "bin.000002")
    assert world.left() == []


def test_without_a_lock_the_server_is_never_locked(world: World) -> None:
    written = []
    unlocked(world).at["lock.granted"] = lambda: written.append(world.database.write())
    world.back_up(job=world.job(lock=LockConfig(strategy=LockStrategy.NONE)))
    assert written == [True]
    assert world.database.rows == [("r1", "before"), ("r1", "after")]


def test_without_a_lock_a_table_of_another_engine_is_refused_before_anything_is_touched(world: World) -> None:
    unlocked(world).database.unsafe = ("shop/a (MyISAM)",)
    error = world.try_to_back_up(job=world.job(lock=LockConfig(strategy=LockStrategy.NONE)))
    assert isinstance(error, Refused)
    assert "may be inconsistent: shop/a (MyISAM)" in error.message
    assert world.stored() == []


def test_nothing_of_a_good_run_is_left_on_the_host(world: World) -> None:
    world.back_up()
    assert world.left() == []
    assert {path.name for path in world.mount_root.iterdir()} == {"mysql"}


def test_a_backup_opens_without_backupd(world: World) -> None:
    row = world.back_up()
    folder = world.backups / "r1"
    assert row.backup is not None
    assert row.backup.location == str(folder)
    assert {path.name for path in folder.iterdir()} == {
        "data-1.tar.zst",
        "binlog.tar.zst",
        "index.jsonl.zst",
        "manifest.json",
    }
    kept = {name: (world.datadir / name).read_bytes() for name in FILES if not name.startswith(("bin.", "ibtmp1"))}
    assert unpacked(folder / "data-1.tar.zst") == kept


def test_the_binlog_is_stored_up_to_the_recorded_offset(world: World) -> None:
    world.back_up()
    stored = unpacked(world.backups / "r1" / "binlog.tar.zst")
    assert stored == {"bin.000001": (world.datadir / "bin.000001").read_bytes()[:1100], "bin.index": b"./bin.000001\n"}


def test_the_row_s_figures_are_those_of_the_files_on_the_target(world: World) -> None:
    row = world.back_up()
    objects = [world.backups / "r1" / name for name in ("data-1.tar.zst", "binlog.tar.zst", "index.jsonl.zst")]
    assert row.backup is not None
    assert row.backup.bytes_stored == sum(path.stat().st_size for path in objects)
    assert row.backup.sha256 == hashlib.sha256(objects[0].read_bytes()).hexdigest()
    assert row.backup.files == 3 + 2  # the datadir's, then the binlog and its index


def test_the_manifest_tells_where_datadir_and_binlog_are(world: World) -> None:
    world.back_up()
    manifest = world.target.manifest("nightly", "r1")
    assert (manifest.datadir, manifest.binlog, manifest.canary) == (".", "bin.000001", "backupd_canary.canary")
    assert (manifest.position.binlog_offset, manifest.lsn, manifest.volume) == (1100, 4711, "labvg/data")


def test_a_datadir_behind_a_symbolic_link_is_found_in_the_backup(world: World, tmp_path: Path) -> None:
    link = tmp_path / "var-lib-mysql"
    link.symlink_to(world.datadir)
    world.database.facts = replace(world.database.facts, datadir=link, binlog_basename=link / "bin")
    row = world.back_up()
    manifest = world.target.manifest("nightly", "r1")
    assert row.status is RunStatus.SUCCESS
    assert (manifest.datadir, manifest.binlog) == (".", "bin.000001")
    assert "ibdata1" in unpacked(world.backups / "r1" / "data-1.tar.zst")


def test_what_was_written_after_the_snapshot_is_not_in_the_backup(world: World) -> None:
    before = (world.datadir / "ibdata1").read_bytes()
    world.at["host.mount"] = lambda: (world.datadir / "ibdata1").write_bytes(b"changed since")
    world.back_up()
    assert unpacked(world.backups / "r1" / "data-1.tar.zst")["ibdata1"] == before


def test_without_a_binlog_the_backup_says_that_it_has_no_position(world: World) -> None:
    world.database.facts = replace(world.database.facts, binlog_basename=None)
    row = world.back_up()
    assert row.status is RunStatus.SUCCESS
    assert row.position == Position()
    assert world.target.manifest("nightly", "r1").binlog is None
    assert world.stored() == [
        "nightly",
        "nightly/r1",
        "nightly/r1/data-1.tar.zst",
        "nightly/r1/index.jsonl.zst",
        "nightly/r1/manifest.json",
    ]


def test_earlier_binlogs_are_stored_when_asked_for(world: World) -> None:
    world.database.offset, world.database.binlog_number = 5000, 2
    world.back_up(job=world.job(copy=CopyConfig(include_binlogs=True)))
    data, binlog = (unpacked(next(world.vault.rglob(name))) for name in ("data-1.tar.zst", "binlog.tar.zst"))
    assert "bin.000001" in data
    assert "bin.000002" not in data  # the named one has its own object, cut at the position
    assert binlog["bin.index"] == b"./bin.000001\n./bin.000002\n", "it lists what is stored"


@pytest.mark.parametrize(("read_only", "is_replica"), [(True, False), (False, True)])
def test_no_row_of_ours_is_written_to_a_replica_or_a_read_only_server(
    world: World, read_only: bool, is_replica: bool
) -> None:
    world.database.facts = replace(world.database.facts, read_only=read_only, is_replica=is_replica)
    row = world.back_up()
    assert row.status is RunStatus.SUCCESS
    assert world.database.rows == []
    assert world.target.manifest("nightly", "r1").canary is None


def test_a_gate_that_is_off_copies_at_once_and_measures_nothing(world: World) -> None:
    row = world.back_up(job=world.job(settle=SettleConfig(enabled=False, baseline_windows=1)))
    assert row.status is RunStatus.SUCCESS
    assert row.verdict is not None
    assert row.verdict.reason is Reason.DISABLED
    assert world.probe.calls == 0
    assert world.left() == []


def test_without_a_probe_the_cow_area_is_watched_all_the_same(world: World) -> None:
    world.with_probe = False
    row = world.back_up(job=world.job(settle=SettleConfig(max_wait_seconds=0.1, baseline_windows=1, patience=1e9)))
    assert row.status is RunStatus.ATTENTION
    assert [sample.cow_used for sample in row.samples if sample.cow_used]
    assert all(sample.iops is None for sample in row.samples)


def test_a_second_run_makes_a_second_backup(world: World) -> None:
    first, second = world.back_up("r1"), world.back_up("r2")
    assert first.status is second.status is RunStatus.SUCCESS
    assert {path.name for path in (world.backups).iterdir()} == {"r1", "r2"}
    assert world.left() == []
