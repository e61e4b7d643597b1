"""Whatever happens to machines that share their targets, nothing of another one is touched and nothing whole is lost.

What happened in the histories of a session is printed at its end (`conftest`). `make campaign` makes more of them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.targets.directory import DirectoryTarget
from backupd.targets.s3 import S3Target
from backupd.targets.sftp import SftpTarget
from tests.contract.s3_server import s3_config, s3_service
from tests.contract.sftp_server import sftp_config, sftp_server
from tests.servers.s3server import BUCKET, S3Service
from tests.servers.sshd import SshServer
from tests.share import seeded
from tests.story.machines_world import COUNTED, InFolder, Storage, run_histories

__all__ = ["s3_service", "sftp_server"]

HISTORIES = 1000
SHARDS = 20  # tests that run side by side
EACH = seeded(HISTORIES // SHARDS, usual=3)
ON_SERVERS = 12


Told = Callable[[str, object], None]


@pytest.mark.thorough
def test_a_few_histories(tmp_path: Path) -> None:
    assert run_histories(tmp_path, range(HISTORIES, HISTORIES + 8))["histories"] == 8


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_thousand_histories(tmp_path: Path, record_property: Told, shard: int) -> None:
    """Of each shard's fifty the first five, unless all of what comes from a seed is tried."""
    begin = shard * (HISTORIES // SHARDS)
    counted = run_histories(tmp_path, range(begin, begin + EACH))
    record_property(COUNTED, dict(counted))
    assert (counted["histories"], counted["violations"]) == (EACH, 0)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_histories_on_a_folder_an_sftp_and_an_s3_server(
    tmp_path: Path, record_property: Told, sftp_server: SshServer, s3_service: S3Service
) -> None:
    def storages(seed: int) -> dict[str, Storage]:
        folder = tmp_path / "shared" / f"{len(made)}"
        folder.mkdir(parents=True)
        made.append(folder)
        if seed % 3 == 0:
            return {"vault": InFolder(folder, lambda machine: DirectoryTarget("vault", folder, machine=machine))}
        if seed % 3 == 1:
            return {
                "store": InFolder(folder, lambda machine: SftpTarget(sftp_config(sftp_server, folder), machine=machine))
            }
        config = s3_config(s3_service)
        objects = s3_service.folder / BUCKET / config.prefix
        return {"store": InFolder(objects, lambda machine: S3Target(config, machine=machine))}

    made: list[Path] = []
    counted = run_histories(tmp_path, range(ON_SERVERS), storages)
    record_property(COUNTED, dict(counted))
    assert (counted["histories"], counted["violations"]) == (ON_SERVERS, 0)
