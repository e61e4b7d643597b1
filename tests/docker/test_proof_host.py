"""The backups of three machines and three server series are proven unattended, and the broken one is found.

Twenty in `make test-all`; in `make docker-tests` five, two of them of the machine that has the broken one. The servers
are real, and so are their backups, but for the volumes below them. The proof host has a server of each
series in the root of an image, unpacked into a folder as the documentation says it.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import pyrage
import pytest

from backupd.host.run_log import RunLogs
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.operations.upkeep.proofs_read import read_proofs
from backupd.policy.signing import signer_at
from backupd.targets.directory import DirectoryTarget
from backupd.targets.sftp import SftpTarget
from tests.cli.terminal import Ended
from tests.contract.sftp_server import sftp_config, sftp_server
from tests.docker.conftest import answering
from tests.docker.containers import KINDS, ROOT
from tests.docker.machines import DatabaseHost
from tests.servers.sshd import SshServer
from tests.share import seeded
from tests.story.test_proof_hosts import Told

__all__ = ["sftp_server"]

BACKUPS = seeded(20, usual=5)
OF_THE_DAMAGED = len(range(1, BACKUPS, 3))  # backups of the second of three machines in turn
BROKEN = "r2"
ROOT_PAGE = 3  # of a table's first index


@pytest.fixture(scope="module")
def roots(start: Callable[..., None]) -> Iterator[dict[str, Path]]:
    """The root of an image of each kind, where every user can enter it; by the lines of the documentation."""
    start(*KINDS)
    page = (ROOT / "docs/pages/proof-host.md").read_text()
    lines = next(block for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "docker export" in block)
    script = "\n".join(line.removeprefix("$ ") for line in lines.splitlines())
    with tempfile.TemporaryDirectory(prefix="bk-roots-") as folder:
        Path(folder).chmod(0o755)
        for kind in KINDS:
            here = script.replace("/opt/mysql-8.4", f"{folder}/{kind}").replace("mysql:8.4", f"backupd-server:{kind}")
            subprocess.run(["sh", "-eux", "-c", here], check=True, capture_output=True, text=True, timeout=300)
            privileged = ["(", "-perm", "/6000", "-o", "!", "-uid", str(os.geteuid()), ")", "!", "-type", "l"]
            argv = ["find", f"{folder}/{kind}", *privileged]
            found = subprocess.run(argv, check=True, capture_output=True, text=True)
            assert found.stdout == "", "programs of an image have rights on this host"
        yield {kind: Path(folder) / kind for kind in KINDS}


@dataclass
class Fleet:
    """Three machines, and what their backups are encrypted for."""

    hosts: tuple[DatabaseHost, ...]
    identity: pyrage.x25519.Identity

    @property
    def damaged(self) -> DatabaseHost:
        """The machine with MariaDB 11."""
        return self.hosts[1]

    def back_up(self) -> None:
        """In turn; between two backups of a machine each table but one gets a row."""
        recipient = str(self.identity.to_public())
        for number, host in zip(range(BACKUPS), cycle(self.hosts), strict=False):
            run_id = f"r{number // len(self.hosts) + 1}"
            with host.server.session() as session:
                for engine in host.server.engines()[1:]:
                    session.execute(f"INSERT INTO t.{engine} (v) VALUES ('one more')")
            if host is self.damaged and run_id == BROKEN:
                host.volumes.lost["t/innodb.ibd"] = ROOT_PAGE
            host.store(run_id, recipient=recipient)

    def learn(self, signer: str) -> tuple[Counter[bool], list[str], list[tuple[str, str]]]:
        """What the machines find beside their backups: results, runs that failed, and what people are told of which."""
        results: Counter[bool] = Counter()
        failed, told = [], Told()
        for host in self.hosts:
            with host.catalogue() as catalogue:
                answers = FailureAnswers(RunLogs(Path("/nowhere")), "", lambda _job, _activity: None)
                read_proofs("nightly", [host.target], catalogue, frozenset({signer}), told, answers=answers)
                for run in catalogue.runs():
                    results.update(drill.ok for drill in run.drills)
                    failed += [f"{run.machine} {run.run_id}" for drill in run.drills if not drill.ok]
        return results, failed, [(notice.subject, notice.text) for notice in told.notices]


@dataclass
class Proving:
    """A proof host, whose configuration is written anew before each command."""

    folder: Path
    targets: str  # their tables

    @property
    def key(self) -> str:
        return signer_at(self.folder / "own" / "signing.key").public

    @property
    def left(self) -> list[Path]:
        """What drills have left."""
        return list((self.folder / "staging").glob("*"))

    def run(self, *words: str, servers: Iterable[Path], prove: str = "") -> Ended:
        """`backupd prove WORDS…` with these folders of servers."""
        folder, listed = self.folder, ", ".join(f'"{path}"' for path in servers)
        path = folder / "backupd.toml"
        path.write_text(
            f"""
            catalogue.path = "{folder}/own/catalogue.sqlite"
            paths = {{ run = "{folder}/run", staging = "{folder}/staging", log = "{folder}/log" }}
            {self.targets}
            [prove]
            identity_file = "{folder}/identity.txt"
            servers = [{listed}]
            {prove}
            """
        )
        argv = [sys.executable, "-m", "backupd", "--config", str(path), "prove", *words]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
        return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def fleet(
    path_in_memory: Path,
    start: Callable[..., None],
    docker_compose_project_name: str,
    servers: Path,
    sftp_server: SshServer,
) -> Fleet:
    """Two of the machines store in one folder, the third by SFTP."""
    tmp_path = path_in_memory
    vault, store = tmp_path / "vault", tmp_path / "store"
    vault.mkdir()
    store.mkdir()
    hosts = []
    start(*KINDS)
    for number, kind in enumerate(KINDS, 1):
        server = answering(kind, kind, docker_compose_project_name, servers)
        server.add_tables()
        host = DatabaseHost(tmp_path / kind, f"db{number}", server)
        host.stored_on = DirectoryTarget("vault", vault, machine=host.name)
        hosts.append(host)
    hosts[2].stored_on = SftpTarget(sftp_config(sftp_server, store), machine=hosts[2].name)
    fleet = Fleet(tuple(hosts), pyrage.x25519.Identity.generate())
    fleet.damaged.server.restart()  # so that no redo log has its pages any more
    return fleet


@pytest.fixture
def proving(path_in_memory: Path, fleet: Fleet, sftp_server: SshServer) -> Proving:
    """The only machine with the identity."""
    folder = path_in_memory / "proving"
    folder.mkdir()
    identity = folder / "identity.txt"
    identity.touch(0o600)
    identity.write_text(f"{fleet.identity}\n")
    return Proving(
        folder,
        f"""
            [targets.vault]
            type = "directory"
            path = "{path_in_memory}/vault"
            [targets.store]
            type = "sftp"
            address = "{sftp_server.address}"
            port = {sftp_server.port}
            user = "{sftp_server.user}"
            path = "{path_in_memory}/store"
            key_file = "{sftp_server.key_file}"
            known_hosts = "{sftp_server.known_hosts}"
        """,
    )


def dark_now() -> str:
    """A blackout of this hour and the next."""
    hour = datetime.now(UTC).hour
    return f'zone = "UTC"\nblackout = ["{hour:02}:00-{(hour + 2) % 24:02}:00"]'


def outcomes(ended: Ended) -> Counter[str]:
    """How often each was said of a copy."""
    return Counter(line.partition(":")[0] for line in ended.stdout.splitlines())


def test_backups_of_three_machines_and_series_are_proven_unattended_and_the_broken_one_is_found(
    fleet: Fleet, proving: Proving, roots: dict[str, Path]
) -> None:
    fleet.back_up()

    ended = proving.run("--all", servers=roots.values(), prove=dark_now())
    assert (ended.status, outcomes(ended)) == (0, {"no drill may begin now (prove.blackout)": 1}), ended.stderr

    without = [root for kind, root in roots.items() if kind != "mariadb-11"]
    ended = proving.run("--all", servers=without)
    assert (ended.status, outcomes(ended)) == (
        6,
        {"proven": BACKUPS - OF_THE_DAMAGED, "not drilled": OF_THE_DAMAGED},
    ), ended.stdout + ended.stderr
    assert "no mariadb 11.8 server is installed here" in ended.stdout

    ended = proving.run("--limit", str(OF_THE_DAMAGED), servers=roots.values())
    assert (ended.status, outcomes(ended)) == (9, {"proven": OF_THE_DAMAGED - 1, "NOT proven": 1}), (
        ended.stdout + ended.stderr
    )
    assert proving.left == []

    name = fleet.damaged.name
    results, failed, told = fleet.learn(proving.key)
    assert (results, failed) == ({True: BACKUPS - 1, False: 1}, [f"{name} {BROKEN}"])
    assert [subject for subject, _ in told] == [f"drill {BROKEN}"]
    assert fleet.learn(proving.key)[2] == []
