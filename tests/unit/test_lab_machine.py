"""The machine's command line, its disks, and the words with which its parts are started."""

import os
import re
import shlex
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import load as configured
from backupd.lab import configuration, programs, server
from backupd.lab.disks import (
    delay_table,
    format_argv,
    lvm_configuration,
    mount_points_of,
    nbdkit_argv,
    pool_argvs,
    volume_argv,
)
from backupd.lab.kernels import UserModeKernel
from backupd.lab.machine import Hardware, boot_environment, kernel_argv
from backupd.lab.options import Filesystem, LabLayout, LabOptions, ServerKind
from backupd.lab.plan import GuestControl, Purpose, plan_for
from backupd.lab.processor import one_processor
from backupd.lab.servers import SOFTWARE
from backupd.lab.site import guest_site, host_site
from backupd.lab.sizes import KIB, MIB, sizes_for
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.volumes import AUTO

DISKS = [Path(f"/dev/ubd{letter}") for letter in "bcde"]
HARDWARE = Hardware(
    control=GuestControl(Path("/t/control")),
    memory_folder=Path("/memory"),
    disks=tuple(Path(f"/d/{letter}.img") for letter in "bcdef"),
    kernel=UserModeKernel("/k/linux.uml", Path("/m"), ("seccomp=auto",)),
)


def test_the_kernel_gets_every_disk_under_its_letter_and_never_discards() -> None:
    argv = kernel_argv(HARDWARE)
    assert [word for word in argv if word.startswith("ubd")] == [f"ubd{c}t=/d/{c}.img" for c in "bcdef"]


def test_spare_disks_come_after_the_others() -> None:
    spares = tuple(Path(f"/d/{letter}.img") for letter in "gh")
    argv = kernel_argv(replace(HARDWARE, disks=(*HARDWARE.disks, *spares)))
    assert [word for word in argv if word.startswith("ubd")] == [f"ubd{c}t=/d/{c}.img" for c in "bcdefgh"]


def test_the_kernel_leaves_nothing_in_the_home_folder_and_keeps_its_memory_where_it_is_told() -> None:
    argv = kernel_argv(HARDWARE)
    assert "uml_dir=/t/control/uml" in argv
    assert argv[:3] == ["env", "TMPDIR=/memory", "/k/linux.uml"]


def test_a_kernel_gets_the_options_that_only_it_knows() -> None:
    assert "seccomp=auto" in kernel_argv(HARDWARE)
    installed = UserModeKernel("linux.uml", Path("/m"))
    assert not [word for word in kernel_argv(replace(HARDWARE, kernel=installed)) if word.startswith("seccomp")]


def test_the_outside_is_mounted_read_only() -> None:
    argv = kernel_argv(HARDWARE)
    assert "ro" in argv
    assert "rw" not in argv


def test_boot_environment_is_quoted_for_a_shell() -> None:
    plan = plan_for(Purpose.RUN, LabOptions(), command=(), python="/a b/py'thon", out=Path("/out"))
    text = boot_environment(
        modules=Path("/m"), plan=plan, import_from=Path("/$HOME"), keep=[Path("/one"), Path("/two")]
    )
    words = ["MODULES=/m", "PYTHON=/a b/py'thon", "IMPORT_FROM=/$HOME", "KEEP=/one\n/two", "INIT=script"]
    assert shlex.split(text) == words


def test_a_striped_volume_has_three_stripes_of_64_kib_on_the_first_three_disks() -> None:
    argv = volume_argv(guest_site(), LabLayout.STRIPED, DISKS, sizes_for(1000))
    assert argv[argv.index("--stripes") + 1] == "3"
    assert argv[argv.index("--stripesize") + 1] == "65536b"
    assert argv[-4:] == ["labvg", "/dev/ubdb", "/dev/ubdc", "/dev/ubdd"]


def test_a_linear_volume_lies_equally_on_three_disks_and_the_fourth_is_free() -> None:
    sizes = sizes_for(1000)
    argv = volume_argv(guest_site(), LabLayout.LINEAR, DISKS, sizes)
    last = sizes.extents_a_disk - 1
    assert argv[-3:] == [f"/dev/ubdb:0-{last}", f"/dev/ubdc:0-{last}", f"/dev/ubdd:0-{last}"]
    assert "--stripes" not in argv


