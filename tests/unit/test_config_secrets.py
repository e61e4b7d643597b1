"""Passwords: where they may come from, who may read them, and that they are never told."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.config import HostConfig
from backupd.config.secrets import client_options, credentials, password
from backupd.vocabulary.errors import ConfigurationError, ExitStatus

SECRET = "hunter2 é#'"
SOCKET = Path("/run/mysqld/mysqld.sock")

WriteSecret = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteSecret:
    def write(content: str | bytes, *, mode: int = 0o600) -> Path:
        path = tmp_path / "secret"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    return write


def in_file(path: Path) -> HostConfig:
    return HostConfig(name="db1", socket=SOCKET, user="backupd", password_file=path)


def refusal(host: HostConfig, environment: dict[str, str] | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        credentials(host, environment or {})
    assert raised.value.exit_status is ExitStatus.USAGE
    assert raised.value.message.startswith("hosts.db1")
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_password_file_is_read_without_its_trailing_newline(write: WriteSecret, ending: str) -> None:
    assert password(in_file(write(SECRET + ending)), {}) == SECRET


def test_spaces_of_a_password_are_kept(write: WriteSecret) -> None:
    assert password(in_file(write(" a b \n")), {}) == " a b "


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_a_secret_file_that_others_can_use_is_refused_with_the_chmod(write: WriteSecret, mode: int) -> None:
    path = write(SECRET, mode=mode)
    error = refusal(in_file(path))
    assert f"{path} can be read or written by others (mode {mode:04o})" in error.message
    assert error.hint == f"chmod 600 {path}"


def test_a_link_is_judged_by_the_file_it_leads_to(write: WriteSecret, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(write(SECRET, mode=0o644))
    assert "can be read or written by others" in refusal(in_file(link)).message
    link.resolve().chmod(0o400)
    assert password(in_file(link), {}) == SECRET


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    assert "is not a regular file" in refusal(in_file(fifo)).message


def test_a_folder_a_missing_file_and_an_empty_one_are_refused(write: WriteSecret, tmp_path: Path) -> None:
    assert "is a directory" in refusal(in_file(tmp_path)).message
    assert "no such file or directory" in refusal(in_file(tmp_path / "none")).message
    assert "the file is empty" in refusal(in_file(write("\n"))).message


def test_a_file_that_is_no_text_is_refused_and_its_bytes_are_in_no_exception(write: WriteSecret) -> None:
    error = refusal(in_file(write(b"hunter2\xff")))
    assert "is not UTF-8 text" in error.message
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_a_password_in_the_environment_is_found_by_its_variable() -> None:
    host = HostConfig(name="db1", socket=SOCKET, user="backupd", password_env="DB1_PASSWORD")
    assert password(host, {"DB1_PASSWORD": SECRET}) == SECRET
    for environment in ({}, {"DB1_PASSWORD": ""}):
        assert "the environment has no DB1_PASSWORD" in refusal(host, environment).message


def test_a_systemd_credential_is_read_from_its_folder_whatever_its_mode(tmp_path: Path) -> None:
    host = HostConfig(name="db1", socket=SOCKET, user="backupd", password_credential="db1-password")
    (tmp_path / "db1-password").write_text(SECRET + "\n")
    (tmp_path / "db1-password").chmod(0o440)
    assert password(host, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == SECRET
    assert "the environment has no CREDENTIALS_DIRECTORY" in refusal(host).message
    error = refusal(host, {"CREDENTIALS_DIRECTORY": str(tmp_path / "none")})
    assert "no such file or directory" in error.message


def test_without_a_source_there_is_no_password() -> None:
    found = credentials(HostConfig(name="db1", socket=SOCKET, user="root"), {})
    assert (found.user, found.password, found.socket, found.password_source) == ("root", None, SOCKET, "")


def test_the_password_is_in_no_repr(write: WriteSecret) -> None:
    path = write("hunter2")
    found = credentials(in_file(path), {})
    assert found.password == "hunter2"
    assert "hunter2" not in f"{found!r} {found}"
    assert found.password_source == f"file {path}"


# --- the server's own option file -------------------------------------------------------------------------------------


def test_an_option_file_gives_user_password_and_socket(write: WriteSecret) -> None:
    path = write("[client]\nuser=dba\npassword='p w'\nsocket=/tmp/s\n[mysqld]\nuser=mysql\n")
    found = credentials(HostConfig(name="db1", defaults_file=path), {})
    assert (found.user, found.password, found.socket) == ("dba", "p w", Path("/tmp/s"))


def test_what_the_configuration_says_goes_before_the_option_file(write: WriteSecret) -> None:
    path = write("[client]\nuser=dba\npassword=p\nsocket=/tmp/s\n")
    here = credentials(HostConfig(name="db1", defaults_file=path, user="backupd", socket=SOCKET), {})
    assert (here.user, here.password, here.socket) == ("backupd", "p", SOCKET)
    far = credentials(HostConfig(name="db1", defaults_file=path, address="db.example"), {})
    assert (far.user, far.socket) == ("dba", None)


def test_an_option_file_that_others_can_read_is_refused(write: WriteSecret) -> None:
    path = write("[client]\nuser=dba\n", mode=0o644)
    assert refusal(HostConfig(name="db1", defaults_file=path)).hint == f"chmod 600 {path}"


def test_an_option_file_that_lacks_what_nobody_else_says_is_refused(write: WriteSecret) -> None:
    path = write("[mysqld]\nuser=mysql\nsocket=/tmp/s\n")
    assert "names a user" in refusal(HostConfig(name="db1", defaults_file=path, socket=SOCKET)).message
    assert "says where the server is" in refusal(HostConfig(name="db1", defaults_file=path, user="u")).message


# Each value is what `my_print_defaults client` of MariaDB 10.11 prints for the line.
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("password=plain", "plain"),
        ("  password  =  spaced out  ", "spaced out"),
        ("password=a#comment", "a"),
        ("password='a#b'", "a#b"),
        ('password="a#b" # comment', "a#b"),
        ("password=a'b#c", "a'b#c"),
        ('password="it\'s"', "it's"),
        ("password='half", "'half"),
        (r"password=a\sb", "a b"),
        (r"password=a\\b", r"a\b"),
        (r"password=a\qb", r"a\qb"),
        (r'password="a\"b"', 'a"b'),
        ("password=;b", ";b"),
        ("password=a=b", "a=b"),
        ("password=50%", "50%"),
        ("password=", ""),
        ("password", ""),
        ("#password=x", None),
        (";password=x", None),
        ("!includedir /etc/mysql/conf.d", None),
    ],
)
def test_an_option_is_read_as_the_servers_own_clients_read_it(line: str, value: str | None) -> None:
    assert client_options(f"[client]\nuser=x\n{line}\n").get("password") == value


def test_of_several_groups_the_last_in_the_file_wins_and_others_do_not_count() -> None:
    text = "[client]\npassword=one\n[client-server] # both\npassword=two\n[mysqldump]\npassword=three\n"
    assert client_options(text) == {"password": "two"}
