"""Whether the server that answers is the one whose datadir is here: a job's address may lead to another machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backupd.mysql import DATA_DIRECTORY
from backupd.mysql.layout import configured, explained_datadir, links, require_open, require_own, require_server_of
from backupd.mysql.login import Login
from backupd.mysql.running_servers import require_no_server_in
from backupd.mysql.session import Session
from backupd.vocabulary.errors import Refused, ServerError

UUID, OTHER = "0dd1a2f4-8a51-11ee-b9d1-0242ac120002", "99999999-8a51-11ee-b9d1-0242ac120002"
HERE = socket.gethostname()


def mysql(datadir: Path, *, kept: str, hostname: str = HERE) -> dict[str, str]:
    (datadir / "auto.cnf").write_text(f"[auto]\nserver-uuid={kept}\n")
    return {"server_uuid": UUID, "hostname": hostname}


def test_a_mysql_server_whose_uuid_the_datadir_has_is_its_own_wherever_it_answers(tmp_path: Path) -> None:
    require_own(mysql(tmp_path, kept=UUID, hostname="a-container"), tmp_path, far_address="172.17.0.2")


@pytest.mark.parametrize("far_address", [None, "10.0.0.7"])
def test_a_mysql_server_of_another_uuid_is_refused_also_behind_a_proxy_here(
    tmp_path: Path, far_address: str | None
) -> None:
    with pytest.raises(ServerError, match=f"its server_uuid is {UUID}, and auto.cnf there has {OTHER}") as caught:
        require_own(mysql(tmp_path, kept=OTHER), tmp_path, far_address=far_address)
    assert "socket" in caught.value.hint


def test_a_server_without_a_uuid_that_answers_from_another_machine_is_refused(tmp_path: Path) -> None:
    """As behind an address that has moved to the other one of two that replicate: their files have the same names."""
    with pytest.raises(
        ServerError, match=rf"at 10\.0\.0\.7, seems to be another machine's: its hostname is db2, not {HERE}"
    ):
        require_own({"hostname": "db2"}, tmp_path, far_address="10.0.0.7")


def test_who_has_a_mariadb_in_a_container_is_told_how_it_is_known_to_be_here(tmp_path: Path) -> None:
    """Its hostname is the container's id, and the bridge's address could be anybody's."""
    with pytest.raises(ServerError, match=r"at 172\.17\.0\.2, seems to be another machine's") as caught:
        require_own({"hostname": "3f2a90c1b7de"}, tmp_path, far_address="172.17.0.2")
    assert "if it runs in a container here" in caught.value.hint
    assert "--publish 127.0.0.1:PORT:3306" in caught.value.hint
    require_own({"hostname": "3f2a90c1b7de"}, tmp_path, far_address=None)  # its port was published so


def test_a_server_here_is_taken_for_what_it_is(tmp_path: Path) -> None:
    require_own({"hostname": "its-old-name"}, tmp_path, far_address=None)
    require_own({"hostname": HERE}, tmp_path, far_address="10.0.0.7")  # a second address of this machine's


@pytest.mark.parametrize(
    ("ours", "theirs", "far"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.1", "127.0.1.1", None),
        ("10.0.0.5", "10.0.0.5", None),
        ("::1", "::1", None),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80::2%eth0"),
        ("10.0.0.5", "10.0.0.7", "10.0.0.7"),
    ],
)
def test_an_address_is_far_unless_it_is_seen_to_be_ours(ours: str, theirs: str, far: str | None) -> None:
    sock = SimpleNamespace(getsockname=lambda: (ours, 40000), getpeername=lambda: (theirs, 3306))
    connection = SimpleNamespace(_sock=sock)
    assert Session(connection, Login("backup", address=theirs)).far_address == far
    assert Session(connection, Login("backup", socket=Path("/s"))).far_address is None


_SERVER = """
import fcntl, sys
open("/proc/self/comm", "w").write(sys.argv[2])
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
input()
"""


@contextmanager
def holding(file: Path, *, name: str = "mariadbd", within: Path | None = None) -> Iterator[int]:
    """A process of this name, at work in this folder, that has the file open as a server has."""
    file.touch()
    argv = [sys.executable, "-c", _SERVER, str(file), name]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=nowhere, cwd=within) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield server.pid