def test_a_thin_volume_lies_in_a_pool_as_it_would_without_one_and_the_metadata_on_the_fourth_disk() -> None:
    sizes = sizes_for(1000)
    data, metadata, convert, volume = pool_argvs(guest_site(), LabLayout.STRIPED, DISKS, sizes)
    thick = volume_argv(guest_site(), LabLayout.STRIPED, DISKS, sizes)
    assert [word if word != "pool" else "data" for word in data] == thick
    assert metadata[-2:] == ["labvg", "/dev/ubde"]
    assert convert[-1] == "labvg/pool"
    assert volume[volume.index("--virtualsize") + 1] == f"{sizes.volume}b"


@pytest.mark.parametrize("with_udev", [False, True])
def test_lvm_sees_the_labs_disks_and_nothing_else(with_udev: bool) -> None:
    text = lvm_configuration([Path("/dev/nbd0"), Path("/dev/nbd1")], with_udev=with_udev)
    filters = re.findall(r"filter = \[ (.*) \]", text)
    assert filters == ['"a|^/dev/nbd0$|", "a|^/dev/nbd1$|", "r|.*|"'] * 2
    assert "use_devicesfile = 0" in text
    assert ("udev_sync = 0" in text) is not with_udev


@pytest.mark.parametrize("with_udev", [False, True])
def test_lvm_touches_less_before_it_suspends_a_device_than_it_does_by_itself(with_udev: bool) -> None:
    (reserved,) = re.findall(r"^    reserved_memory = (\d+)$", lvm_configuration([], with_udev=with_udev), re.MULTILINE)
    assert 0 < int(reserved) * KIB < 8 * MIB


def test_an_hdd_serves_one_request_at_a_time_reads_included() -> None:
    argv = nbdkit_argv(Path("/dev/ubdb"), Path("/run/b.nbd"))
    assert argv[argv.index("--threads") + 1] == "1"
    assert {"delay-read=4ms", "delay-write=4ms"} <= set(argv)


def test_what_an_hdd_may_move_at_once_is_one_piece_of_a_request() -> None:
    """A bucket of seconds, nbdkit's default, lets 300 MB through for nothing; one of less than a piece never fills."""
    argv = nbdkit_argv(Path("/dev/ubdb"), Path("/run/b.nbd"))
    words = dict(word.split("=") for word in argv if "=" in word)
    assert (words["rate"], words["maxdata"]) == ("1200M", "256K")
    assert 1.0 <= float(words["burstiness"]) * 1200 * MIB / 8 / (256 * KIB) <= 1.1
    filters = [word.removeprefix("--filter=") for word in argv if word.startswith("--filter=")]
    assert filters == ["delay", "blocksize", "rate"], "one delay for each request, not for each piece of it"


def test_a_delayed_disk_delays_writes_only() -> None:
    assert delay_table(Path("/dev/ubdb"), 1024 * 1024) == "0 2048 delay /dev/ubdb 0 0 /dev/ubdb 0 5"


def test_the_file_system_is_the_one_that_was_asked_for() -> None:
    assert format_argv(Filesystem.XFS, Path("/dev/x"))[0] == "mkfs.xfs"
    assert format_argv(Filesystem.EXT4, Path("/dev/x"))[0] == "mkfs.ext4"


def test_only_mounts_of_the_labs_own_group_are_taken_down_latest_first() -> None:
    mounts = (
        "/dev/mapper/labvg-data /srv/mysql xfs rw 0 0\n"
        "/dev/mapper/othervg-data /mnt/other xfs rw 0 0\n"
        "/dev/mapper/labvg-snap /mnt/a\\040b xfs ro 0 0\n"
    )
    assert mount_points_of(guest_site(), mounts) == ["/mnt/a b", "/srv/mysql"]


def test_two_labs_on_one_host_share_no_name() -> None:
    one = host_site(Path("/t/1"), out=Path("/o/1"), pid=1)
    two = host_site(Path("/t/2"), out=Path("/o/2"), pid=2)
    for name in ("volume_group", "mount_point", "runtime", "etc", "state", "backups", "socket", "lvm_system", "prefix"):
        assert getattr(one, name) != getattr(two, name)


