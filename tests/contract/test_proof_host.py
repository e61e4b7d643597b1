"""A proof host drills the encrypted backups of two machines on a server of its own: the broken one is found, and told.

Thorough: each drill restores a datadir and starts a real server on it, within its bounds.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyrage
import pytest

from backupd import wiring
from backupd.archive.index import written
from backupd.catalogue.store import Catalogue
from backupd.config import load
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy.signing import signer_at
from backupd.targets.directory import DirectoryTarget
from tests.cli.terminal import Ended
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_scratch import Image, taken
from tests.fakes.target import BELIEVED
from tests.story import stored

pytestmark = pytest.mark.thorough

__all__ = ["mysql_server"]

BROKEN, MACHINES = "r2", ("db1-0a1b2c3d", "db2-0a1b2c3e")


def stream_of(datadir: Path) -> list[tuple[str, bytes | str]]:
    """The datadir as a backup stores it; the folder of the server itself is `data/`."""
    found: list[tuple[str, bytes | str]] = [("./", b""), ("data/", b"")]
    for path in sorted(datadir.rglob("*")):
        name = f"data/{path.relative_to(datadir)}"
        found.append((f"{name}/", b"") if path.is_dir() else (name, path.read_bytes()))
    return found


def put(image: Image, vault: Path, machine: str, run_id: str, recipient: str, *, broken: bool) -> None:
    """A finished, encrypted backup; the broken one was made of a damaged datadir, and every digest is right."""
    files = stream_of(image.datadir)
    if broken:
        files = [(name, b"\0" * len(data) if name == "data/ibdata1" else data) for name, data in files]
    target = DirectoryTarget("vault", vault, machine=machine)
    plain, lines = stored.tar(files)
    count = sum(not name.endswith("/") for name, _ in files)
    index = b"".join(written({"data-1.tar.zst": lines}))
    packings = (
        stored.stored("data-1.tar.zst", plain, count, recipients=[recipient]),
        stored.stored("index.jsonl.zst", index, 0, recipients=[recipient]),
    )
    objects = {told: packed for packed, told in packings}
    for told, packed in objects.items():
        with target.writing("nightly", run_id, told.name) as writer:
            writer.write(packed)
    target.publish(
        replace(
            image.manifest,
            run_id=run_id,
            machine=machine,
            objects=tuple(objects),
            canary=None,
            recipients=(recipient,),
            created_at=datetime.now(UTC) - timedelta(minutes=1),
        )
    )


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that every user can enter, as the drill's does; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(prefix="bk-server-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def host(mysql_server: MariadbServer, tmp_path: Path, anybodys: Path) -> Path:
    """The configuration of a proof host whose only server is in a folder of its own; backups lie in its `vault`."""
    identity = pyrage.x25519.Identity.generate()
    key = tmp_path / "identity.txt"
    key.touch(0o600)
    key.write_text(f"{identity}\n")
    vault = tmp_path / "vault"
    vault.mkdir()
    image = taken(mysql_server, tmp_path / "image")
    for machine, run_id in ((MACHINES[0], "r1"), (MACHINES[0], BROKEN), (MACHINES[1], "r3")):
        put(image, vault, machine, run_id, str(identity.to_public()), broken=run_id == BROKEN)
    server = anybodys / "usr" / "sbin"
    server.mkdir(parents=True)
    program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
    assert program is not None
    shutil.copy(program, server / "mariadbd")
    (anybodys / "usr" / "share").symlink_to("/usr/share")
    path = tmp_path / "backupd.toml"
    path.write_text(f"""
        [catalogue]
        path = "{tmp_path}/own/catalogue.sqlite"
        [paths]
        run = "{tmp_path}/run"
        staging = "{tmp_path}/staging"
        log = "{tmp_path}/log"
        [targets.vault]
        type = "directory"
        path = "{vault}"
        [prove]
        identity_file = "{key}"
        servers = ["{anybodys}"]
        [prove.checks.schemas]
        job = "nightly"
        machine = "{MACHINES[1]}"
        sql = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'mysql'"
        equals = "1"
    """)
    return path


def run(configuration: Path, *words: str) -> Ended:
    """`backupd WORDS…`, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "backupd", "--config", str(configuration), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_three_backups_of_two_machines_are_proven_unattended_and_the_broken_one_is_found(
    host: Path, tmp_path: Path
) -> None:
    ended = run(host, "prove", "--all")
    lines = ended.stdout.splitlines()
    assert ended.status == 9, ended.stderr
    assert sorted(line.partition(":")[0] for line in lines) == ["NOT proven", "proven", "proven"], ended.stdout
    (wrong,) = [line for line in lines if line.startswith("NOT proven")]
    assert f"run {BROKEN} of job nightly of machine {MACHINES[0]} on target vault" in wrong
    assert list((tmp_path / "staging").iterdir()) == []
    key = signer_at(tmp_path / "own" / "signing.key").public
    drills: dict[str, list[bool]] = {}
    own: dict[str, list[tuple[str, bool, str]]] = {}
    for machine in MACHINES:
        target = wiring.target(load(host), "vault", machine)
        with Catalogue.open(tmp_path / machine / "catalogue.sqlite") as catalogue:
            rebuild(target, catalogue, BELIEVED, proof_keys=frozenset({key})).require_complete()
            for one in catalogue.runs():
                drills[one.run_id] = [drill.ok for drill in one.drills]
                asked = [check for drill in one.drills for check in drill.checks if check.asked]
                own[one.run_id] = [(check.name, check.ok, check.found) for check in asked]
    assert drills == {"r1": [True], BROKEN: [False], "r3": [True]}
    assert own == {"r1": [], BROKEN: [], "r3": [("checks.schemas", True, "1")]}


def test_a_server_program_that_the_drill_s_user_may_not_execute_is_passed_over(host: Path, anybodys: Path) -> None:
    (anybodys / "usr").chmod(0o700)
    ended = run(host, "prove")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.startswith("proven: run ")  # on this host's own