@pytest.mark.parametrize("name", ["aria_log_control", "ibdata1"])
def test_files_that_no_server_has_open_are_refused(tmp_path: Path, name: str) -> None:
    """As a container's own /var/lib/mysql leaves them on the host, or a volume that was mounted over the server's."""
    require_open({}, tmp_path)  # there is nothing by which it could be told
    (tmp_path / name).write_bytes(bytes(52))
    with pytest.raises(ServerError, match=f"no server has the files in {tmp_path} open") as caught:
        require_open({}, tmp_path)
    assert "container" in caught.value.hint
    with holding(tmp_path / name) as server:
        assert require_open({}, tmp_path) == server


@pytest.mark.timeout(30)
@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_the_datadir_is_not_opened_and_keeps_nobody_waiting(
    tmp_path: Path, plant: Callable[[Path], object]
) -> None:
    """Whoever owns the datadir could have root wait for ever, or read what is not the server's."""
    for name in ("ibdata1", "auto.cnf"):
        plant(tmp_path / name)
    require_open({}, tmp_path)
    (tmp_path / "aria_log_control").write_bytes(bytes(52))
    with holding(tmp_path / "aria_log_control") as server:
        assert require_open({}, tmp_path) == server
    with pytest.raises(ServerError, match="cannot read the server's datadir"), explained_datadir():
        require_own({"server_uuid": UUID}, tmp_path, far_address=None)


def test_a_server_s_uuid_is_not_looked_for_in_a_file_without_end(tmp_path: Path) -> None:
    (tmp_path / "auto.cnf").write_bytes(b"#" * (1 << 20))
    with pytest.raises(OSError, match="it has more than 65536 bytes"):
        require_own({"server_uuid": UUID}, tmp_path, far_address=None)


def test_a_server_s_uuid_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    told = mysql(tmp_path / "kept", kept=OTHER)
    (tmp_path / "auto.cnf").symlink_to("kept/auto.cnf")
    with pytest.raises(ServerError, match=f"auto.cnf there has {OTHER}"):
        require_own(told, tmp_path, far_address=None)


def test_a_datadir_behind_a_link_is_the_server_s_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "mysql").symlink_to("large")
    (tmp_path / "large" / "ibdata1").touch()
    require_own(mysql(tmp_path / "mysql", kept=UUID), tmp_path / "mysql", far_address=None)
    with holding(tmp_path / "large" / "ibdata1") as server:
        assert require_open({}, tmp_path / "mysql") == server


def answering(datadir: Path, peer: int | None) -> Session:
    """A session with a MariaDB that says that this is its datadir."""
    variables = {"datadir": str(datadir), "hostname": "3f2a90c1b7de"}
    return cast("Session", SimpleNamespace(variables=lambda: variables, far_address=None, peer=peer))


@pytest.mark.parametrize("name", ["mariadbd", "mysqld"])
def test_a_server_that_answers_at_the_socket_while_another_has_the_files_open_is_refused(
    tmp_path: Path, name: str
) -> None:
    """As one in a container whose folder lies at the same path as the host's own server's."""
    (tmp_path / "aria_log_control").write_bytes(bytes(52))
    with holding(tmp_path / "aria_log_control") as host, holding(tmp_path / "another", name=name) as container:
        require_server_of(answering(tmp_path, host), tmp_path)
        with pytest.raises(
            ServerError, match=f"process {container} answers, and another one, process {host}, has the files"
        ) as caught:
            require_server_of(answering(tmp_path, container), tmp_path)
    assert "container" in caught.value.hint


@pytest.mark.parametrize("file", ["aria_log_control", "ibdata1", "ibtmp1", "mysql.ibd"])
def test_so_is_a_server_of_another_name_which_is_known_by_the_files_that_it_has_open(tmp_path: Path, file: str) -> None:
    """As a debug build, or one that was renamed. Its own folder need not be there any more."""
    (tmp_path / "ibdata1").write_bytes(bytes(52))
    (tmp_path / "its own").mkdir()
    theirs = tmp_path / "its own" / file
    with holding(tmp_path / "ibdata1") as host, holding(theirs, name="mysqld-debug") as container:
        for _ in ("it is there", "it was removed"):
            with pytest.raises(ServerError, match=f"process {container} answers, and another one, process {host}, has"):
                require_server_of(answering(tmp_path, container), tmp_path)
            theirs.unlink(missing_ok=True)


