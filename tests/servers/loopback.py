"""Targets elsewhere that are here: real servers on the loopback interface, and a target of each.

Refuses to know what is stored on them. The adapters are loaded when one is made.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from backupd.config import S3Config, SftpConfig, TargetKind
from backupd.targets import Target
from tests.servers import s3server, sshd

MACHINE = "lab-00000000"


@contextmanager
def sftp(folder: Path) -> Iterator[Target]:
    """OpenSSH's server for the length of the block; what is stored lies in `folder`.

    Raises:
        LabError: there is no sshd, or it does not start.
    """
    from backupd.targets.sftp import SftpTarget

    (folder / "stored").mkdir(parents=True)
    with sshd.serving(folder / "keys") as server:
        target = SftpTarget(
            SftpConfig(
                name="sftp",
                type=TargetKind.SFTP,
                address=server.address,
                port=server.port,
                user=server.user,
                path=folder / "stored",
                key_file=server.key_file,
                known_hosts=server.known_hosts,
            ),
            machine=MACHINE,
        )
        try:
            yield target
        finally:
            target.close()


@contextmanager
def s3(folder: Path) -> Iterator[Target]:
    """versitygw for the length of the block; what is stored lies in `folder`.

    Raises:
        LabError: it was not built, or does not start.
    """
    from backupd.targets.s3 import S3Target

    folder.mkdir(parents=True)
    with s3server.serving(folder / "served") as service:
        service.write_credentials(folder / "credentials")
        yield S3Target(
            S3Config(
                name="s3",
                type=TargetKind.S3,
                endpoint=service.endpoint,
                bucket=s3server.BUCKET,
                credentials_file=folder / "credentials",
            ),
            machine=MACHINE,
        )


EACH: tuple[tuple[str, Callable[[Path], AbstractContextManager[Target]]], ...] = (("sftp", sftp), ("s3", s3))
