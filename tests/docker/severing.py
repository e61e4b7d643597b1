"""A socket between a client and its server, on which a network's faults can be brought about.

Knows: bytes that pass, and how to lose, hold up or misdirect them. Refuses to know what they mean.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 16


class Link:
    """One client's connection, and the server's end of it."""

    def __init__(self, client: socket.socket, server: socket.socket, seen: Callable[[bytes], None]) -> None:
        self._client = client
        self._server = server
        self._seen = seen
        self._swallows = False
        self._threads = [threading.Thread(target=self._send, daemon=True)]
        self._threads[0].start()
        self._answer_from(server)

    def cut(self) -> None:
        """Both ends notice that the connection is over."""
        _shut(self._client)
        _shut(self._server)

    def swallow(self) -> None:
        """Nothing that the client sends arrives any more, and neither end notices."""
        self._swallows = True

    def lead_to(self, other: socket.socket) -> None:
        """The client is spoken to by another session from now on, and does not notice; the one that it had is over."""
        old, self._server = self._server, other
        self._answer_from(other)
        _shut(old)

    def end(self) -> None:
        """Nothing of it is left."""
        self.cut()
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._server.close()

    def _answer_from(self, server: socket.socket) -> None:
        thread = threading.Thread(target=self._receive, args=(server,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while said := self._client.recv(_CHUNK):
                self._seen(said)
                if not self._swallows:
                    self._server.sendall(said)
        _shut(self._server)

    def _receive(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := server.recv(_CHUNK):
                self._client.sendall(said)
        if server is self._server:
            _shut(self._client)
        else:
            server.close()


class Proxy:
    """Stands for a server's socket at a path of its own. `links` are the connections so far, oldest first."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self.links: list[Link] = []
        self.seen: Callable[[bytes], None] = lambda said: None  # called before what a client sent is passed on
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Nothing of it is left, the path neither."""
        _shut(self._listener)
        self._thread.join()
        self._listener.close()
        for link in self.links:
            link.end()
        self.path.unlink()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._server))
        except OSError:
            server.close()
            client.close()
        else:
            self.links.append(Link(client, server, self._see))

    def _see(self, said: bytes) -> None:
        self.seen(said)  # as it is by then


@contextmanager
def between(server: Path, path: Path) -> Iterator[Proxy]:
    """A proxy at `path` for the length of the block."""
    proxy = Proxy(path, server)
    try:
        yield proxy
    finally:
        proxy.end()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
