"""An S3 server on loopback for the length of a block: versitygw on a folder, as `.ci/setup-s3` has built it.

Knows: how it is started, its credentials, the configuration that reaches it. Refuses to know what is stored there.
As a program (`python -m tests.servers.s3server --folder F -- COMMAND`) it runs a command beside the server.

Its metadata lies in files of its own (`--sidecar`), because tmpfs and the lab's root have no extended attributes.
versitygw 1.8.0 answers 40 ms after its start. It makes ETags of checksums that it has computed anyway rather than of an
MD5 (`--data-integrity-etag`), because here it shares its processors with whoever writes to it.
"""

import argparse
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backupd.host.process import spawned
from backupd.vocabulary.errors import BackupdError, LabError
from tests.servers.ports import free_port

BUCKET = "backups"
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class S3Service:
    """Where it answers and to whom; `folder` holds its buckets."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    folder: Path

    def write_credentials(self, path: Path) -> None:
        """A file as the AWS tools have it, for its owner only."""
        path.touch(mode=0o600)
        path.write_text(
            f"[default]\naws_access_key_id = {self.access_key}\naws_secret_access_key = {self.secret_key}\n",
            encoding="utf-8",
        )

    def configuration(self, name: str, credentials_file: Path, *, prefix: str = "") -> str:
        """The target's table of a backupd.toml. Nobody but this machine sees what is sent: it need not be encrypted."""
        return f"""[targets.{name}]
type = "s3"
endpoint = "{self.endpoint}"
bucket = "{BUCKET}"
prefix = "{prefix}"
credentials_file = "{credentials_file}"
accept_unencrypted = true
"""


@contextmanager
def serving(folder: Path) -> Iterator[S3Service]:
    """A server answers within the block, with one bucket; its objects stay in the folder afterwards.

    Raises:
        LabError: it was not built, or did not start.
    """
    for part in (f"objects/{BUCKET}", "metadata", "versions"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    port = free_port()
    service = S3Service(
        f"http://127.0.0.1:{port}", secrets.token_hex(10).upper(), secrets.token_hex(20), folder / "objects"
    )
    argv = [
        *(str(_program()), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"),
        *(
            "posix",
            "--data-integrity-etag",
            "--sidecar",
            str(folder / "metadata"),
            "--versioning-dir",
            str(folder / "versions"),
        ),
        str(service.folder),
    ]
    account = {"ROOT_ACCESS_KEY": service.access_key, "ROOT_SECRET_KEY": service.secret_key}
    log = folder / "log"
    with log.open("ab") as said, spawned(argv, stdout=said, stderr=said, environment=account) as process:
        wait_until_it_answers(process, port, log)
        yield service


def _program() -> Path:
    program = Path(sys.executable).with_name("versitygw")
    if not program.exists():
        raise LabError("the S3 server has not been built", hint="make setup-s3")
    return program


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Somebody listens there.

    Raises:
        LabError: the process has ended, or takes too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                end = log.read_text(encoding="utf-8", errors="replace")[-1500:]
                raise LabError("the server did not start", hint=f"its log ends:\n{end}") from None
            time.sleep(0.01)
        else:
            return


def main(words: Sequence[str]) -> int:
    """Serve while the command runs; its exit status.

    FOLDER/target.toml is the target's table then, FOLDER/credentials what it names.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.servers.s3server", description=main.__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", default="bucket", help="of the target")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(words)
    folder = asked.folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with serving(folder) as service:
            service.write_credentials(folder / "credentials")
            (folder / "target.toml").write_text(
                service.configuration(asked.name, folder / "credentials"), encoding="utf-8"
            )
            return subprocess.run(asked.command, check=False).returncode
    except BackupdError as error:
        sys.stderr.write(f"{error.message}\nhint: {error.hint}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
