"""What a person may ask of a lab, how large it gets, and what it asks of the machine under it."""

from dataclasses import replace
from pathlib import Path

import pytest

from backupd.lab.host import run_on_host
from backupd.lab.options import DiskModel, Filesystem, Init, Kernel, LabLayout, LabOptions, Load, ServerKind
from backupd.lab.plan import Plan, Purpose, plan_for
from backupd.lab.room import LabFolder, choose, missing_packages, require_cache_room
from backupd.lab.sizes import EXTENT, GIB, SPARE_DISK, STRIPES, Needs, needs_for, sizes_for
from backupd.vocabulary.errors import LabError, UsageError

NEEDS = Needs(memory=2 * GIB, disks=3 * GIB, cache=1 * GIB)
SHM = LabFolder(Path("/memory"), free=12 * GIB, in_memory=True, executable=True)
DISK = LabFolder(Path("/disk"), free=50 * GIB, in_memory=False, executable=True)


def test_defaults_are_those_of_the_documentation() -> None:
    options = LabOptions()
    assert (options.disks, options.layout, options.filesystem) == ("hdd", "striped", "xfs")
    assert (options.rows, str(options.load), options.kernel) == (400_000, "closed", "uml")
    assert (options.out, options.deadline_seconds, options.thin) == (None, 900, False)
    assert options.spare_disks == 0
    assert options.server == "mariadb-10.11"


@pytest.mark.parametrize("text", ["none", "closed", "60"])
def test_a_load_reads_back_as_it_was_written(text: str) -> None:
    assert str(Load.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "fast", "\u0663"])
