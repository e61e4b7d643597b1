"""What lies between us and an S3 server, and goes wrong: a proxy that hands requests on unless it was told otherwise.

Knows: HTTP, S3's operations by their names, one fault for each request it is to meet. Refuses to know who asks why.
Signatures stay good: the Host header and the body go on as they came.
"""

import http.client
import re
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_NOT_HANDED_ON = {"connection", "transfer-encoding", "content-length", "keep-alive", "expect"}


@dataclass
class Exchange:
    """One request, and how it can be answered."""

    handler: "_Handler"
    method: str
    path: str
    length: int

    @property
    def operation(self) -> str:
        """S3's name for it."""
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "x-amz-copy-source" in self.handler.headers:
            return "UploadPartCopy"
        for method, key, name in _BY_QUERY:
            if self.method == method and key in query:
                return name
        return _BY_METHOD[self.method]

    def body(self, most: int | None = None) -> bytes:
        """What was sent with it."""
        return self.handler.rfile.read(self.length if most is None else min(most, self.length))

    def ask_server(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """What the server says to it."""
        url = urlsplit(self.handler.proxy.behind)
        connection = http.client.HTTPConnection(url.netloc, timeout=20)
        try:
            headers = {key: value for key, value in self.handler.headers.items() if key.lower() != "expect"}
            connection.request(self.method, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: Mapping[str, str], body: bytes, *, length: int | None = None) -> None:
        """Send this; `length` is what the header says of the body."""
        self.handler.send_response_only(status)
        for key, value in headers.items():
            if key.lower() not in _NOT_HANDED_ON:
                self.handler.send_header(key, value)
        told = next(
            (headers[key] for key in headers if key.lower() == "content-length" and self.method == "HEAD"), None
        )
        self.handler.send_header("Content-Length", told or str(len(body) if length is None else length))
        self.handler.end_headers()
        if self.method != "HEAD":
            self.handler.wfile.write(body)

    def cut(self) -> None:
        """The connection is reset."""
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handler.close_connection = True
        self.handler.rfile.close()
        self.handler.connection.close()


Fault = Callable[[Exchange], None]

_BY_QUERY = (
    ("PUT", "partNumber", "UploadPart"),
    ("PUT", "retention", "PutObjectRetention"),
    ("POST", "uploads", "CreateMultipartUpload"),
    ("POST", "uploadId", "CompleteMultipartUpload"),
    ("POST", "delete", "DeleteObjects"),
    ("DELETE", "uploadId", "AbortMultipartUpload"),
    ("GET", "uploadId", "ListParts"),
    ("GET", "uploads", "ListMultipartUploads"),
    ("GET", "versions", "ListObjectVersions"),
    ("GET", "list-type", "ListObjectsV2"),
    # Azure's, by the names of S3
    ("PUT", "blockid", "UploadPart"),
    ("PUT", "comp", "CompleteMultipartUpload"),
    ("GET", "comp", "ListObjectsV2"),
    # Google's
    ("PUT", "upload_id", "UploadPart"),
)
_BY_METHOD = {
    **{"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"},
    "POST": "PutObject",  # Google's, of a small object and of an upload's beginning
}


@dataclass
class Proxy:
    """Where it answers, what it does next with which operation, and what it has seen."""

    behind: str
    endpoint: str = ""
    seen: Counter[str] = field(default_factory=Counter)
    most_at_once: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _now: Counter[str] = field(default_factory=Counter)
    _faults: dict[str, list[Fault]] = field(default_factory=dict)
    _always: dict[str, Fault] = field(default_factory=dict)

    def next(self, operation: str, *faults: Fault) -> None:
        """The next requests of this kind meet these, one each."""
        self._faults.setdefault(operation, []).extend(faults)

    def always(self, operation: str, fault: Fault) -> None:
        """Every request of this kind (`*`: of any) meets this."""
        self._always[operation] = fault

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()
        self._always.clear()

    def handle(self, exchange: Exchange) -> None:
        operation = exchange.operation
        with self.lock:
            self.seen[operation] += 1
            self._now[operation] += 1
            self.most_at_once[operation] = max(self.most_at_once[operation], self._now[operation])
            waiting = self._faults.get(operation)
            fault = waiting.pop(0) if waiting else self._always.get(operation, self._always.get("*", hand_on))
        try:
            fault(exchange)
        finally:
            with self.lock:
                self._now[operation] -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def _any(self) -> None:
        self.proxy.handle(Exchange(self, self.command, self.path, int(self.headers.get("Content-Length", 0))))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections that break are what this is for."""


@contextmanager
def in_between(behind: str, *, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy before that server answers within the block."""
    proxy = Proxy(behind)
    handler = type("_ProxyHandler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        proxy.endpoint = f"http{'s' if tls else ''}://localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


# --- what can go wrong -----------------------------------------------------------------------------------------------


def hand_on(exchange: Exchange) -> None:
    """Nothing goes wrong."""
    exchange.answer(*exchange.ask_server(exchange.body()))


def cut_in_the_middle(exchange: Exchange) -> None:
    """The connection breaks while the request is sent."""
    exchange.body(exchange.length // 2)
    exchange.cut()


def lose_the_answer(exchange: Exchange) -> None:
    """The server does it, and nobody hears of it."""
    exchange.ask_server(exchange.body())
    exchange.cut()


def flip_a_byte_on_the_way(exchange: Exchange) -> None:
    """What arrives is not what was sent."""
    exchange.answer(*exchange.ask_server(_flipped(exchange.body())))


def flip_a_byte_on_the_way_back(exchange: Exchange) -> None:
    """What is read is not what is stored."""
    status, headers, body = exchange.ask_server(exchange.body())
    exchange.answer(status, headers, _flipped(body))


def lose_half_of_the_answer(exchange: Exchange) -> None:
    """The connection breaks while the answer comes."""
    status, headers, body = exchange.ask_server(exchange.body())
    exchange.answer(status, headers, body[: len(body) // 2], length=len(body))
    exchange.cut()


def refuse(status: int, code: str) -> Fault:
    """The server says no."""

    def fault(exchange: Exchange) -> None:
        exchange.body()
        said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
        exchange.answer(status, {"Content-Type": "application/xml"}, b"" if exchange.method == "HEAD" else said)

    return fault


def pretend(body: bytes = b"", **headers: str) -> Fault:
    """Somebody says that it is done, and it is not."""

    def fault(exchange: Exchange) -> None:
        exchange.body()
        exchange.answer(200, {key.replace("_", "-"): value for key, value in headers.items()}, body)

    return fault


def list_twice(*, larger_by: int) -> Fault:
    """Each object is in the listing once more, as of so many bytes more."""

    def again(entry: re.Match[bytes]) -> bytes:
        grown = re.sub(rb"(?<=<Size>)\d+", lambda size: b"%d" % (int(size[0]) + larger_by), entry[0])
        return entry[0] + grown

    def fault(exchange: Exchange) -> None:
        status, headers, body = exchange.ask_server(exchange.body())
        exchange.answer(status, headers, re.sub(rb"<Contents>.*?</Contents>", again, body, flags=re.DOTALL))

    return fault


def answer_an_empty_page(exchange: Exchange) -> None:
    """The page has nothing, and says that more follows."""
    status, headers, body = exchange.ask_server(exchange.body())
    body = re.sub(rb"<Contents>.*</Contents>", b"", body, flags=re.DOTALL)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>0</NextContinuationToken>"
    exchange.answer(status, headers, re.sub(rb"<IsTruncated>false</IsTruncated>", more, body))


def refuse_without_md5(exchange: Exchange) -> None:
    """The server knows no other checksum of a request's body."""
    (hand_on if exchange.handler.headers["Content-MD5"] else refuse(400, "MissingContentMD5"))(exchange)


def keep_silent_until(over: threading.Event) -> Fault:
    """There is no answer."""

    def fault(exchange: Exchange) -> None:
        exchange.body()
        over.wait(20)
        exchange.cut()

    return fault


def _flipped(body: bytes) -> bytes:
    changed = bytearray(body)
    changed[len(body) // 2] ^= 1
    return bytes(changed)
