"""What the preflight refuses on a real machine: the sentence, the hint, the status, and nothing touched."""

import shutil
from pathlib import Path

import pytest

from tests.lab.inside.host import GATE_OFF, SITE, Host
from tests.lab.inside.places import memory_disk, volume
from tests.lab.inside.servers import second_server

REFUSED = 5
USAGE = 2
CATALOGUE = 13


def test_wrong_password(host: Host, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text("not-it\n")
    document = host.fails(
        {"hosts.lab.password_file": str(secret)}, status=REFUSED, says="refused user 'backupd': wrong password"
    )
    assert document["status"] == "refused"
    assert "not-it" not in str(document)


@pytest.mark.matrix
def test_missing_grant(host: Host) -> None:
    host.sql("REVOKE PROCESS ON *.* FROM backupd@localhost")
    try:
        host.fails({}, status=REFUSED, says="grants: missing for backup-stage: PROCESS")
    finally:
        host.sql("GRANT PROCESS ON *.* TO backupd@localhost")


def test_datadir_that_is_not_on_lvm(host: Host, tmp_path: Path) -> None:
    with second_server(tmp_path / "data") as server:
        host.fails(server.asked_by("nightly"), status=REFUSED, says="not on LVM")


def test_volume_group_without_room(host: Host) -> None:
    with volume("filler", "--extents", "100%FREE", SITE.volume_group):
        document = host.fails({}, status=REFUSED, says="not enough free extents on labvg")
    assert "vgextend" in document["error"]["hint"]


def test_snapshot_of_somebody_elses_on_the_origin(host: Host) -> None:
    with volume("theirs", "--snapshot", "--size", "64m", f"{SITE.volume_group}/data"):
        host.fails({}, status=REFUSED, says="labvg/data already has: theirs")


def test_target_that_is_missing(host: Host, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    host.fails({"targets.store.path": str(missing)}, status=REFUSED, says=f"{missing}) does not exist")
    assert not missing.exists(), "to make it would hide that its file system is not mounted"


@pytest.mark.matrix
def test_target_that_is_read_only(host: Host, tmp_path: Path) -> None:
    with memory_disk(tmp_path / "target", "ro") as path:
        host.fails({"targets.store.path": str(path)}, status=REFUSED, says="is mounted read-only")


@pytest.mark.matrix
def test_target_that_is_full(host: Host, tmp_path: Path) -> None:
    with memory_disk(tmp_path / "target") as path:
        (path / "filler").write_bytes(bytes(1 << 20))
        host.fails({"targets.store.path": str(path)}, status=REFUSED, says="no space left on target store")


@pytest.mark.matrix
def test_target_with_too_little_room(host: Host, tmp_path: Path) -> None:
    with memory_disk(tmp_path / "target") as path:
        host.fails({"targets.store.path": str(path)}, status=REFUSED, says="iB free")


def test_target_on_the_volume_that_is_snapshotted(host: Host) -> None:
    inside = SITE.mount_point / "store"
    inside.mkdir()
    try:
        host.fails({"targets.store.path": str(inside)}, status=REFUSED, says="is on the volume that is snapshotted")
        assert not list(inside.glob("*/*")), "no backup, nor an owner record"
    finally:
        shutil.rmtree(inside)


def test_everything_that_is_wrong_is_told_at_once(host: Host, tmp_path: Path) -> None:
    host.sql("REVOKE PROCESS ON *.* FROM backupd@localhost")
    try:
        with volume("filler", "--extents", "100%FREE", SITE.volume_group):
            changes = {"targets.store.path": str(tmp_path / "missing")}
            checked = host.backupd("check", "nightly", "--json", changes=changes, expect=REFUSED)
    finally:
        host.sql("GRANT PROCESS ON *.* TO backupd@localhost")
    refused = {finding["name"]: finding for finding in checked.document["findings"] if finding["level"] == "refused"}
    assert set(refused) >= {"grants", "snapshot room", "target store"}
    assert all(finding["hint"] for finding in refused.values())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "weekly"), "no job 'weekly'"),
        *(pytest.param((word, "nothing"), "no run", marks=pytest.mark.matrix) for word in ("show", "drill")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_name_that_does_not_exist(host: Host, words: tuple[str, ...], says: str) -> None:
    ended = host.backupd(*words, expect=USAGE)
    assert says in ended.stderr
    assert "hint: " in ended.stderr
    assert ended.stdout == ""


@pytest.mark.matrix
def test_secret_that_others_can_read(host: Host, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("anything\n")
    secret.chmod(0o644)
    ended = host.backupd("run", "nightly", "--json", changes={"hosts.lab.password_file": str(secret)}, expect=USAGE)
    assert str(secret) in ended.document["error"]["message"]
    assert "chmod 600" in ended.stderr


@pytest.mark.matrix
def test_catalogue_that_cannot_be_written(host: Host, tmp_path: Path) -> None:
    with memory_disk(tmp_path / "state", "ro") as path:
        changes = {**GATE_OFF, "catalogue.path": str(path / "catalogue.sqlite")}
        ended = host.backupd("run", "nightly", "--json", changes=changes, expect=CATALOGUE)
    assert str(path) in ended.document["error"]["message"]
    assert "hint: " in ended.stderr