def test_a_load_that_cannot_be_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="no such load") as refused:
        Load.parse(text)
    assert "closed" in refused.value.hint


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"deadline_seconds": 0}, {"deadline_seconds": -1}, {"spare_disks": -1}, {"spare_disks": 3}]
)
def test_options_out_of_bounds_are_usage_errors(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        LabOptions(**wrong)  # type: ignore[arg-type]


def test_a_plan_survives_its_journey_into_the_machine() -> None:
    options = LabOptions(DiskModel.DELAY, LabLayout.LINEAR, Filesystem.EXT4, 7, Load.parse("60"), thin=True)
    options = replace(options, server=ServerKind.MYSQL_9, init=Init.SYSTEMD, spare_disks=2)
    plan = plan_for(Purpose.RUN, options, command=("sh", "-c", "echo 'ä\n'"), python="/p y", out=Path("/o,ut"))
    assert Plan.from_json(plan.to_json()) == plan


def test_disks_are_prepared_at_full_speed_whatever_they_are_to_be() -> None:
    plan = plan_for(Purpose.PREPARE, LabOptions(disks=DiskModel.HDD), command=(), python="p", out=Path("/o"))
    assert plan.disks is DiskModel.SSD


def test_disks_are_prepared_without_systemd_whatever_the_machine_is_to_have() -> None:
    options = LabOptions(init=Init.SYSTEMD)
    purposes = {purpose: plan_for(purpose, options, command=(), python="p", out=Path("/o")).init for purpose in Purpose}
    assert purposes == {Purpose.PREPARE: "script", Purpose.RUN: "systemd", Purpose.SHELL: "systemd"}


def test_spare_disks_are_no_part_of_what_is_prepared() -> None:
    plan = plan_for(Purpose.PREPARE, LabOptions(spare_disks=2), command=(), python="p", out=Path("/o"))
    assert plan.spare_disks == 0


@pytest.mark.parametrize("rows", [1, 1000, 400_000, 10_000_000])
def test_the_volume_fits_on_three_disks_and_leaves_room_on_each(rows: int) -> None:
    sizes = sizes_for(rows)
    assert sizes.volume % (EXTENT * STRIPES) == 0
    assert sizes.extents_a_disk * EXTENT * STRIPES == sizes.volume
    assert sizes.disk - sizes.volume // STRIPES > sizes.volume // 8
    assert sizes.volume > rows * 1000


def test_more_rows_and_more_time_need_more_room() -> None:
    small, large = needs_for(1000, deadline_seconds=60), needs_for(1_000_000, deadline_seconds=60)
    assert small.disks < large.disks
    assert small.cache < large.cache
    assert small.disks < needs_for(1000, deadline_seconds=900).disks


def test_spare_disks_need_room_while_the_lab_runs_and_none_in_the_cache() -> None:
    none, two = (needs_for(1000, deadline_seconds=60, spare_disks=count) for count in (0, 2))
    assert two.disks == none.disks + 2 * SPARE_DISK
    assert two.cache == none.cache


def test_memory_is_preferred_when_everything_fits_into_it() -> None:
    choice = choose(NEEDS, [SHM, DISK], 20 * GIB)
    assert (choice.memory, choice.disks) == (SHM, SHM)
    assert choice.sentence(NEEDS) == "needs 2.0 GiB of memory in /memory and up to 3.0 GiB of disks in /memory"


def test_disks_go_to_a_file_system_when_memory_is_short() -> None:
    assert choose(NEEDS, [SHM, DISK], 4 * GIB).disks == DISK


def test_a_memory_file_system_that_is_too_small_for_both_holds_the_machine_only() -> None:
    small = LabFolder(SHM.folder, free=4 * GIB, in_memory=True, executable=True)
    choice = choose(NEEDS, [small, DISK], 20 * GIB)
    assert (choice.memory, choice.disks) == (small, DISK)


def test_the_machine_is_not_put_where_nothing_may_be_executed() -> None:
    noexec = LabFolder(SHM.folder, free=12 * GIB, in_memory=True, executable=False)
    assert choose(NEEDS, [noexec, DISK], 20 * GIB).memory == DISK
    with pytest.raises(LabError, match="noexec") as refused:
        choose(NEEDS, [noexec], 20 * GIB)
    assert "TMPDIR" in refused.value.hint


def test_too_little_memory_is_said_with_both_numbers() -> None:
    with pytest.raises(LabError, match=r"needs 2\.0 GiB, 1\.0 GiB are available"):
        choose(NEEDS, [SHM, DISK], GIB)


def test_too_little_room_is_said_with_every_place_that_was_looked_at() -> None:
    full = LabFolder(DISK.folder, free=GIB, in_memory=False, executable=True)
    tight = LabFolder(SHM.folder, free=2 * GIB, in_memory=True, executable=True)
    with pytest.raises(LabError, match=r"/memory has 2\.0 GiB, /disk has 1\.0 GiB"):
        choose(NEEDS, [tight, full], 20 * GIB)


def test_packages_are_asked_for_only_where_the_options_need_them() -> None:
    def nothing(_: str) -> bool:
        return False

    everything = missing_packages(LabOptions(), nothing)
    assert {"patchelf", "nbdkit", "xfsprogs", "mariadb-server-core", "sysbench", "lvm2"} <= set(everything)
    assert "user-mode-linux" not in everything
    lean = missing_packages(LabOptions(disks=DiskModel.SSD, filesystem=Filesystem.EXT4, kernel=Kernel.HOST), nothing)
    assert {"user-mode-linux", "patchelf", "mmdebstrap", "nbdkit", "nbd-client", "xfsprogs"}.isdisjoint(lean)
    assert missing_packages(LabOptions(), lambda _: True) == ()


def test_mmdebstrap_is_asked_for_where_the_server_is_another_distributions_and_the_own_server_where_it_is_not() -> None:
    own = set(missing_packages(LabOptions(kernel=Kernel.UML_INSTALLED), lambda _: False))
    assert "mmdebstrap" not in own
    assert "user-mode-linux" in own
    for kind in (ServerKind.MARIADB_11, ServerKind.MYSQL_9):
        other = set(missing_packages(LabOptions(server=kind, kernel=Kernel.UML_INSTALLED), lambda _: False))
        assert other == own - {"mariadb-server-core"} | {"mmdebstrap"}


def test_systemd_is_asked_for_where_the_machine_is_to_have_it() -> None:
    plain, with_systemd = (set(missing_packages(LabOptions(init=init), lambda _: False)) for init in Init)
    assert with_systemd == plain | {"systemd", "udev", "dbus"}


def test_room_in_the_cache_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"not enough space for prepared disks in .*: 1\.0 PiB are needed"):
        require_cache_room(tmp_path, 1024 * 1024 * GIB, what="prepared disks")


def test_the_hosts_own_kernel_has_its_first_process_already() -> None:
    with pytest.raises(LabError, match="not systemd") as refused:
        run_on_host(LabOptions(kernel=Kernel.HOST, init=Init.SYSTEMD), ("true",), say=print)
    assert "--kernel uml" in refused.value.hint


@pytest.mark.parametrize("kind", [ServerKind.MARIADB_11, ServerKind.MYSQL_9])
def test_the_hosts_own_kernel_runs_the_hosts_own_server_only(kind: ServerKind) -> None:
    with pytest.raises(LabError, match=f"not {kind}") as refused:
        run_on_host(LabOptions(kernel=Kernel.HOST, server=kind), ("true",), say=print)
    assert "--kernel uml" in refused.value.hint