@pytest.mark.parametrize("kind", ServerKind)
def test_the_servers_option_file_names_every_place(kind: ServerKind) -> None:
    site = guest_site()
    text = server.option_file(site, kind)
    assert f"datadir = {site.datadir}\n" in text
    assert f"socket = {site.socket}\n" in text
    assert "log_bin = mysql-bin" in text


def test_a_server_is_reached_from_its_own_machine_only_and_on_a_host_by_its_socket_alone() -> None:
    inside = server.option_file(guest_site(), ServerKind.MARIADB_10)
    assert "port = 3306\nbind_address = 127.0.0.1\n" in inside
    beside = server.option_file(host_site(Path("/t"), out=Path("/o"), pid=1), ServerKind.MARIADB_10)
    assert "skip_networking" in beside
    assert "port = " not in beside


@pytest.mark.parametrize("kind", ServerKind)
def test_every_kind_has_its_programs_and_only_mariadb_an_aria_table(kind: ServerKind) -> None:
    software = SOFTWARE[kind]
    names = {Path(program).name for program in software.programs}
    assert {software.program, software.install} <= names or software.origin is None
    assert ("aria_log" in software.log_tables) == (software.flavour is Flavour.MARIADB)


def test_a_program_of_another_root_becomes_the_process_that_was_started(tmp_path: Path) -> None:
    """Of whom may change his root by that, of anybody else by the loader that came with it."""
    usr = tmp_path / "usr"
    loader = usr / "lib64" / "ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    loader.write_text('#!/bin/sh\necho "loaded $*"\n')
    loader.chmod(0o755)
    script = tmp_path / "mysqld"
    script.write_text(programs.wrapper(Path("/r"), usr, "/usr/sbin/mysqld"))
    assert 'exec chroot /r /usr/sbin/mysqld "$@"\n' in script.read_text()
    for name, uid in (("chroot", 0), ("id", 65534)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {uid}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    by_loader = subprocess.run(
        ["sh", str(script), "--no-defaults", "--datadir=/a b"], env=path, capture_output=True, text=True, check=True
    ).stdout
    program = f"{usr}/sbin/mysqld --no-defaults --basedir={usr} --datadir=/a b"
    assert by_loader == f"loaded --library-path {usr}/lib/x86_64-linux-gnu {program}\n"


def test_the_configuration_made_ready_has_the_job_nightly_and_dirs_backups_as_its_target() -> None:
    text = configuration.text(guest_site())
    assert "[jobs.nightly]" in text
    assert 'path = "/backups"' in text


def test_the_demos_second_job_is_what_the_first_was_once_into_the_same_folder(tmp_path: Path) -> None:
    site = replace(guest_site(), etc=tmp_path)
    site.configuration.write_text(configuration.text(site), encoding="utf-8")
    configuration.add_old_defaults(site)
    jobs = configured(site.configuration).jobs
    old, new = jobs[configuration.OLD_DEFAULTS], jobs["nightly"]
    assert (old.snapshot.chunk_size, old.settle.probe) == (64 << 10, True)
    assert (new.snapshot.chunk_size, new.settle.probe) == (AUTO, AUTO)
    assert (old.host, old.targets, old.snapshot.size) == (new.host, new.targets, new.snapshot.size)


def test_each_machine_has_a_processor_of_its_own_and_further_ones_share(tmp_path: Path) -> None:
    ours = os.sched_getaffinity(0)
    with ExitStack() as running:
        taken = [running.enter_context(one_processor(tmp_path / "locks")) for _ in ours]
        assert sorted(taken) == sorted(ours)
        assert running.enter_context(one_processor(tmp_path / "locks")) in ours
    with one_processor(tmp_path / "locks") as first, one_processor(tmp_path / "locks") as second:
        assert (first != second) is (len(ours) > 1)


def test_a_machine_keeps_to_one_processor() -> None:
    argv = kernel_argv(replace(HARDWARE, processor=1))
    assert argv[:3] == ["taskset", "--cpu-list", "1"]
    assert argv[3:] == kernel_argv(HARDWARE)
