"""A server that keeps its keys by MySQL's keyring component: what it encrypted is proven, its keyring untouched."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.lab.servers import SOFTWARE
from backupd.mysql.keyring import plugin_folder
from tests.lab.inside.host import GATE_OFF, SERVER, SITE, Host

COMPONENT = "component_keyring_file"
WORDS = b"nobody reads this in a file of the server"
PROGRAM = SOFTWARE[SERVER].program


def restarted(host: Host) -> None:
    host.kill_server()
    host.start_server()


@pytest.fixture
def keyring(host: Host) -> Iterator[Path]:
    """The file of the live server's keys; one table is encrypted with them."""
    program = shutil.which(PROGRAM)
    assert program is not None
    folder = SITE.state / "keys"
    folder.mkdir()
    owner = SITE.mount_point.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    file = folder / "keyring"
    said = {
        Path(program).with_name("mysqld.my"): {"components": f"file://{COMPONENT}"},
        plugin_folder(program) / f"{COMPONENT}.cnf": {"path": str(file), "read_only": False},
    }
    for path, words in said.items():
        path.write_text(json.dumps(words))
    try:
        restarted(host)
        host.sql("CREATE TABLE sbtest.secret (id INT PRIMARY KEY, said TEXT) ENCRYPTION = 'Y'")
        host.sql(f"INSERT INTO sbtest.secret VALUES (1, '{WORDS.decode()}')")
        yield file
        host.sql("DROP TABLE sbtest.secret")
    finally:
        for path in said:
            path.unlink()
        restarted(host)
        shutil.rmtree(folder)


def test_an_encrypted_table_is_proven_with_a_copy_of_the_keyring(host: Host, keyring: Path) -> None:
    run = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
    before = keyring.stat().st_mtime_ns, keyring.read_bytes()
    drilled = host.backupd("drill", run, "--json", changes=GATE_OFF).document
    assert drilled["checks"]
    assert [check for check in drilled["checks"] if not check["ok"]] == []
    assert (keyring.stat().st_mtime_ns, keyring.read_bytes()) == before
    restored = SITE.state / "secret"  # the machine's /tmp is memory
    host.backupd("restore", run, "--to", str(restored))
    try:
        (table,) = restored.rglob("sbtest/secret.ibd")
        assert WORDS not in table.read_bytes()
    finally:
        shutil.rmtree(restored)


def test_without_the_keyring_nothing_is_called_proven(host: Host, keyring: Path) -> None:
    run = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
    away = keyring.with_name("away")
    keyring.rename(away)
    try:
        ended = host.backupd("drill", run, "--json", changes=GATE_OFF, expect=5)
    finally:
        away.rename(keyring)
    assert f"the keyring {keyring}" in ended.stderr
    assert "hint: " in ended.stderr
