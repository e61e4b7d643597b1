"""Azure Blob Storage and Google Cloud Storage on loopback for the length of a block, as `.ci/setup-clouds` made them.

Knows: how Azurite and fake-gcs-server are started, how one becomes their client. Both keep everything in memory.
fake-gcs-server asks nobody for credentials; so that ours are used all the same, there is a place that gives out tokens.
"""

import base64
import json
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from backupd.host.process import spawned
from backupd.vocabulary.errors import LabError
from tests.servers.ports import free_port
from tests.servers.s3server import wait_until_it_answers

ACCOUNT, CONTAINER, BUCKET = "backupd", "backups", "backups"
_AZURITE = Path(__file__).parents[2] / ".cache/azurite/node_modules/azurite/dist/src/blob/main.js"


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where it answers, and the file that says who we are."""

    endpoint: str
    credentials_file: Path


@contextmanager
def azurite(folder: Path) -> Iterator[Cloud]:
    """Azure Blob Storage with one account and one container.

    Raises:
        LabError: it is not installed, or did not start.
    """
    if not _AZURITE.exists():
        raise LabError("Azurite is not installed", hint="make setup-clouds")
    port, key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
    credentials = _private(folder / "azure.key", key)
    argv = [
        *("node", str(_AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"),
        *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
    ]
    log = folder / "azurite.log"
    with (
        log.open("ab") as said,
        spawned(argv, stdout=said, stderr=said, environment={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}) as process,
    ):
        wait_until_it_answers(process, port, log)
        from azure.storage.blob import ContainerClient

        url = f"http://127.0.0.1:{port}"
        ContainerClient(
            f"{url}/{ACCOUNT}", CONTAINER, credential={"account_name": ACCOUNT, "account_key": key}
        ).create_container()
        yield Cloud(url, credentials)


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Cloud]:
    """Google Cloud Storage with one bucket.

    Raises:
        LabError: it has not been built, or did not start.
    """
    program = Path(sys.executable).with_name("fake-gcs-server")
    if not program.exists():
        raise LabError("fake-gcs-server has not been built", hint="make setup-clouds")
    port = free_port()
    argv = [str(program), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    log = folder / "fake-gcs.log"
    with (
        log.open("ab") as said,
        spawned(argv, stdout=said, stderr=said) as process,
        _tokens() as tokens,
    ):
        wait_until_it_answers(process, port, log)
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        url = f"http://127.0.0.1:{port}"
        nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
        storage.Client(project="-", credentials=nobody, client_options={"api_endpoint": url}).create_bucket(BUCKET)
        yield Cloud(url, _private(folder / "gcs.json", json.dumps(_service_account(tokens))))


@contextmanager
def _tokens() -> Iterator[str]:
    """Where a service account gets its token."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _service_account(token_uri: str) -> dict[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "backupd",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "backupd@backupd.iam.example.com",
        "client_id": "1",
        "token_uri": token_uri,
    }


def _private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text + "\n", encoding="utf-8")
    return path
