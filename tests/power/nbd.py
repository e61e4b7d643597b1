"""A disk over the NBD protocol, served to this machine's kernel at a unix socket.

Knows: the fixed newstyle handshake, and reads, writes, flushes and FUA (the protocol's own document, "The NBD
protocol", of the NetworkBlockDevice project). Discards and zeroing are not offered: the kernel then writes zeros.
"""

import socket
import struct
import threading
from pathlib import Path
from typing import Protocol

_MAGIC, _OPTIONS = 0x4E42444D41474943, 0x49484156454F5054
_OPTION_ANSWER = 0x3E889045565A9
_REQUEST_MAGIC, _ANSWER_MAGIC = 0x25609513, 0x67446698
_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_EXPORT_NAME, _ABORT, _INFO, _GO = 1, 2, 6, 7
_ACKNOWLEDGED, _INFORMED, _UNSUPPORTED = 1, 3, 2**31 + 1
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
_FUA = 1
_HAS = 1 | 4 | 8  # flags of an export: it has flags, knows flushes and FUA
_EINVAL, _EIO = 22, 5

_REQUEST = struct.Struct(">IHHQQI")
_ANSWER = struct.Struct(">IIQ")


class Disk(Protocol):
    """What is served."""

    size: int

    def read(self, offset: int, length: int) -> bytes: ...

    def write(self, offset: int, data: bytes, *, durable: bool) -> None: ...

    def flush(self) -> None: ...


def serve(path: Path, disk: Disk) -> None:
    """The disk is offered at this socket from now on, to one client after the other, by a thread of its own."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(1)

    def attend() -> None:
        while True:
            client, _ = listening.accept()
            with client:
                if _agree(client, disk.size):
                    _answer(client, disk)

    threading.Thread(target=attend, name=path.name, daemon=True).start()


def _receive(client: socket.socket, length: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: the client has gone.
    """
    pieces, missing = [], length
    while missing:
        piece = client.recv(min(missing, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _agree(client: socket.socket, size: int) -> bool:
    """Whether the client wants to go on with this disk."""
    client.sendall(struct.pack(">QQH", _MAGIC, _OPTIONS, _FIXED_NEWSTYLE | _NO_ZEROES))
    try:
        (flags,) = struct.unpack(">I", _receive(client, 4))
        while True:
            _, option, length = struct.unpack(">QII", _receive(client, 16))
            _receive(client, length)
            if option == _EXPORT_NAME:
                client.sendall(struct.pack(">QH", size, _HAS) + (b"" if flags & _NO_ZEROES else bytes(124)))
                return True
            if option in (_INFO, _GO):
                told = struct.pack(">HQH", 0, size, _HAS)
                client.sendall(struct.pack(">QIII", _OPTION_ANSWER, option, _INFORMED, len(told)) + told)
            kind = _ACKNOWLEDGED if option in (_INFO, _GO, _ABORT) else _UNSUPPORTED
            client.sendall(struct.pack(">QIII", _OPTION_ANSWER, option, kind, 0))
            if option in (_GO, _ABORT):
                return bool(option == _GO)
    except EOFError:
        return False


def _answer(client: socket.socket, disk: Disk) -> None:
    """Serve until the client goes."""
    try:
        while True:
            _, flags, kind, handle, offset, length = _REQUEST.unpack(_receive(client, _REQUEST.size))
            data = _receive(client, length) if kind == _WRITE else b""
            if kind == _DISCONNECT:
                return
            error, answer = _done(disk, kind, offset, length, data, durable=bool(flags & _FUA))
            client.sendall(_ANSWER.pack(_ANSWER_MAGIC, error, handle) + answer)
    except (EOFError, ConnectionError):
        return


def _done(disk: Disk, kind: int, offset: int, length: int, data: bytes, *, durable: bool) -> tuple[int, bytes]:
    """What the request ends with, errno and bytes."""
    if offset + length > disk.size:
        return _EINVAL, b""
    try:
        if kind == _READ:
            return 0, disk.read(offset, length)
        if kind == _WRITE:
            disk.write(offset, data, durable=durable)
        elif kind == _FLUSH:
            disk.flush()
        else:
            return _EINVAL, b""
    except OSError:
        return _EIO, b""
    return 0, b""
