"""Every finding of the preflight: what makes it ok, a warning or a refusal, and that it is told with its hint."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.config import BinlogConfig, CopyConfig, JobConfig, LimitsConfig, SettleConfig, SnapshotConfig, SnapshotSize
from backupd.lvm.extending import further_bytes
from backupd.operations.backup import binlog_spool, preflight, storing, volume_checks
from backupd.operations.tools import FilesystemRoom
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import CommandError, ExitStatus, NoTargetAnswers, Refused, SnapshotError
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.records import Finding, Level, RunStatus
from backupd.vocabulary.servers import Blocker, Cluster, DataPath, Flavour, Membership
from backupd.vocabulary.volumes import AUTO, DeviceNumber, FileIdentity, Layout, MountPoint, PvsGone, Segment
from tests.fakes.lvm_host import FakeSnapshots, pv_uuid
from tests.fakes.target import MemoryTarget
from tests.story.world import World
from tests.unit.test_placing import tuning


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup would go well."""
    return World(tmp_path)


def findings(world: World, job: JobConfig | None = None, *, last_stored_bytes: int | None = None) -> dict[str, Finding]:
    found = preflight.examine(job or world.job(), world.tools, last_stored_bytes=last_stored_bytes).findings
    assert len({finding.name for finding in found}) == len(found)
    return {finding.name: finding for finding in found}


