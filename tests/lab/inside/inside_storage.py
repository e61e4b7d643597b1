"""One run to a folder, an SFTP server and an S3 server, encrypted: read back, restored and proven from each of them."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import SITE, Ended, Host, stored, tool, until
from tests.lab.inside.stores import STORES, Stores
from tests.lab.inside.trees import Tree, remove, tree_of

USAGE = 2
RESTORED = SITE.state / "restored"
SOCKET = SITE.runtime / "later.sock"


@contextmanager
def restored(host: Host, stores: Stores, *words: str) -> Iterator[Ended]:
    """`backupd restore` with the key; what it made is gone after the block."""
    try:
        opened = ("--to", str(RESTORED), "--identity", str(stores.identity))
        yield host.backupd("restore", *words, *opened, changes=stores.changes)
    finally:
        remove(RESTORED)


def test_one_read_of_the_snapshot_left_the_same_objects_on_all_three(sent: dict[str, Any], stores: Stores) -> None:
    assert sent["status"] == "success"
    copies = stores.of(sent["run_id"])
    assert tuple(copies) == STORES
    assert copies["store"] == copies["offsite"] == copies["bucket"]
    assert {"data-1.tar.zst.age", "data-2.tar.zst.age", "binlog.tar.zst.age", "manifest.json"} <= set(copies["store"])
    assert stores.uploads() == []


def test_nothing_but_the_manifest_can_be_read_without_the_key(sent: dict[str, Any], stores: Stores) -> None:
    assert stores.readable(sent["run_id"]) == []
    manifest = (stored(stores.folders["store"], sent["run_id"]) / "manifest.json").read_text()
    assert "sbtest1" not in manifest


@pytest.mark.parametrize("store", STORES)
def test_every_copy_is_verified_without_a_key(host: Host, sent: dict[str, Any], stores: Stores, store: str) -> None:
    host.backupd("verify", sent["run_id"], "--target", store, changes=stores.changes)
    host.backupd("verify", sent["run_id"], "--target", store, "--sample", "5%", changes=stores.changes)


@pytest.mark.parametrize("store", STORES)
def test_every_copy_restores_to_the_same_files(
    host: Host, sent: dict[str, Any], stores: Stores, unpacked: Tree, store: str
) -> None:
    with restored(host, stores, sent["run_id"], "--target", store):
        found = tree_of(RESTORED)
    assert [path for path in found if Path(path).name == "ibdata1"]
    assert {path: entry for path, entry in found.items() if path in unpacked} == unpacked


@pytest.mark.matrix
def test_nobody_without_the_right_key_gets_a_file(host: Host, sent: dict[str, Any], stores: Stores) -> None:
    other = stores.identity.with_name("other")
    tool("age-keygen", "-o", str(other))
    for words in ((), ("--identity", str(other))):
        refused = host.backupd(
            "restore", sent["run_id"], "--to", str(RESTORED), *words, changes=stores.changes, expect=USAGE
        )
        assert "hint: " in refused.stderr
        assert not RESTORED.exists()


def test_a_drill_takes_the_newest_backup_that_nobody_has_proven(
    host: Host, sent: dict[str, Any], stores: Stores
) -> None:
    words = ("drill", "--target", "bucket", "--identity", str(stores.identity), "--json")
    document = host.backupd(*words, changes=stores.changes).document
    assert (document["run_id"], document["status"]) == (sent["run_id"], "proven")
    shown = host.backupd("show", sent["run_id"], "--json", changes=stores.changes).document
    assert [drill["status"] for drill in shown["drills"]] == ["proven"]


@pytest.mark.matrix
def test_single_tables_are_restored_without_the_others(host: Host, sent: dict[str, Any], stores: Stores) -> None:
    with restored(host, stores, sent["run_id"], "--tables", "sbtest.sbtest1"):
        schema = {path.name for path in RESTORED.rglob("sbtest*/*") if path.is_file()}
    assert "sbtest1.ibd" in schema
    assert not {name for name in schema if name.startswith(("heartbeat", "myisam_log"))}


def test_a_restored_copy_is_brought_to_a_later_moment_by_what_restore_prints(
    host: Host, sent: dict[str, Any], stores: Stores
) -> None:
    with restored(host, stores, sent["run_id"], "--prepare-replica") as ended:
        steps = (RESTORED / "replica.sql").read_text()
        assert "CHANGE MASTER TO" in steps
        assert steps.strip() in ended.stdout
        host.sql("CREATE TABLE sbtest.later (n INT PRIMARY KEY); INSERT INTO sbtest.later VALUES (42)")
        host.sql("FLUSH BINARY LOGS")
        replay = told(steps, r"(?m)^--   (mariadb-binlog .*)$")
        try:
            with server_on(Path(told(ended.stdout, r"datadir (\S+)")), log_bin=told(steps, r"log_bin=(\S+),")):
                replay_into_it(replay)
                found = tool(*client(), "--execute=SELECT n FROM sbtest.later").split()
        finally:
            host.sql("DROP TABLE sbtest.later")
    assert found == ["42"]


def told(text: str, pattern: str) -> str:
    """What a pattern's group finds."""
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def replay_into_it(line: str) -> None:
    """The line that restore prints, with what is left to a person filled in."""
    first = told(line, r"' (\S+) NEXT-BINLOG")
    binlogs = sorted(path.name for path in SITE.datadir.glob(f"{first.rpartition('.')[0]}.[0-9]*"))
    later = " ".join(name for name in binlogs if name > first)
    filled = line.replace("YYYY-MM-DD hh:mm:ss", "2037-01-01 00:00:00").replace("NEXT-BINLOG…", later)
    filled = filled.replace("| mariadb", f"| {' '.join(client())}")
    tool("bash", "-c", f"set -o pipefail; cd {SITE.datadir} && {filled}")


def client() -> tuple[str, ...]:
    return ("mariadb", "--no-defaults", f"--socket={SOCKET}", "--batch", "--skip-column-names")


@contextmanager
def server_on(datadir: Path, *, log_bin: str) -> Iterator[None]:
    """A server on a restored datadir, as a person starts it, for whoever may enter the lab's folder."""
    argv = [
        *("mariadbd", "--no-defaults", "--user=root", f"--datadir={datadir}", f"--log-bin={log_bin}"),
        *(f"--socket={SOCKET}", f"--pid-file={SITE.runtime}/later.pid", f"--log-error={SITE.runtime}/later.err"),
        *("--skip-networking", "--skip-grant-tables", "--skip-slave-start", "--server-id=77"),
        *("--innodb-buffer-pool-size=32M", "--loose-innodb-buffer-pool-size-max=128M", "--performance-schema=OFF"),
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: SOCKET.exists() or process.poll() is not None)
            assert process.poll() is None, (SITE.runtime / "later.err").read_text()
            yield
        finally:
            process.kill()
