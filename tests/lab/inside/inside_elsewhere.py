"""Data that does not lie on one volume, directly: what is refused, and servers that share a volume."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.lab.inside.host import SITE, SLOW_COPY, Changes, Host, tool
from tests.lab.inside.inside_good_run import names_in
from tests.lab.inside.inside_layouts import LINEAR, OWN, SMALL, Layout, laid_out, served, synced
from tests.lab.inside.moments import copying
from tests.lab.inside.places import mounted
from tests.lab.inside.servers import empty_datadir, second_server

BUSY, REFUSED = 4, 5


def test_everything_else_on_another_volume_is_refused_with_the_reason(host: Host, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name, files in {"redo": "ib_logfile0", "undo": "", "aria": "aria_log*", "tables": ""}.items():
        (elsewhere / name).mkdir(parents=True)
        for file in empty_datadir().glob(files) if files else ():
            shutil.copy(file, elsewhere / name)
    moved = (
        f"--innodb-log-group-home-dir={elsewhere}/redo",
        f"--innodb-undo-directory={elsewhere}/undo",
        f"--aria-log-dir-path={elsewhere}/aria",
    )
    with served(LINEAR, tmp_path / "mounted", *moved) as server:
        server.sql(f"CREATE TABLE mysql.stray (n INT) ENGINE = InnoDB DATA DIRECTORY = '{elsewhere}/tables'")
        said = host.fails({**SMALL, **server.asked_by("nightly")}, status=REFUSED, says="one volume: not on the volume")
    told = said["error"]["message"]
    assert all(f"{role} {elsewhere}" in told for role in ("redo", "undo", "aria log", "tablespace"))
    assert "cannot take an atomic snapshot of two" in said["error"]["hint"]


@pytest.mark.matrix
def test_raid1_that_is_being_resynced_is_refused(host: Host, tmp_path: Path) -> None:
    slow = Layout(
        "resync", "--type raid1 --mirrors 1 --maxrecoveryrate 128k --size 320m labvg {c} {d}", (), "linear", ""
    )
    with served(slow, tmp_path / "mounted") as server:
        assert not synced()
        host.fails({**SMALL, **server.asked_by("nightly")}, status=REFUSED, says=f"volume state: {OWN}: resync")


@contextmanager
def encrypted(device: Path) -> Iterator[str]:
    """What cryptsetup makes of a volume, by the uuid that it gives: a layer that LVM does not know of."""
    sectors = int(tool("blockdev", "--getsz", str(device)))
    tool("modprobe", "dm-crypt")
    table = f"0 {sectors} crypt aes-xts-plain64 {'0' * 64} 0 {device} 0"
    tool(
        "dmsetup", "create", "secret", "--uuid", "CRYPT-LUKS2-00112233445566778899aabbccddeeff-secret", "--table", table
    )
    try:
        yield "/dev/mapper/secret"
    finally:
        tool("dmsetup", "remove", "--retry", "secret")


@pytest.mark.matrix
def test_luks_above_lvm_is_refused_with_the_reason(host: Host, tmp_path: Path) -> None:
    with (
        laid_out(LINEAR) as device,
        encrypted(device) as opened,
        mounted(opened, tmp_path / "mounted") as at,
        second_server(at) as server,
    ):
        changes = {**SMALL, **server.asked_by("nightly")}
        said = host.fails(changes, status=REFUSED, says="not on LVM: the file system is on dm-")
        assert not server.sql("SHOW DATABASES LIKE 'backupd%'")
    assert "a LUKS or dm-crypt layer" in said["error"]["message"]
    assert "LUKS and md belong below LVM" in said["error"]["hint"]


@pytest.mark.matrix
def test_file_system_that_backupd_does_not_mount_is_refused_before_the_lock(host: Host, tmp_path: Path) -> None:
    at = tmp_path / "mounted"
    at.mkdir()
    with laid_out(LINEAR) as device, ExitStack() as owed:
        tool("mkfs.ext2", "-q", str(device))
        tool("mount", "-t", "ext2", str(device), str(at))
        owed.callback(tool, "umount", str(at))
        server = owed.enter_context(second_server(at))
        host.fails({**SMALL, **server.asked_by("nightly")}, status=REFUSED, says=f"file system: {at} is ext2")


def test_servers_that_share_a_volume_are_backed_up_one_after_the_other(host: Host) -> None:
    datadir = SITE.mount_point / "second"
    try:
        with second_server(datadir) as server, server.written_to():
            changes: Changes = {**server.asked_by("other"), "jobs.other.settle.enabled": False}
            with host.running(SLOW_COPY) as run:
                run.until(copying)
                busy = host.backupd("run", "other", "--json", changes=changes, expect=BUSY)
                run.ended(expect=0)
            document = host.backupd("run", "other", "--json", changes=changes).document
            drill = host.backupd("drill", document["run_id"], "--json", changes=changes).document
    finally:
        tool("rm", "--recursive", str(datadir))
    assert f"vg {SITE.volume_group} is held by run" in busy.stderr
    assert drill["status"] == "proven"
    names = names_in(Path(document["backup"]["location"]) / "data-1.tar.zst")
    assert "theirs" in {name.strip("/") for name in names}
    assert not [name for name in names if "sbtest" in name], "the other server's files are not in it"
