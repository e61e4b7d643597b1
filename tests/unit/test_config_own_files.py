"""Who may change the configuration: it names programs that backupd runs."""

import os
import struct
from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.fleet_reading import InventoryHosts, load_fleet
from backupd.config.own_files import require_rereadable, shared
from backupd.vocabulary.errors import ConfigurationError
from tests.unit.config_texts import MINIMAL, refusal

SOMEBODY = 54321  # nobody's name on any host


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    (folder / "backupd.toml").write_text(MINIMAL)
    (folder / "backupd.toml").chmod(0o640)
    return folder / "backupd.toml"


def told(path: Path) -> list[str]:
    assert load(path).jobs
    return [str(fault) for fault in shared(path)]


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_file_that_anybody_may_change_is_not_read(path: Path, mode: int) -> None:
    path.chmod(mode)
    error = refusal(path)
    assert error.message.startswith(f"{path} can be changed by anybody")
    assert "chmod o-w" in error.hint


def test_nor_is_a_fleets(path: Path) -> None:
    path.write_text("hosts.db1 = {}")
    assert load_fleet(path, lambda _: InventoryHosts()).configuration.hosts
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="can be changed by anybody"):
        load_fleet(path, lambda _: InventoryHosts())


def test_nor_is_one_that_anybody_may_replace(path: Path) -> None:
    path.parent.chmod(0o777)
    assert refusal(path).message.startswith(f"{path.parent} can be changed by anybody")
    path.parent.chmod(0o1777)  # as /tmp: nobody else removes or renames what is ours
    assert told(path) == []


def test_nor_is_one_to_which_a_link_leads(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "backupd.toml"
    link.symlink_to(path)
    assert load(link).jobs
    path.parent.chmod(0o777)
    assert refusal(link).message.startswith(f"{path.parent} can be changed by anybody")


def test_a_folder_that_is_mounted_read_only_lets_nobody_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(path.parent)
    folder = path.parent
    folder.chmod(0o777)  # as Kubernetes gives a ConfigMap its folder

    def mounted(_: Path) -> os.statvfs_result:
        return os.statvfs_result((*tuple(real)[:8], real.f_flag | os.ST_RDONLY, real.f_namemax))

    assert refusal(path).message.startswith(f"{folder} can be changed by anybody")
    monkeypatch.setattr("backupd.config.own_files.os.statvfs", mounted)
    assert told(path) == []


def test_another_owner_and_a_group_are_told_and_stop_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(path) == []
    path.chmod(0o660)
    path.parent.chmod(0o2775)
    group = f"group {path.group()}"
    assert [one.partition(":")[0] for one in told(path)] == [str(path), str(path.parent)]
    assert all(f": is writable by {group}: they can change" in one for one in told(path))
    path.chmod(0o640)
    path.parent.chmod(0o755)
    monkeypatch.setattr("backupd.config.own_files.os.geteuid", lambda: SOMEBODY)
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY - 1, -1)
        assert told(path) == [f"{path}: belongs to uid {SOMEBODY - 1}, who can change which programs backupd runs"]
    else:
        assert all(f": belongs to user {path.owner()}, who can change" in one for one in told(path))


def acl_for(user: int) -> bytes:
    """`setfacl -m u:USER:rw` of a file with mode 0640, as the kernel keeps it (linux/posix_acl_xattr.h)."""
    nobody = 0xFFFFFFFF
    entries = ((1, 6, nobody), (2, 6, user), (4, 4, nobody), (0x10, 6, nobody), (0x20, 0, nobody))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_an_acl_is_told_of_and_keeps_a_drop_in_from_being_read(path: Path) -> None:
    drop_in = path.parent / "conf.d" / "more.toml"
    drop_in.parent.mkdir(mode=0o755)
    drop_in.write_text('[targets.more]\ntype = "directory"\npath = "/srv/more"\n')
    drop_in.chmod(0o640)
    assert load(path).targets["more"]
    os.setxattr(path, "system.posix_acl_access", acl_for(SOMEBODY))
    assert any("or by somebody in its ACL" in one for one in told(path))
    os.setxattr(drop_in, "system.posix_acl_access", acl_for(SOMEBODY))
    assert refusal(path).message.startswith(f"{drop_in} can be changed by others")


@pytest.mark.parametrize("mode", [0o660, 0o664, 0o646])
def test_no_group_may_change_a_drop_in_even_one_that_nobody_else_seems_to_be_in(path: Path, mode: int) -> None:
    drop_in = path.parent / "conf.d" / "more.toml"
    drop_in.parent.mkdir(mode=0o755)
    drop_in.write_text("")
    drop_in.chmod(mode)
    assert refusal(path).message.startswith(f"{drop_in} can be changed by others")


def test_a_pipe_is_read_whole_by_who_needs_it_once_and_refused_to_who_reads_it_again(path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, MINIMAL.encode())
        os.close(writing)
        pipe = Path(f"/dev/fd/{reading}")
        assert load(pipe).jobs
        with pytest.raises(ConfigurationError, match="is not a regular file") as refused:
            require_rereadable(pipe)
        assert "read again" in refused.value.hint
    finally:
        os.close(reading)
    require_rereadable(path)