def facts(**changes: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.database.facts = replace(world.database.facts, **changes)  # type: ignore[arg-type]

    return change


def volume(**changes: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.host.volume = replace(world.host.volume, **changes)  # type: ignore[arg-type]

    return change


def segments(*kinds: str) -> Callable[[World], None]:
    return volume(segments=tuple(Segment(kind, 100 << 20, 1, 0, ("/dev/sdb",)) for kind in kinds))


def stray(role: str, path: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.database.paths = (*world.database.paths, DataPath(role, Path(path), must_share=True))

    return change


def beside_the_data(name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        path = world.database.facts.datadir / name
        world.database.paths = (*world.database.paths, DataPath("encryption keys", path, must_share=False))

    return change


def database(**changes: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        for name, value in changes.items():
            setattr(world.database, name, value)

    return change


def free_bytes(count: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.memory = MemoryTarget(name="vault", free_bytes=count)

    return change


def untold_room(world: World) -> None:
    """As a bucket's is."""

    class Bucket(MemoryTarget):
        def require_usable(self) -> None:  # type: ignore[override]
            super().require_usable()

    world.memory = Bucket(name="vault")


def mounted_as(filesystem: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.filesystem = filesystem

    return change


def no_target(world: World) -> None:
    shutil.rmtree(world.vault)


def no_probe(world: World) -> None:
    world.with_probe = False


def failing(verb: str) -> Callable[[World], None]:
    return lambda world: world.host.fail(verb, error=CommandError("lvs was not found", hint="install lvm2"))


def full_group(world: World) -> None:
    world.host.free_by_pv = {"/dev/sde": 3}


def replica(binlog: str | None = None) -> Callable[[World], None]:
    """With parallel workers, and a binlog that has what they apply."""

    def change(world: World) -> None:
        world.database.become_replica({"": True})
        world.database.replication = replace(world.database.replication, workers=4)
        if binlog is not None:
            facts(binlog_basename=Path(binlog))(world)

    return change


def failing_replica(world: World) -> None:
    world.database.become_replica({"": True})
    world.database.fails_at = 4  # facts, grants and blockers come before


MEMBER = Membership(Cluster.GROUP_REPLICATION, 3, "ONLINE", primary=False)


def clustered(membership: Membership, **changes: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        facts(cluster=membership.cluster)(world)
        database(membership=membership, **changes)(world)

    return change


def as_it_is(world: World) -> None:
    """Nothing is wrong."""


OK, WARNING, REFUSED = Level.OK, Level.WARNING, Level.REFUSED
LAZY = {"innodb_flush_log_at_trx_commit": "0", "innodb_flush_log_at_timeout": "3"}
LONG_QUERY = Blocker(7, "report", 300.0, "SELECT * FROM orders")


@pytest.mark.parametrize(
    ("name", "trouble", "level", "words"),
    [
        ("server", as_it_is, OK, "mariadb 10.11.6"),
        ("server", database(fails_at=1), REFUSED, "cannot connect"),
        ("grants", database(fails_at=2), REFUSED, "cannot connect"),
        ("blockers", database(fails_at=3), REFUSED, "cannot connect"),
        ("volume", database(fails_at=4), REFUSED, "cannot connect"),
        ("grants", as_it_is, OK, "enough for ftwrl"),
        ("grants", database(missing=("RELOAD", "PROCESS")), REFUSED, "RELOAD, PROCESS"),
        ("links", stray("absolute symlink", "/data/mysql/sales"), REFUSED, "/data/mysql/sales"),
        ("data directory", stray("DATA DIRECTORY", "/data/mysql/far.ibd"), REFUSED, "/data/mysql/far.ibd"),
        ("encryption keys", beside_the_data("keys.txt"), WARNING, "keys.txt is on the volume that is snapshotted"),
        ("redo logging", facts(redo_logging=False), REFUSED, "disabled"),
        ("redo log", facts(settings=LAZY), WARNING, "held up to 3 s longer"),
        ("binlog", as_it_is, OK, "kept for 10d"),
        ("binlog", facts(binlog_expire_seconds=None), OK, "kept indefinitely"),
        (
            "binlog",
            facts(binlog_expire_seconds=None, settings={"max_binlog_total_size": str(10 << 30)}),
            WARNING,
            "removed beyond 10 GiB in all",
        ),
        ("binlog", facts(binlog_basename=None), WARNING, "off"),
        ("binlog", facts(binlog_expire_seconds=3600), WARNING, "kept for 1h, but the job runs every 1d"),
        ("blockers", as_it_is, OK, "no running statement"),
        ("blockers", database(running=(LONG_QUERY,)), WARNING, "connection 7 of report has run for 300 s"),
        ("canary", facts(is_replica=True), OK, "off: the server"),
        ("canary", facts(read_only=True), OK, "off: the server"),
        ("replication", replica(), OK, "the default channel: receiver and applier are running"),
        ("replication", failing_replica, REFUSED, "cannot connect"),
        ("parallel applier", replica(binlog="/other/bin"), REFUSED, "4 parallel workers"),
        ("cluster", clustered(MEMBER), WARNING, "secondary of 3"),
        ("cluster", clustered(replace(MEMBER, primary=True)), REFUSED, "primary of 3"),
        ("cluster", clustered(MEMBER, may_ask_membership=False), REFUSED, "may not ask"),
        ("one volume", as_it_is, OK, "2 files and folders"),
        ("one volume", stray("redo", "/"), REFUSED, "redo / is on / (8:1)"),
        ("volume", failing("volume_at"), REFUSED, "lvs was not found"),
        ("volume", failing("group"), REFUSED, "lvs was not found"),
        ("layout", as_it_is, OK, "striped, 3 stripes of 64.0 KiB (1 segment)"),
        ("layout", segments("linear", "linear"), OK, "linear (2 segments)"),
        ("segments", segments("linear", "thin"), REFUSED, "thin"),
        ("segments", segments("raid5"), REFUSED, "raid5"),
        ("layout", volume(cache=Segment("writecache", 1 << 20, 1, 0, ("/dev/nvme",))), OK, "a writecache on /dev/nvme"),
        ("file system", mounted_as("ext2"), REFUSED, "is ext2: backupd can only mount snapshots of xfs and ext4"),
        ("other snapshots", as_it_is, OK, "none"),
        ("other snapshots", lambda world: world.host.add_foreign_snapshot("hers"), REFUSED, "already has: hers"),
        ("volume state", as_it_is, OK, "no merge"),
        ("volume state", volume(conditions=("pvmove",)), REFUSED, "pvmove"),
        ("volume state", volume(conditions=("mismatches exist",)), WARNING, "found its legs to differ"),
        ("volume state", volume(conditions=("mismatches exist", "resync (9.00 %)")), REFUSED, "resync (9.00 %)"),
        ("snapshot room", as_it_is, OK, "30 extents"),
        ("snapshot room", full_group, REFUSED, "need 30, have 3"),
        ("target vault", as_it_is, OK, "writable"),
        ("target vault", no_target, REFUSED, "does not exist"),
        ("target vault", untold_room, OK, "writable; free space unknown"),
        ("target vault", free_bytes(100), REFUSED, "100 B free for a volume with "),
        ("target vault", free_bytes(100_000), WARNING, "97.7 KiB free, and the backup is "),
        ("sysbench", as_it_is, OK, "installed"),
        ("sysbench", no_probe, WARNING, "not installed"),
        ("catalogue", as_it_is, OK, "is not on labvg/data"),
        ("run folder", as_it_is, OK, "is not on labvg/data"),
        ("staging folder", as_it_is, OK, "is not on labvg/data"),
        ("folder of target vault", as_it_is, OK, "is not on labvg/data"),
    ],
)
def test_a_finding(world: World, name: str, trouble: Callable[[World], None], level: Level, words: str) -> None:
    trouble(world)
    found = findings(world)
    assert (found[name].level, words in found[name].detail) == (level, True), found[name]
    assert bool(found[name].hint) == (level is not OK)


@pytest.mark.parametrize(
    ("engines", "told"),
    [
        ("Aria,Columnstore,InnoDB,SPIDER", "the rows of any ColumnStore or Spider tables are not in the backup"),
        ("FEDERATED,InnoDB", "the rows of any FEDERATED tables are not in the backup"),
        ("Aria,CSV,InnoDB,MyISAM,RocksDB,TokuDB", None),
    ],
)
def test_an_engine_that_keeps_its_rows_elsewhere_needs_attention(world: World, engines: str, told: str | None) -> None:
    """Under every strategy: nothing else would say that such a table comes back empty, or not at all."""
    facts(settings={"storage_engines": engines})(world)
    found = findings(world).get("engines elsewhere")
    assert (found and (found.level, found.attention, found.detail.startswith(told or ""))) == (
        (WARNING, True, True) if told else None
    )


def test_a_file_system_that_is_on_two_devices_is_refused_before_the_lock() -> None:
    """The kernel mounts no XFS without its log's device, and that one is in no snapshot."""
    mount = MountPoint(Path("/data"), DeviceNumber(254, 0), "xfs", elsewhere=("logdev=/dev/sdb1",))
    (found,) = volume_checks.of_filesystem(mount)
    assert (found.level, "logdev=/dev/sdb1" in found.detail) == (REFUSED, True)
    assert found.hint
    assert list(volume_checks.of_filesystem(replace(mount, elsewhere=()))) == []


@pytest.mark.parametrize(
    ("conditions", "hint"),
    [
        (("pvmove",), "wait until it has finished"),
        (("refresh needed",), "lvchange --refresh labvg/data"),
        (("partial",), "lvconvert --repair labvg/data"),
    ],
)
def test_what_waiting_does_not_cure_is_not_to_be_waited_for(
    world: World, conditions: tuple[str, ...], hint: str
) -> None:
    volume(conditions=conditions)(world)
    found = findings(world)["volume state"]
    assert (found.level, hint in found.hint) == (REFUSED, True)
    assert ("wait" in found.hint) is (conditions == ("pvmove",))


@pytest.mark.parametrize("name", ["catalogue", "run folder", "staging folder", "folder of target vault"])
def test_nothing_of_ours_may_lie_on_the_volume_that_is_snapshotted(world: World, name: str) -> None:
    everything_here = MountPoint(world.mount_root, world.host.volume.device, "xfs")
    tools = replace(world.tools, files=replace(world.tools.files, mount_of=lambda path: everything_here))
    found = {f.name: f for f in preflight.examine(world.job(), tools, last_stored_bytes=None).findings}
    assert found[name].level is REFUSED
    assert "is on the volume that is snapshotted" in found[name].detail
    assert found[name].hint


@pytest.mark.parametrize(("free", "level"), [(1000, REFUSED), (1099, REFUSED), (1101, OK)])
def test_a_target_needs_room_for_the_last_backup_and_a_tenth(world: World, free: int, level: Level) -> None:
    free_bytes(free)(world)
    assert findings(world, last_stored_bytes=1000)["target vault"].level is level


def test_more_than_a_backup_can_hold_is_refused_before_any_of_it_is_copied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = world.tools.files.used_bytes(world.mount_root)
    monkeypatch.setattr(storing, "MOST_BYTES", used)
    assert "size" not in findings(world)
    monkeypatch.setattr(storing, "MOST_BYTES", used - 1)
    found = findings(world)["size"]
    assert (found.level, f"{used} bytes are used" in found.detail) == (REFUSED, True)
    assert found.hint


def rate_limit(world: World, max_rate: int | None, *past: SnapshotLife) -> Finding | None:
    job = world.job(copy=replace(world.job().copy, max_rate=max_rate))
    found = preflight.examine(job, world.tools, last_stored_bytes=None, past=past).findings
    return next((finding for finding in found if finding.name == "rate limit"), None)


def test_a_rate_limit_at_which_the_cow_area_fills_first_is_told_with_the_rate_that_would_do(world: World) -> None:
    volume, group = world.tools.snapshots.volume_and_group_at(world.host.volume.device)
    plan = plan_snapshot(volume, group, "any", world.job().snapshot)
    room = plan.size + further_bytes(plan, group)
    used = world.tools.files.used_bytes(world.mount_root)
    life = SnapshotLife(plan.chunk_size, room // 100, 1.0)  # the area lasts for 90 s at most
    told = rate_limit(world, used // 200, life)
    assert told is not None
    assert (told.level, told.attention) == (WARNING, False)
    assert "takes 3 min 20 s" in told.detail
    assert "the copy will exceed copy.max_rate" in told.detail
    assert told.hint.startswith("raise copy.max_rate to ")
    enough = rate_limit(world, used // 80, life)
    assert enough is not None
    assert enough.level is OK


def test_a_rate_limit_is_not_judged_before_a_run_has_shown_how_fast_the_area_fills(world: World) -> None:
    assert rate_limit(world, 1024) is None
    assert rate_limit(world, 1024, SnapshotLife(chunk_size=1, filled=1 << 40, seconds=1.0)) is None
    assert rate_limit(world, None, SnapshotLife(512 << 10, 1 << 40, 1.0)) is None


def test_a_probe_that_is_not_asked_for_is_not_missed(world: World) -> None:
    world.with_probe = False
    for settle in (SettleConfig(enabled=False), SettleConfig(probe=False)):
        assert findings(world, world.job(settle=settle))["sysbench"].level is OK


@pytest.mark.parametrize(
    "change",
    [facts(settings={"innodb_flush_log_at_trx_commit": "2"}), facts(flavour=Flavour.MYSQL, settings=LAZY)],
    ids=["in the file at each commit", "FLUSH ENGINE LOGS writes it"],
)
def test_nobody_is_told_of_a_wait_that_there_will_not_be(world: World, change: Callable[[World], None]) -> None:
    change(world)
    assert "redo log" not in findings(world)


def test_a_pv_that_is_gone_is_refused_where_the_job_says_so(world: World) -> None:
    twenty = SnapshotSize(percent_of_origin=20.0)
    snapshot = SnapshotConfig(size=twenty, pvs=("/dev/nowhere",), pvs_gone=PvsGone.REFUSE)
    found = findings(world, world.job(snapshot=snapshot))["snapshot room"]
    assert (found.level, found.detail) == (
        REFUSED,
        "/dev/nowhere is not a PV of labvg",
    )
    assert found.hint == "available: /dev/sdb, /dev/sdc, /dev/sdd, /dev/sde"


@pytest.mark.parametrize(
    ("hours", "words"), [(14 * 24 + 1, ""), (13 * 24 + 1, "in 13 days"), (5, "today"), (-1, "today")]
)
def test_credentials_that_end_soon_need_attention(world: World, hours: float, words: str) -> None:
    ends = datetime.now(UTC) + timedelta(hours=hours)
    world.others = [MemoryTarget("cloud", access_ends=ends)]
    told = findings(world)["target cloud"]
    assert (told.level, told.attention) == ((Level.WARNING, True) if words else (Level.OK, False))
    assert (f"; its credentials expire {words}, on {ends:%Y-%m-%d %H:%M} UTC" in told.detail) == bool(words)
    assert told.detail.startswith("writable, ")
    assert ("create new ones" in told.hint) == bool(words)


def test_a_run_that_is_told_so_says_it_as_well(world: World) -> None:
    world.memory = MemoryTarget("vault", access_ends=datetime.now(UTC) + timedelta(days=2, hours=1))
    row = world.back_up()
    assert row.status is RunStatus.ATTENTION
    (told,) = row.attention
    assert told.startswith("target vault: writable, ")
    assert "its credentials expire in 2 days" in told


def test_a_server_that_cannot_be_asked_refuses_the_run(world: World) -> None:
    database(fails_at=1)(world)
    error = world.try_to_back_up()
    assert isinstance(error, Refused)
    assert "server: cannot connect" in error.message
    assert (world.row().status, world.left()) == (RunStatus.REFUSED, [])


def test_credentials_that_end_soon_hide_nothing_that_is_worse(world: World) -> None:
    world.others = [MemoryTarget("cloud", access_ends=datetime.now(UTC), free_bytes=0)]
    told = findings(world, last_stored_bytes=1)["target cloud"]
    assert "0 B free, the last backup took 1 B" in told.detail


def test_a_pv_that_is_gone_needs_attention_and_stops_no_run(world: World) -> None:
    snapshot = SnapshotConfig(size=SnapshotSize(percent_of_origin=20.0), pvs=("/dev/nowhere",))
    found = findings(world, world.job(snapshot=snapshot))
    assert found["snapshot room"].level is OK
    area = found["COW area"]
    assert (area.level, area.attention) == (WARNING, True)
    assert area.detail == ("on any PV, not as snapshot.pvs says: /dev/nowhere is not a PV of labvg")
    assert area.hint.startswith("backupd probe nightly --tune --write ")


def test_a_tuning_that_holds_no_more_is_told_with_the_command_that_measures_anew(world: World) -> None:
    found = tuning(world.host)
    world.host.failed.add("/dev/sde")
    job = world.job(snapshot=SnapshotConfig(pvs=AUTO))
    (told,) = [
        finding
        for finding in volume_checks.of_room(job, world.host.volume, world.host.group(), tuning=found)
        if finding.name == "snapshot"
    ]
    assert (told.level, told.hint) == (WARNING, "measure again: backupd probe nightly --tune")
    assert "its recommendation is ignored: the kernel has disabled /dev/sde" in told.detail


def test_a_datadir_that_cannot_be_looked_at_is_refused_with_its_path(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> FileIdentity:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(world.host, "identity", fail)
    found = findings(world)["datadir"]
    assert (found.level, found.detail) == (REFUSED, f"cannot read {world.datadir}: Input/output error")
    assert found.hint


def test_a_group_that_lacks_a_disk_is_refused_by_day_as_lvm_would_by_night(world: World) -> None:
    assert "volume group" not in findings(world)
    world.host.missing.add(pv_uuid("/dev/sde"))
    found = findings(world)["volume group"]
    assert (found.level, found.detail) == (
        REFUSED,
        f"LVM finds no disk for {pv_uuid('/dev/sde')} of labvg, and creates no snapshot until it does",
    )
    assert "vgreduce --removemissing labvg" in found.hint


@pytest.mark.parametrize(("lock_type", "told"), [("", False), ("none", False), ("sanlock", True), ("dlm", True)])
def test_a_group_that_hosts_share_is_told_as_not_tried(world: World, lock_type: str, told: bool) -> None:
    world.host.lock_type = lock_type
    found = findings(world).get("shared group")
    assert (found is not None and found.level is WARNING and lock_type in found.detail) is told


def test_a_volume_on_no_lvm_is_refused_in_words(world: World) -> None:
    tools = replace(
        world.tools,
        files=replace(world.tools.files, mount_of=lambda path: MountPoint(Path("/"), DeviceNumber(8, 1), "ext4")),
    )
    found = {f.name: f for f in preflight.examine(world.job(), tools, last_stored_bytes=None).findings}
    assert found["volume"].level is REFUSED
    assert "not on LVM" in found["volume"].detail


def test_a_mixed_layout_is_named_and_no_reason_to_refuse(world: World) -> None:
    parts = (
        Segment("striped", 300 << 20, 2, 64 << 10, ("/dev/sdb", "/dev/sdc")),
        Segment("linear", 300 << 20, 1, 0, ("/dev/sdd",)),
    )
    volume(segments=parts)(world)
    found = findings(world)
    assert (found["layout"].level, Layout.MIXED in found["layout"].detail) == (OK, True)
    assert "2 segments" in found["layout"].detail
    assert not [finding for finding in found.values() if finding.level is REFUSED]


def everything_wrong(world: World) -> None:
    database(missing=("RELOAD",), running=(LONG_QUERY,))(world)
    facts(redo_logging=False)(world)
    stray("undo", "/")(world)
    volume(conditions=("merging",))(world)
    world.host.add_foreign_snapshot("hers", extents=900)
    no_target(world)


ALL_WRONG = {"grants", "redo logging", "one volume", "volume state", "other snapshots", "snapshot room", "target vault"}


def test_everything_that_is_wrong_is_told_at_once(world: World) -> None:
    everything_wrong(world)
    assert {name for name, finding in findings(world).items() if finding.level is REFUSED} == ALL_WRONG


def test_a_refusal_names_every_finding_and_every_hint(world: World) -> None:
    everything_wrong(world)
    with pytest.raises(Refused) as refused:
        preflight.examine(world.job(), world.tools, last_stored_bytes=None).require()
    assert refused.value.exit_status is ExitStatus.REFUSED
    assert all(f"{name}: " in refused.value.message for name in ALL_WRONG)
    assert "blockers" not in refused.value.message  # a warning stops nothing
    assert "ENABLE INNODB REDO_LOG" in refused.value.hint
    assert "backupd recover" in refused.value.hint


def test_a_refusal_passes_where_every_target_is_away_and_nothing_else_is_wrong(world: World) -> None:
    no_target(world)
    with pytest.raises(NoTargetAnswers) as refused:
        preflight.examine(world.job(), world.tools, last_stored_bytes=None).require()
    assert refused.value.exit_status is ExitStatus.REFUSED

    database(fails_at=1)(world)
    with pytest.raises(Refused) as both:
        preflight.examine(world.job(), world.tools, last_stored_bytes=None).require()
    assert not isinstance(both.value, NoTargetAnswers)


def test_a_target_that_is_full_does_not_pass(world: World) -> None:
    free_bytes(10)(world)
    with pytest.raises(Refused) as refused:
        preflight.examine(world.job(), world.tools, last_stored_bytes=1000).require()
    assert not isinstance(refused.value, NoTargetAnswers)


def test_a_refused_run_has_touched_nothing(world: World) -> None:
    everything_wrong(world)
    world.vault.mkdir()
    volumes, files = dict(world.host.lvs), sorted(world.mount_root.rglob("*"))
    error = world.try_to_back_up()
    assert isinstance(error, Refused)
    row = world.row()
    assert row.status is RunStatus.REFUSED
    assert row.error is not None
    assert (row.error.code, row.error.exit_status) == ("refused", 5)
    assert (world.host.lvs, sorted(world.mount_root.rglob("*"))) == (volumes, files)
    assert (world.database.rows, world.stored(), world.left()) == ([], [], [])


def test_what_is_wrong_with_server_and_target_is_told_together(world: World) -> None:
    database(fails_at=1)(world)
    no_target(world)
    refused = {name for name, finding in findings(world).items() if finding.level is REFUSED}
    assert refused == {"server", "target vault"}


def test_a_check_changes_nothing(world: World) -> None:
    before = sorted(world.base.rglob("*"))
    findings(world)
    assert sorted(world.base.rglob("*")) == before
    assert world.host.lvs == {}


def test_the_archive_holds_everything_that_must_share_the_volume(world: World) -> None:
    outside = world.mount_root / "undo"
    outside.mkdir()
    stray("undo", str(outside))(world)
    ready = preflight.examine(world.job(), world.tools, last_stored_bytes=None).require()
    assert ready.root == world.mount_root
    assert ready.volume.full_name == "labvg/data"


def test_a_refused_finding_keeps_the_error_s_own_hint(world: World) -> None:
    world.host.fail("group", error=SnapshotError("no volume group labvg", hint="see `vgs`"))
    assert findings(world)["volume"].hint == "see `vgs`"


def test_keys_on_another_volume_are_as_they_should_be(world: World) -> None:
    world.database.paths = (*world.database.paths, DataPath("encryption keys", Path("/etc"), must_share=False))
    assert "encryption keys" not in findings(world)


def spooling(world: World, **how: object) -> Finding:
    job = world.job(copy=CopyConfig(**{"spool": world.spool, **how}))  # type: ignore[arg-type]
    return findings(world, job)["spool"]


@pytest.mark.parametrize(
    ("room", "size", "level", "told"),
    [
        (FilesystemRoom(8 << 30, 10 << 30, read_only=False), None, OK, "7.0 GiB available, at most"),
        (FilesystemRoom(8 << 30, 10 << 30, read_only=False), 64 << 20, OK, "64.0 MiB available, at most"),
        (
            FilesystemRoom(8 << 30, 10 << 30, read_only=True),
            None,
            WARNING,
            "has no free space: everything would be streamed",
        ),
        (
            FilesystemRoom((1 << 30) + 1, 1 << 31, read_only=False),
            None,
            WARNING,
            "has no free space: everything would be streamed",
        ),
        (
            FilesystemRoom(1 << 40, 10 << 40, read_only=False),
            None,
            WARNING,
            "has no free space: everything would be streamed",
        ),
    ],
)
def test_how_much_a_spool_could_take_is_told(
    world: World, room: FilesystemRoom, size: int | None, level: Level, told: str
) -> None:
    world.room = room
    found = spooling(world, spool_size=size)
    assert (found.level, told in found.detail) == (level, True)


def test_a_spool_on_the_disks_of_the_volume_is_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    data = world.host.volume
    beside = replace(data, name="spool")
    monkeypatch.setattr(FakeSnapshots, "volume_at", lambda _self, device: data if device == data.device else beside)
    found = spooling(world)
    assert (found.level, found.hint) == (WARNING, "move it to other disks")
    assert f"shares {', '.join(sorted(world.host.volume.devices))} with labvg/data" in found.detail


@pytest.mark.parametrize(
    ("role", "level", "told"),
    [
        ("binlog", REFUSED, "is on the file system of the server's binlog (/var/log/mysql)"),
        ("encryption keys", WARNING, "is on the file system of target vault"),
    ],
)
def test_a_spool_never_fills_up_a_file_system_that_the_server_writes_to(
    world: World, role: str, level: Level, told: str
) -> None:
    world.database.paths = (*world.database.paths, DataPath(role, Path("/var/log/mysql"), must_share=False))
    world.spool_device = world.mount_of(world.vault).device
    found = spooling(world)
    assert (found.level, told in found.detail) == (level, True)


def test_a_spool_whose_disk_fails_is_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Path.lstat

    def stale(path: Path) -> os.stat_result:
        if path == world.spool:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return seen(path)

    monkeypatch.setattr(Path, "lstat", stale)
    found = spooling(world)
    assert (found.level, "Stale file handle): everything would be streamed" in found.detail) == (WARNING, True)


@pytest.mark.parametrize(("on_volume", "level"), [(True, WARNING), (False, Level.OK)])
def test_a_binlog_spool_on_the_volume_of_the_data_is_a_warning(world: World, on_volume: bool, level: Level) -> None:
    folder = (world.datadir if on_volume else world.spool) / "not made yet"
    found = findings(world, world.job(binlog=BinlogConfig(spool=folder)))["binlog spool"]
    assert (found.level, "labvg/data" in found.detail) == (level, True)
    assert "binlog spool" not in findings(world)


def test_option_files_that_could_not_be_stored_are_refused_before_anything_is_copied(world: World) -> None:
    whole, lost = world.base / "my.cnf", world.base / "lost.cnf"
    whole.write_text("[mysqld]\n")
    found = findings(world, world.job(copy=CopyConfig(option_files=(whole,))))["option files"]
    assert (found.level, found.detail) == (OK, str(whole))
    found = findings(world, world.job(copy=CopyConfig(option_files=(whole, lost))))["option files"]
    assert (found.level, str(lost) in found.detail, bool(found.hint)) == (REFUSED, True, True)
    assert "option files" not in findings(world)


def test_a_file_of_the_server_s_that_cannot_be_read_is_on_no_volume_that_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is wrong with it, whoever reads that; it is no traceback, and no snapshot without it."""
    mount_of = World.mount_of

    def stale(self: World, path: Path) -> MountPoint:
        if path.is_relative_to("/stale"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return mount_of(self, path)

    monkeypatch.setattr(World, "mount_of", stale)
    stray("redo", "/stale/redo")(world)
    replica(binlog="/stale/bin")(world)
    found = findings(world)
    assert (found["one volume"].level, found["parallel applier"].level) == (REFUSED, REFUSED)
    assert "redo /stale/redo cannot be read ([Errno 116] Stale file handle)" in found["one volume"].detail


def test_a_target_on_a_mount_that_has_died_stops_no_run_that_has_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a FUSE mount is whose process was killed: nobody can even ask what lies there."""
    dead = world.base / "dead"
    dead.mkdir()
    world.others = [DirectoryTarget("offsite", dead, machine=world.name)]  # type: ignore[list-item]
    really = Path.stat

    def fail(path: Path, **how: Any) -> os.stat_result:
        if path.is_relative_to(dead):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return really(path, **how)

    monkeypatch.setattr(Path, "stat", fail)
    job = world.job(targets=("vault", "offsite"), copy=CopyConfig(spool=world.spool))
    found = findings(world, job)
    assert found["target offsite"].level is WARNING
    assert "Transport endpoint is not connected" in found["target offsite"].detail
    assert "folder of target offsite" not in found  # nobody looks where nobody may be answered
    assert (found["spool"].level, found["folder of target vault"].level) == (OK, OK)
    row = world.back_up(job=job)
    assert (row.status, [backup.target for backup in row.backups]) == (RunStatus.ATTENTION, ["vault"])


def test_a_folder_of_the_server_s_on_a_file_system_that_has_died_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = world.base / "lost"
    really, mount_of = Path.stat, World.mount_of

    def fail(path: Path, **how: Any) -> os.stat_result:
        if path.is_relative_to(lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(path, **how)

    def refuse(self: World, path: Path) -> MountPoint:
        if path.is_relative_to(lost):
            raise SnapshotError(f"cannot read {path}: Input/output error")
        return mount_of(self, path)

    monkeypatch.setattr(Path, "stat", fail)
    monkeypatch.setattr(World, "mount_of", refuse)
    stray("redo", str(lost))(world)
    assert f"redo {lost} cannot be read" in findings(world)["one volume"].detail


def test_a_binlog_spool_whose_disk_fails_stops_no_backup(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_path: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "exists", fails)
    archive, mount = BinlogConfig(spool=world.spool), world.mount_of(world.datadir)
    found = binlog_spool.examine(archive, world.tools, mount=mount, volume=world.host.volume)
    assert [(one.level, "Input/output error" in one.detail) for one in found] == [(WARNING, True)]


def test_without_a_spool_there_is_nothing_to_tell_of_one(world: World) -> None:
    assert "spool" not in findings(world)


@pytest.mark.parametrize("settle", [SettleConfig(), SettleConfig(probe=False), SettleConfig(enabled=False)])
def test_a_penalty_limit_that_no_probe_watches_needs_attention(world: World, settle: SettleConfig) -> None:
    world.with_probe = False
    told = findings(world, world.job(settle=settle, limits=LimitsConfig(max_penalty=8)))["sysbench"]
    assert (told.level, told.attention) == (WARNING, True)
    assert "limits.max_penalty has no effect" in told.detail
