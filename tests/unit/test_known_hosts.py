"""A known_hosts file that is parsed once says what it says to ssh: of names, hashed names, patterns and markers."""

import base64
import hmac
from pathlib import Path

import asyncssh
import pytest

from backupd.host.ssh_trust import KnownHostsFile

KEY, OTHER = (asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip() for _number in range(2))


def hashed(name: str) -> str:
    """As `ssh-keygen -H` writes it."""
    salt = bytes(range(20))
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    "text",
    [
        f"db1 {KEY}\ndb2 {OTHER}\n",
        f"[db1]:2222,10.0.0.1 {KEY}\n",
        f"{hashed('db1')} {KEY}\n{hashed('[db1]:2222')} {OTHER}\n",
        f"db*,!db2 {KEY}\n",
        f"db1 {KEY}\n@revoked * {KEY}\n",
        f"@cert-authority *1 {KEY}\n",
        f"10.0.0.0/24 {KEY}\n",
        "",
    ],
    ids=["names", "port and address", "hashed", "patterns", "revoked", "authority", "network", "nothing"],
)
@pytest.mark.parametrize("server", [("db1", "", 22), ("db1", "10.0.0.1", None), ("db1", "", 2222), ("db2", "", 22)])
def test_a_server_is_known_as_asyncssh_knows_it(tmp_path: Path, text: str, server: tuple[str, str, int | None]) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    known = KnownHostsFile(path).read()
    expected = asyncssh.match_known_hosts(text.encode() or b"\n", *server)
    for _ in range(2):
        assert asyncssh.match_known_hosts(known, *server) == expected


def test_a_file_that_another_has_replaced_is_read_again(tmp_path: Path) -> None:
    path, new = tmp_path / "known_hosts", tmp_path / "new"
    path.write_text(f"db1 {KEY}\n")
    file = KnownHostsFile(path)
    before = file.read()
    assert file.read() is before
    new.write_text(f"db1 {OTHER}\n")  # of the same size, and perhaps of the same time
    new.replace(path)
    assert file.read().match("db1", "", None)[0] == [asyncssh.import_public_key(OTHER)]
