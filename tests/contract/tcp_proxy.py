"""Somebody between a client and a server on loopback who, when told to, lets nothing more through or cuts the line."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Proxy:
    """Passes bytes on until `cut_after` or `stall_after` more have gone towards the server or come from it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._cut_after: int | None = None
        self._stalled = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, size: int) -> None:
        """Once: the lines that there are, after this many bytes in all."""
        with self._lock:
            self._cut_after = size

    def stall(self) -> None:
        """Nothing goes through any more, on lines that there are and on new ones."""
        self._stalled.set()

    def stop(self) -> None:
        """Nobody listens any more, and every line is cut."""
        with suppress(OSError):  # it has stopped already
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone leaves it open while a thread accepts
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._to))
                with self._lock:
                    self._ends += [client, server]
                for one, other in ((client, server), (server, client)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if self._stalled.is_set():
                    threading.Event().wait()
                if self._is_the_end(len(data)):
                    self._cut()
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def _is_the_end(self, size: int) -> bool:
        with self._lock:
            if self._cut_after is None:
                return False
            self._cut_after -= size
            if self._cut_after > 0:
                return False
            self._cut_after = None
            return True

    def _cut(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
                end.close()


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    between = Proxy(port)
    try:
        yield between
    finally:
        between.stop()