def test_a_server_of_another_name_is_found_in_its_folder_and_a_mere_visitor_is_none(tmp_path: Path) -> None:
    """Nothing is restored into the folder of one, empty as it may be."""
    datadir = tmp_path / "data"
    datadir.mkdir()
    with holding(tmp_path / "notes", name="bash", within=datadir):
        require_no_server_in(datadir)
    with holding(datadir / "ibdata1", name="mysqld-debug", within=datadir) as server:
        (datadir / "ibdata1").unlink()
        with pytest.raises(Refused, match=f"server has {datadir} as its datadir: mysqld-debug, process {server}"):
            require_no_server_in(datadir)
        datadir.rmdir()
        with pytest.raises(Refused, match=f"server has {datadir} as its datadir: mysqld-debug, process {server}"):
            require_no_server_in(tmp_path)


def test_who_answers_for_a_server_need_not_be_it(tmp_path: Path) -> None:
    """Over TCP nobody is seen; systemd may have listened, a proxy may pass on, a container's process may be hidden."""
    (tmp_path / "ibdata1").write_bytes(bytes(52))
    with holding(tmp_path / "ibdata1"), holding(tmp_path / "another", name="proxysql") as proxy:
        for peer in (None, 0, 1, proxy):
            require_server_of(answering(tmp_path, peer), tmp_path)


def test_a_schema_that_is_dropped_while_the_datadir_is_walked_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder was listed a moment before; a run that is refused for that is not tried again."""
    (tmp_path / "dropped").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "t.ibd").symlink_to("/srv/t.ibd")
    scandir = os.scandir

    def dropping(path: Path) -> object:
        if path == tmp_path / "dropped":
            path.rmdir()
        return scandir(path)

    monkeypatch.setattr("backupd.mysql.layout.os.scandir", dropping)
    assert [found.path for found in links(tmp_path)] == [Path("/srv/t.ibd")]
    with pytest.raises(FileNotFoundError):
        list(links(tmp_path / "nothing"))


def test_the_folders_of_tokudb_must_share_the_volume_as_rocksdbs_must(tmp_path: Path) -> None:
    variables = {"tokudb_data_dir": "/srv/toku", "tokudb_log_dir": "", "rocksdb_datadir": "./#rocksdb"}
    assert {(found.path, found.must_share) for found in configured(variables, tmp_path)} == {
        (Path("/srv/toku"), True),
        (tmp_path, True),
        (tmp_path / "#rocksdb", True),
    }


def test_tables_elsewhere_are_found_in_a_schema_behind_a_relative_link_too(tmp_path: Path) -> None:
    """Which is where preflight itself advises to move one; links that lead round or up end nowhere."""
    datadir, large = tmp_path / "data", tmp_path / "large" / "shop"
    (datadir / "own").mkdir(parents=True)
    large.mkdir(parents=True)
    (datadir / "shop").symlink_to("../large/shop")
    (datadir / "same").symlink_to("own")
    (large / "round").symlink_to("../shop")
    (large / "back").symlink_to("../../data")
    (datadir / "up").symlink_to("..")
    (tmp_path / "another").symlink_to("/etc/passwd")
    (large / "t.isl").write_bytes(b"/srv/t.ibd")
    found = list(links(datadir))
    assert [one.path for one in found if one.role == DATA_DIRECTORY] == [Path("/srv/t.ibd")]
    assert {one.path for one in found if one.role != DATA_DIRECTORY} == {tmp_path, datadir, datadir / "own", large}


@pytest.mark.parametrize(
    ("content", "leads_to"),
    [
        (b"/srv/gr\xf6\xdfe/t.ibd\n", Path(os.fsdecode(b"/srv/gr\xf6\xdfe/t.ibd"))),  # in the server's own encoding
        (b"/srv/t.ibd\0and more", Path("/srv/t.ibd")),  # the server reads no further
    ],
)
def test_a_list_of_tablespaces_may_hold_anything(tmp_path: Path, content: bytes, leads_to: Path) -> None:
    (tmp_path / "t.isl").write_bytes(content)
    assert [(found.role, found.path) for found in links(tmp_path)] == [(DATA_DIRECTORY, leads_to)]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (os.mkfifo, "it is not the file that should be there"),
        (lambda path: path.write_bytes(b"/" * (8 << 20)), "it has more than 4096 bytes"),
    ],
)
def test_what_is_no_list_of_tablespaces_is_told_and_keeps_nobody_waiting(
    tmp_path: Path, plant: Callable[[Path], object], said: str
) -> None:
    plant(tmp_path / "t.isl")
    with pytest.raises(ServerError, match=f"cannot read the server's datadir: .*{said}"), explained_datadir():
        list(links(tmp_path))
