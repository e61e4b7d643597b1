"""What the clouds' packages make of a storage that answers nonsense, or without an end: an error, in words.

Whoever answers has the container, or has come between: a server on loopback that says what it is told.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.config import AzureConfig, GcsConfig, TargetKind
from backupd.targets import azure, bounded_answers, gcs
from backupd.targets.blobs import BlobTarget
from backupd.vocabulary.errors import TargetAway, TargetError
from tests.contract.s3_server import IMPATIENT
from tests.contract.test_targets import JOB, NAME, RUN
from tests.fakes.target import MACHINE

KEY = f"tests/{MACHINE}/{JOB}/{RUN}/manifest.json"
Say = Callable[[BaseHTTPRequestHandler], None]


class Storage:
    """Where it answers, and what it says next."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.say: Say = partial(answer, status=500)
        self.say_to: Callable[[BaseHTTPRequestHandler, bytes], None] | None = None  # with what was sent


def answer(
    handler: BaseHTTPRequestHandler, *, status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    """With this, whatever was asked."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), "Connection": "close", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def endless(handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> None:
    """Until nobody listens."""
    handler.send_response(206)
    for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
        handler.send_header(name, value)
    handler.end_headers()
    while True:
        handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            with suppress(ConnectionError):  # whoever asked has heard enough
                found.say(self) if found.say_to is None else found.say_to(self, body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Storage(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _says_as_told(storage: Storage) -> Iterator[None]:
    yield
    storage.say_to = None


@pytest.fixture
def azures(storage: Storage, tmp_path: Path) -> BlobTarget:
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(base64.b64encode(bytes(32)).decode())
    config = AzureConfig(
        name="store",
        type=TargetKind.AZURE,
        account="account",
        container="container",
        prefix="tests",
        endpoint=storage.url,
        credentials_file=tmp_path / "key",
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )
    return azure.azure_target(config, machine=MACHINE, patience=IMPATIENT)


def signature(expiry: str) -> str:
    return f"?sv=2024-11-04&sr=c&sp=racwdl{expiry}&sig=c2VjcmV0%2Bof%2Fours%3D"


@pytest.mark.parametrize(
    ("secret", "ends"),
    [
        (signature("&se=2026-12-01T12%3A30%3A00Z"), datetime(2026, 12, 1, 12, 30, tzinfo=UTC)),
        (signature("&se=2026-12-01T12:30Z"), datetime(2026, 12, 1, 12, 30, tzinfo=UTC)),
        (signature("&se=2026-12-01"), datetime(2026, 12, 1, tzinfo=UTC)),
        (signature("&se=2026-12-03T00%3A00%3A00Z&ske=2026-12-02T00%3A00%3A00Z"), datetime(2026, 12, 2, tzinfo=UTC)),
        (signature("&si=policy"), None),  # its end is the stored policy's
        (signature("&se="), None),
        (signature("&se=tomorrow"), None),
        (signature("&se=9999-99-99T00%3A00%3A00Z"), None),
        (base64.b64encode(bytes(32)).decode(), None),
    ],
)
def test_when_a_shared_access_signature_ends_is_known_once_it_was_used(
    storage: Storage, azures: BlobTarget, tmp_path: Path, secret: str, ends: datetime | None
) -> None:
    (tmp_path / "key").write_text(secret)
    assert azures.access_ends is None
    storage.say = partial(answer, status=403)
    with pytest.raises(TargetError) as refused:
        azures.machines()
    assert azures.access_ends == ends
    assert "c2VjcmV0" not in f"{refused.value.message} {refused.value.hint}"


@pytest.fixture
def googles(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> BlobTarget:
    from google.auth.credentials import AnonymousCredentials

    monkeypatch.setattr(gcs, "_credentials", lambda _: AnonymousCredentials())  # type: ignore[no-untyped-call]
    config = GcsConfig(
        name="store",
        type=TargetKind.GCS,
        bucket="bucket",
        prefix="tests",
        endpoint=storage.url,
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )
    return gcs.gcs_target(config, machine=MACHINE, patience=IMPATIENT)


def item(**said: object) -> dict[str, object]:
    return {"name": KEY, "generation": "1", "updated": "2026-01-01T00:00:00Z", "size": "3", **said}


@pytest.mark.parametrize(
    "said",
    [
        *({"items": [item(), item(**changed)]} for changed in ({"name": None}, {"updated": None}, {"updated": "x"})),
        *({"items": [item(size=size)]} for size in ("x", "-1", ["1"], "9" * 5000)),
        *({"items": items} for items in ("text", ["text"], 5)),
        *({"prefixes": prefixes} for prefixes in (5, [5])),
        *([], None, "text"),
    ],
    ids=lambda said: json.dumps(said)[-60:],
)
def test_a_listing_of_google_s_that_is_none(storage: Storage, googles: BlobTarget, said: object) -> None:
    storage.say = partial(answer, body=json.dumps(said).encode(), headers={"Content-Type": "application/json"})
    with pytest.raises(TargetError, match="its answer could not be parsed"):
        googles.machines() if isinstance(said, dict) and "prefixes" in said else googles.segments(JOB)


@pytest.mark.parametrize(
    "said", [item(generation="x"), item(generation=None), item(size="x"), item(size="-1"), item(metadata=5), "text", []]
)
def test_what_google_says_of_a_blob_that_is_none(storage: Storage, googles: BlobTarget, said: object) -> None:
    storage.say = partial(answer, body=json.dumps(said).encode(), headers={"Content-Type": "application/json"})
    with pytest.raises(TargetError, match="its answer could not be parsed"):
        googles.manifest(JOB, RUN)


@pytest.mark.parametrize("body", [b'{"error": null}', b"[" * 100_000])
def test_a_refusal_of_google_s_that_is_none(storage: Storage, googles: BlobTarget, body: bytes) -> None:
    storage.say = partial(answer, status=403, body=body, headers={"Content-Type": "application/json"})
    with pytest.raises(TargetError):
        googles.manifest(JOB, RUN)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "<a/>",
        "<EnumerationResults/>",
        *(
            f"<EnumerationResults><Blobs>{blob}</Blobs></EnumerationResults>"
            for blob in (
                f"<Blob><Name>{KEY}</Name></Blob>",
                f"<Blob><Name>{KEY}</Name><Properties><BlobType>BlockBlob</BlobType></Properties></Blob>",
                f"<Blob><Name>{KEY}</Name><Properties><Last-Modified>x</Last-Modified></Properties></Blob>",
                f"<Blob><Name>{KEY}</Name><Properties><Content-Length>x</Content-Length></Properties></Blob>",
                "<Blob><Properties/></Blob>",
            )
        ),
    ],
    ids=len,
)
def test_a_listing_of_azure_s_that_is_none(storage: Storage, azures: BlobTarget, said: str) -> None:
    storage.say = partial(answer, body=said.encode(), headers={"Content-Type": "application/xml"})
    with pytest.raises(TargetError, match="its answer could not be parsed"):
        azures.segments(JOB)


@pytest.mark.parametrize("look", ["segments", "machines"])
@pytest.mark.parametrize("service", ["azures", "googles"])
def test_a_page_of_a_listing_that_comes_again_is_not_asked_for_for_ever(
    request: pytest.FixtureRequest, storage: Storage, service: str, look: str
) -> None:
    """Both packages would ask for as long as they are told that there is more, and keep each page."""
    target: BlobTarget = request.getfixturevalue(service)
    asked: list[str] = []

    def say(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        mark = "again" if len(asked) < 50 else ""
        body, kind = f"<EnumerationResults><Blobs/><NextMarker>{mark}</NextMarker></EnumerationResults>", "xml"
        if service == "googles":
            body, kind = json.dumps({"items": [], **({"nextPageToken": mark} if mark else {})}), "json"
        answer(handler, body=body.encode(), headers={"Content-Type": f"application/{kind}"})

    storage.say = say
    with pytest.raises(TargetError, match="it gives the same page of its listing again"):
        target.segments(JOB) if look == "segments" else target.machines()
    assert len(asked) <= 3


BLOB = {"Last-Modified": "Mon, 27 Jan 2025 00:00:00 GMT", "ETag": '"e"', "x-ms-blob-type": "BlockBlob"}


@pytest.mark.parametrize(
    "changed",
    [{"Content-Length": "x"}, {"Content-Length": "-1"}, {"x-ms-blob-type": "x"}, {"Last-Modified": "x"}, {"ETag": ""}],
    ids=str,
)
def test_what_azure_says_of_a_blob_that_is_none(storage: Storage, azures: BlobTarget, changed: dict[str, str]) -> None:
    storage.say = partial(answer, headers={**BLOB, "Content-Length": "3", **changed})
    with pytest.raises(TargetError):
        azures.manifest(JOB, RUN)


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_what_a_rule_of_azure_s_has_moved_to_an_archive_says_what_to_do(
    storage: Storage, azures: BlobTarget, code: str
) -> None:
    def say(handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "HEAD":
            answer(handler, headers={**BLOB, "Content-Length": "100"})
        else:
            answer(handler, status=409, headers={"x-ms-error-code": code})

    storage.say = say
    with pytest.raises(TargetError, match=f"archive tier .{code}") as raised:
        azures.manifest(JOB, RUN)
    assert "Cool or Hot" in raised.value.hint


@pytest.mark.parametrize("announced", ["", str(1 << 40)], ids=["endless", "announced"])
def test_no_answer_of_azure_s_is_read_without_an_end(
    storage: Storage, azures: BlobTarget, monkeypatch: pytest.MonkeyPatch, announced: str
) -> None:
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 1 << 20)

    def say(handler: BaseHTTPRequestHandler) -> None:
        span = {**BLOB, "Content-Range": "bytes 0-99/100"}
        if handler.command == "HEAD":
            answer(handler, headers={**BLOB, "Content-Length": str(1 << 40)})
        elif announced:
            answer(handler, status=206, headers={**span, "Content-Length": announced})
        else:
            endless(handler, span)

    storage.say = say
    with pytest.raises(TargetError, match=r"could not be parsed \(TooLong\)"):
        azures.manifest(JOB, RUN)


def test_no_answer_of_google_s_is_read_without_an_end(
    storage: Storage, googles: BlobTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 1 << 20)

    def say(handler: BaseHTTPRequestHandler) -> None:
        if "alt=media" in handler.path:
            endless(handler, {"Content-Range": "bytes 0-99/100"})
        else:
            answer(handler, body=json.dumps(item()).encode(), headers={"Content-Type": "application/json"})

    storage.say = say
    with pytest.raises(TargetError, match=r"could not be parsed \(TooLong\)"):
        googles.manifest(JOB, RUN)


# --- an upload to Google ---------------------------------------------------------------------------------------------


class Uploads:
    """Google's answers to an object that is sent in parts; of each part it keeps no more than `keeps` bytes."""

    def __init__(self, storage: Storage, keeps: int) -> None:
        self.content, self.keeps, self.ends_complete, self.refuses = b"", keeps, True, 0
        self._url = storage.url

    def __call__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "POST":
            answer(handler, headers={"Location": f"{self._url}/session?upload_id=1"})
        elif handler.command == "DELETE":
            answer(handler, status=499)
        elif handler.command == "GET":
            answer(handler, status=404)
        elif self.refuses:
            answer(handler, status=self.refuses)
        else:
            span, _, total = handler.headers["Content-Range"].removeprefix("bytes ").partition("/")
            known = len(self.content) - int(span.partition("-")[0])
            assert known >= 0
            self.content += body[known:][: self.keeps]  # Google passes over what it has
            if total != "*" and self.ends_complete:
                answer(handler, status=200, body=b"{}")
            else:
                answer(handler, status=308, headers={"Range": f"bytes=0-{len(self.content) - 1}"} if self.keeps else {})


CONTENT = bytes(range(256)) * (80 << 10)  # 20 MiB: more than the parts of 16 MiB that a target has if nobody says more


def test_what_google_does_not_keep_of_a_part_is_sent_again(storage: Storage, googles: BlobTarget) -> None:
    storage.say_to = uploads = Uploads(storage, keeps=5 << 20)
    with suppress(TargetError), googles.writing(JOB, RUN, NAME) as writer:  # nothing tells of the object afterwards
        writer.write(CONTENT)
    assert uploads.content == CONTENT


def test_a_part_of_which_google_keeps_nothing_is_an_error(storage: Storage, googles: BlobTarget) -> None:
    storage.say_to = Uploads(storage, keeps=0)
    with (
        pytest.raises(TargetError, match=r"of the bytes from 0 to \d+ the server kept only those up to 0"),
        googles.writing(JOB, RUN, NAME) as writer,
    ):
        writer.write(CONTENT)


def test_an_upload_that_google_does_not_call_complete_is_no_object(storage: Storage, googles: BlobTarget) -> None:
    storage.say_to = uploads = Uploads(storage, keeps=1 << 30)
    uploads.ends_complete = False
    with (
        pytest.raises(TargetError, match=r"the upload is not complete: it has bytes=0-\d+ of"),
        googles.writing(JOB, RUN, NAME) as writer,
    ):
        writer.write(CONTENT)


def test_a_part_that_google_refuses_is_told_with_what_it_says(storage: Storage, googles: BlobTarget) -> None:
    storage.say_to = uploads = Uploads(storage, keeps=0)
    uploads.refuses = 403
    with pytest.raises(TargetError, match="does not let backupd"), googles.writing(JOB, RUN, NAME) as writer:
        writer.write(CONTENT)


@pytest.mark.parametrize(("status", "kind"), [(503, TargetAway), (403, TargetError)])
def test_a_removal_that_google_refuses_is_told(
    storage: Storage, googles: BlobTarget, status: int, kind: type[TargetError]
) -> None:
    def say(handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "DELETE":
            answer(handler, status=status)
        else:
            answer(handler, body=json.dumps({"items": [item()]}).encode(), headers={"Content-Type": "application/json"})

    storage.say = say
    with pytest.raises(TargetError) as told:
        googles.remove(JOB, RUN)
    assert type(told.value) is kind
    assert told.value.hint


# --- who we are -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, b'{"error": "invalid_grant", "error_description": "as told"}', TargetError, "does not accept the"),
        (503, b'{"error": "temporarily_unavailable"}', TargetAway, "could not"),
    ],
)
def test_a_token_that_google_refuses_is_told_by_whether_it_may_come_later(
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: int,
    body: bytes,
    kind: type[TargetError],
    words: str,
) -> None:
    from tests.servers.clouds import _private, _service_account

    waiting = SimpleNamespace(sleep=lambda _: None)  # the package asks again by itself, for 12 seconds
    monkeypatch.setattr("google.auth._exponential_backoff.time", waiting)
    storage.say = partial(answer, status=status, body=body, headers={"Content-Type": "application/json"})
    config = GcsConfig(
        name="store",
        type=TargetKind.GCS,
        bucket="bucket",
        prefix="tests",
        endpoint=storage.url,
        credentials_file=_private(tmp_path / "gcs.json", json.dumps(_service_account(f"{storage.url}/token"))),
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )
    with pytest.raises(TargetError, match=words) as told:
        gcs.gcs_target(config, machine=MACHINE, patience=IMPATIENT).machines()
    assert type(told.value) is kind
    assert told.value.hint


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, "https://account.blob.core.windows.net/container"),
        ("https://account.blob.core.example.com/", "https://account.blob.core.example.com/container"),
        ("http://127.0.0.1:10000", "http://127.0.0.1:10000/account/container"),
    ],
)
def test_an_account_of_azure_s_is_in_the_host_s_name_and_an_emulator_s_in_the_path(
    azures: BlobTarget, endpoint: str | None, url: str
) -> None:
    assert isinstance(azures._config, AzureConfig)
    config = replace(azures._config, endpoint=endpoint, prefix="")
    assert azure.azure_target(config, machine=MACHINE).location(JOB, RUN).startswith(f"{url}/")


def test_an_object_that_a_cloud_has_no_room_for_is_refused_before_its_first_byte(
    storage: Storage, azures: BlobTarget, googles: BlobTarget
) -> None:
    storage.say = partial(answer, status=404)  # there is nothing yet
    for target, cloud in ((azures, "Azure Blob Storage"), (googles, "Google Cloud Storage")):
        writing = target.writing(JOB, RUN, NAME, at_most=1 << 60)
        with pytest.raises(TargetError, match=f"does not fit into {cloud}") as told, writing:
            raise AssertionError("it was begun")
        assert "give this job a target of another type" in (told.value.hint or "")
