"""Those who are told: a real mail server and a real web server on loopback, that behave as badly as they are told to.

Knows: SMTP as far as a mail needs it, HTTP by Python's own server. What they got is kept for the test to look at.
"""

import base64
import contextlib
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Manner(Enum):
    """How a peer behaves."""

    GOOD = auto()
    SILENT = auto()  # takes the connection and says nothing
    DRIPPING = auto()  # says something, a byte at a time, without an end
    REFUSING = auto()  # with words of its own
    HANGING_UP = auto()


@dataclass
class Peer:
    """What is common to both."""

    port: int = 0
    manner: Manner = Manner.GOOD
    over: threading.Event = field(default_factory=threading.Event)

    def misbehaves(self, write: Any) -> bool:
        """Do what the manner says, until the test is over or the other side has gone."""
        if self.manner is Manner.SILENT:
            self.over.wait(30)
        elif self.manner is Manner.DRIPPING:
            with contextlib.suppress(OSError):
                while not self.over.wait(0.02):
                    write(b"2")
        return self.manner in {Manner.SILENT, Manner.DRIPPING, Manner.HANGING_UP}


@dataclass
class MailPeer(Peer):
    """A mail server; `tls` is offered by STARTTLS."""

    tls: ssl.SSLContext | None = None
    password: str | None = None  # that it asks for
    refused: tuple[str, ...] = ()  # recipients that it does not take
    utf8: bool = False  # it takes addresses that are not ASCII
    mails: list[Message] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    secured: bool = False


@dataclass
class WebPeer(Peer):
    """A web server; `status` and `headers` are what it answers."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


def words_of(mail: Message) -> str:
    """What is shown where a mail is text only."""
    return _part(mail, "text/plain")


def page_of(mail: Message) -> str:
    """What is shown elsewhere."""
    return _part(mail, "text/html")


def _part(mail: Message, kind: str) -> str:
    (part,) = (part for part in mail.walk() if part.get_content_type() == kind)
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode().replace("\r\n", "\n")


@contextmanager
def mail_server(peer: MailPeer, *, context: ssl.SSLContext | None = None) -> Iterator[MailPeer]:
    """It listens for the length of the block; over TLS from the first byte with `context`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if not peer.misbehaves(self.wfile.write):
                with contextlib.suppress(OSError):
                    _Conversation(self, peer).go_on()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust us, or waits no longer, is what a test wants."""

    with Server(("127.0.0.1", 0), Handler) as server:
        yield from _serving(server, peer, context)


@contextmanager
def web_server(peer: WebPeer, *, context: ssl.SSLContext | None = None) -> Iterator[WebPeer]:
    """The same for the web."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            peer.requests.append((self.path, dict(self.headers), body))
            if not peer.misbehaves(self.wfile.write):
                self.send_response_only(peer.status, self.headers.get("Authorization") if peer.status >= 400 else None)
                for name, value in peer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust us, or waits no longer, is what a test wants."""

    with Server(("127.0.0.1", 0), Handler) as server:
        yield from _serving(server, peer, context)


def _serving(server: socketserver.TCPServer, peer: Any, context: ssl.SSLContext | None) -> Iterator[Any]:
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    peer.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        peer.over.set()
        server.shutdown()
        thread.join()


class _Conversation:
    """SMTP with one client."""

    def __init__(self, handler: socketserver.StreamRequestHandler, peer: MailPeer) -> None:
        self.connection, self.rfile = handler.connection, handler.rfile
        self.peer = peer

    def say(self, *lines: str) -> None:
        self.connection.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def go_on(self) -> None:
        if self.peer.manner is Manner.REFUSING:
            return self.say("554 go away")
        self.say("220 peer")
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            answer = getattr(self, f"on_{verb.lower()}", None)
            if answer is None:
                self.say("500 what?")
            else:
                answer(rest)
        return None

    def on_ehlo(self, _: str) -> None:
        offers = [
            *(["STARTTLS"] if self.peer.tls is not None and not self.peer.secured else []),
            *(["AUTH PLAIN"] if self.peer.password is not None else []),
            *(["8BITMIME", "SMTPUTF8"] if self.peer.utf8 else []),
        ]
        self.say(*(f"250-{offer}" for offer in ["peer", *offers]), "250 HELP")

    def on_starttls(self, _: str) -> None:
        assert self.peer.tls is not None
        self.say("220 go on")
        self.connection = self.peer.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.peer.secured = True

    def on_auth(self, rest: str) -> None:
        given = base64.b64decode(rest.partition(" ")[2]).split(b"\0")[-1].decode()
        # As a careless server would: with what it was told.
        self.say("235 good" if given == self.peer.password else f"535 not with the password {given}")

    def on_mail(self, _: str) -> None:
        self.say("250 ok")

    def on_rcpt(self, rest: str) -> None:
        address = rest.partition("<")[2].partition(">")[0]
        self.peer.recipients.append(address)
        self.say("550 unknown" if address in self.peer.refused else "250 ok")

    def on_rset(self, _: str) -> None:
        self.say("250 ok")

    def on_data(self, _: str) -> None:
        self.say("354 go on")
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line)
        self.peer.mails.append(message_from_bytes(b"".join(lines)))
        self.say("250 taken")

    def on_quit(self, _: str) -> None:
        self.say("221 bye")
