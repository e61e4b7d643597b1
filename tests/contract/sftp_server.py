"""A real OpenSSH server for the tests of the SFTP target. That there is none is an error, not a skip."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.config import SftpConfig, TargetKind
from backupd.targets.outages import Patience
from backupd.targets.sftp import SftpTarget
from tests.fakes.target import MACHINE
from tests.servers.sshd import SshServer, serving

IMPATIENT = Patience(tries=4, first_seconds=0.001, most_seconds=0.01)


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def sftp_config(
    server: SshServer,
    path: Path,
    *,
    port: int | None = None,
    timeout_seconds: float = 20.0,
    sentinel: str | None = None,
) -> SftpConfig:
    """A target of this server's in this folder; through this port of a proxy's, where one is named."""
    return SftpConfig(
        name="store",
        type=TargetKind.SFTP,
        address=server.address,
        port=port or server.port,
        user=server.user,
        path=path,
        key_file=server.key_file,
        known_hosts=server.known_hosts,
        sentinel=sentinel,
        timeout_seconds=timeout_seconds,
        outage_seconds=0.001,
    )


def sftp_target(config: SftpConfig) -> SftpTarget:
    return SftpTarget(config, machine=MACHINE, patience=IMPATIENT)
