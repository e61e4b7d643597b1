"""Three real stores in the machine, a folder, an OpenSSH server and an S3 server, and an age key for what is sent.

Knows: how they are started and configured, and what lies on them now, asked without backupd. Refuses to know what a
backup should hold.
"""

import hashlib
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.inside.host import GATE_OFF, SITE, Changes, stored, tool
from tests.lab.inside.trees import Tree, tree_of
from tests.servers import s3server, sshd

STORES = ("store", "offsite", "bucket")  # the lab's own folder, SFTP, S3
_HEADER = b"age-encryption.org/v1\n"


@dataclass(frozen=True)
class Stores:
    """Where each store keeps its files, and what a configuration needs to reach them."""

    folders: dict[str, Path]  # a run lies in FOLDER/MACHINE/JOB/RUN
    identity: Path
    service: s3server.S3Service
    changes: Changes = field(repr=False)

    def of(self, run_id: str, job: str = "nightly") -> dict[str, dict[str, str]]:
        """The digest of every file of a run that has its final name, by store; a store without any is left out."""
        found = {name: _digests(stored(folder, run_id, job)) for name, folder in self.folders.items()}
        return {name: digests for name, digests in found.items() if digests}

    def uploads(self) -> list[str]:
        """Keys of the multipart uploads that the bucket still has."""
        client = self._client()
        return [upload["Key"] for upload in client.list_multipart_uploads(Bucket=s3server.BUCKET).get("Uploads", [])]

    def readable(self, run_id: str) -> list[str]:
        """Objects in the folder, apart from the manifest, that anybody could read."""
        objects = (path for path in stored(self.folders["store"], run_id).iterdir() if path.suffix != ".json")
        return [path.name for path in objects if not path.read_bytes().startswith(_HEADER)]

    def unpacked_by_hand(self, run_id: str, to: Path) -> Tree:
        """What `age -d | zstd -d | tar -x` make of the data and the binlog in the folder."""
        to.mkdir()
        for found in sorted(stored(self.folders["store"], run_id).glob("*.tar.zst.age")):
            if found.name.startswith(("data-", "binlog")):
                piped = f"age -d -i {self.identity} {found} | zstd -dcq | tar -x -C {to}"
                tool("bash", "-c", f"set -o pipefail; {piped}")
        return tree_of(to)

    def _client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.service.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.service.access_key,
            aws_secret_access_key=self.service.secret_key,
        )


@contextmanager
def three_stores(folder: Path) -> Iterator[Stores]:
    """The lab's own job goes to all three of them, encrypted; the servers run for the length of the block."""
    folder.mkdir(parents=True)
    identity, credentials, away = folder / "identity", folder / "credentials", folder / "sftp"
    away.mkdir()
    tool("age-keygen", "-o", str(identity))
    with ExitStack() as owed:
        ssh = owed.enter_context(sshd.serving(folder / "ssh"))
        service = owed.enter_context(s3server.serving(folder / "s3"))
        service.write_credentials(credentials)
        yield Stores(
            folders={"store": SITE.backups, "offsite": away, "bucket": service.folder / s3server.BUCKET},
            identity=identity,
            service=service,
            changes={
                **GATE_OFF,
                **target_changes(ssh.configuration("offsite", away)),
                **target_changes(service.configuration("bucket", credentials)),
                "jobs.nightly.targets": list(STORES),
                "jobs.nightly.copy.streams": 2,
                "jobs.nightly.encryption.recipients": [recipient_of(identity)],
            },
        )


def target_changes(table: str) -> Changes:
    """A `[targets.NAME]` table as changes of the lab's configuration."""
    targets = tomllib.loads(table)["targets"]
    return {f"targets.{name}.{key}": value for name, target in targets.items() for key, value in target.items()}


def recipient_of(identity: Path) -> str:
    """The public key that belongs to it."""
    return tool("age-keygen", "-y", str(identity)).strip()


def flip(path: Path) -> None:
    """One bit in the middle of a file; doing it again mends that."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def _digests(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    files = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
