"""Option files are stored as the server reads them, but for their secrets."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.archive.options import option_files, without_secrets
from backupd.vocabulary.errors import ConfigurationError
from tests.share import examples

CANARY = "hunter2Canary"

SECRET_NAMES = (
    "password",
    "passwd",
    "pass",
    "pas",
    "password1",
    "master_password",
    "source-password",
    "report-password",
    "wsrep_sst_auth",
    "plugin-authentication_x-password",
    "plugin-sha256_password-password",
    "s3_secret_key",
    "s3-access-key",
    "encrypt-key",
    "hashicorp-key-management-token",
    "keyring_hashicorp_secret_id",
    "file_key_management_filekey",
    "ssl_passphrase",
)
HARMLESS_LINES = (
    "[mariadbd]",
    "ssl_key = /etc/mysql/server-key.pem",
    "loose-ssl-key=server-key.pem",
    "file-key-management-filekey = FILE:/etc/mysql/keyfile",
    "sha256_password_private_key_path=key.pem",
    "validate_password.policy = STRONG",
    "plugin-load-add = simple_password_check",
    "plugin_load = validate_password=validate_password.so",
    "default_authentication_plugin = mysql_native_password",
    "# default_authentication_plugin = mysql_native_password",
    "default_password_lifetime=90",
    "innodb_ft_max_token_size=84",
    "key_buffer_size = 16M",
    "sql_require_primary_key = ON",
    "password",  # asks for it
    "password =",
    "bind-address = 127.0.0.1:3306",
    "wsrep_cluster_address = gcomm://10.0.0.1,10.0.0.2",
    "# * Basic Settings",
    "!includedir /etc/mysql/conf.d/",
    "caf\xe9 = \xff",
    "",
)


def stored(*paths: Path) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(option_files(paths))) as archive:
        files = {f"/{member.name}": archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


@pytest.mark.parametrize(
    "line",
    [
        f"password={CANARY}",
        f'PASSWORD = "{CANARY}"',
        f"  loose_master-password\t=\t{CANARY}",
        f"set-variable = master_password={CANARY}",
        f"wsrep_sst_auth = backup:{CANARY}",
        f"# password = {CANARY}",
        f";pass={CANARY}",
        f"#the password of root is {CANARY}",
        f"# secret: {CANARY}",
        f"user = backup # password {CANARY}",
        f"password {CANARY}",
        f"init_connect = \"SET PASSWORD FOR x = '{CANARY}'\"",
        f"init_connect = \"CREATE USER x IDENTIFIED BY '{CANARY}'\"",
        f'wsrep_provider_options = "gcache.size=1G; socket.password={CANARY}"',
        f"proxy = http://user:{CANARY}@proxy.example.com/",
        f"file-key-management-filekey = {CANARY}",
        f"password = FILE:{CANARY}",
        f"\xef\xbb\xbfpassword = {CANARY}",
        f"password = \r{CANARY}",
    ],
)
def test_a_line_with_a_secret_becomes_a_comment_that_says_so(line: str) -> None:
    content = without_secrets(f"[client]\r\n{line}\r\nuser = backup\n".encode("latin-1"))
    lines = content.split(b"\n")
    assert CANARY.encode() not in content
    assert (lines[0], lines[2:]) == (b"[client]\r", [b"user = backup", b""])
    assert lines[1].startswith(b"# ")
    assert lines[1].endswith(b"removed by backupd, for it held a secret\r")


def test_the_comment_names_the_option_so_that_it_can_be_put_back() -> None:
    assert without_secrets(b"report-password = x\n").startswith(b"# report-password: removed")


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_a_line_about_secrets_that_holds_none_is_kept(line: str) -> None:
    content = f"{line}\n".encode("latin-1")
    assert without_secrets(content) == content


BLANKS = st.sampled_from(["", " ", "\t", "   "])


@st.composite
def secret_lines(draw: st.DrawFn) -> str:
    """A setting whose value is the canary, as somebody may have written it."""
    name = draw(st.sampled_from(SECRET_NAMES))
    name = "".join(draw(st.sampled_from([c.lower(), c.upper()] if c not in "-_" else ["-", "_"])) for c in name)
    before = draw(st.sampled_from(["", "loose-", "loose_", "#", "# ", ";", "set-variable = ", "set-variable="]))
    quote = draw(st.sampled_from(["", "'", '"']))
    value = draw(st.sampled_from(["{}", "a{}", "{}#b", "/{}", "user:{}", "{}=="])).format(CANARY)
    blanks = [draw(BLANKS) for _ in range(4)]
    return f"{blanks[0]}{before}{name}{blanks[1]}={blanks[2]}{quote}{value}{quote}{blanks[3]}"


@settings(max_examples=examples(30))
@given(
    lines=st.lists(st.one_of(st.sampled_from(HARMLESS_LINES), secret_lines())),
    end=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
)
def test_no_secret_is_left_and_every_other_byte_is_as_it_was(lines: list[str], end: str, closed: bool) -> None:
    content = (end.join(lines) + (end if closed and lines else "")).encode("latin-1")
    kept = without_secrets(content)
    assert CANARY.encode() not in kept
    before, after = content.split(b"\n"), kept.split(b"\n")
    assert len(before) == len(after)
    assert [(b, a) for b, a in zip(before, after, strict=True) if CANARY.encode() not in b and a != b] == []


@given(st.binary(max_size=400))
def test_any_bytes_are_read_and_lines_are_neither_added_nor_lost(content: bytes) -> None:
    assert without_secrets(content).count(b"\n") == content.count(b"\n")


def test_included_files_are_followed_as_the_server_does(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    (folder / "deeper.cnf").mkdir(parents=True)
    main = tmp_path / "my.cnf"
    main.write_text(
        f"[client]\n  !includedir {folder}/ \n! include {tmp_path}/extra.ini\n!include {tmp_path}/none.cnf\n"
    )
    (folder / "b.cnf").write_text(f"[client]\npassword = {CANARY}\n!include {main}\n!includedir {folder}\n")
    (folder / "a.cnf").write_text("[mariadbd]\nport = 3307\n")
    (folder / "a.cnf.bak").write_text("old")
    (folder / "deeper.cnf" / "c.cnf").write_text("[mariadbd]\n")
    (tmp_path / "extra.ini").write_text("[mariadbd]\nsocket = s\n")
    found = stored(main, main)
    assert list(found) == [str(p) for p in (main, folder / "a.cnf", folder / "b.cnf", tmp_path / "extra.ini")]
    assert found[str(main)] == main.read_bytes()
    assert CANARY.encode() not in b"".join(found.values())


def test_the_stored_files_are_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "my.cnf").write_text("[client]\n")
    with tarfile.open(fileobj=io.BytesIO(option_files([tmp_path / "my.cnf"]))) as archive:
        (member,) = archive
    assert (member.mode, member.uid, member.name[0] != "/") == (0o600, 0, True)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*my.cnf: no such file") as caught:
        option_files([tmp_path / "my.cnf"])
    assert caught.value.hint


def test_what_is_no_option_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        option_files([tmp_path / "fifo"])
    with pytest.raises(ConfigurationError, match="is a directory"):
        option_files([tmp_path])
    (tmp_path / "disk").touch()
    os.truncate(tmp_path / "disk", 2 << 20)
    with pytest.raises(ConfigurationError, match="larger than 1 MiB"):
        option_files([tmp_path / "disk"])
