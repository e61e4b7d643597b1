"""What a stranger learns who has taken over the server's port: nothing that the password can be had from."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from backupd.mysql.login import Login
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError

PASSWORD = "c4n4ry"
_CAPABILITIES = 0x0008_0000 | 0x8000 | 0x0200 | 0x0020_0000  # plugin auth, secure connection, protocol 4.1, lenenc
_KEY = rsa.generate_private_key(65537, 2048)
_PUBLIC = _KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass
class Impostor:
    """Speaks the server's side until nobody answers; whatever it is told is kept.

    `first` is the plugin of its greeting, `switch` the one that it asks for then; `more` are the packets after that.
    """

    first: str
    switch: str | None = None
    more: tuple[bytes, ...] = ()
    told: list[bytes] = field(default_factory=list)
    port: int = 0

    def serve(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            self._send(connection, 0, self._greeting())
            answer = self._hear(connection)
            packets = list(self.more)
            if self.switch is not None:
                packets.insert(0, b"\xfe" + self.switch.encode() + b"\0" + b"s" * 20 + b"\0")
            for packet in packets:
                if answer is None:
                    return
                self._send(connection, answer + 1, packet)
                if packet == REMEMBERED:
                    self._send(connection, answer + 2, b"\0\0\0\2\0\0\0")  # OK
                answer = self._hear(connection)

    def _greeting(self) -> bytes:
        low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
        begin = b"\x0a" + b"8.0.36\0" + struct.pack("<I", 7) + b"a" * 8 + b"\0"
        rest = struct.pack("<HBHHB", low, 45, 2, high, 21) + b"\0" * 10 + b"b" * 12 + b"\0"
        return begin + rest + self.first.encode() + b"\0"

    def _send(self, connection: socket.socket, number: int, packet: bytes) -> None:
        connection.sendall(struct.pack("<I", len(packet))[:3] + bytes([number]) + packet)

    def _hear(self, connection: socket.socket) -> int | None:
        """The number of the packet that came; None where none did."""
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            if len(head) < 4:
                return None
            self.told.append(stream.read(int.from_bytes(head[:3], "little")))
            return head[3]


@contextmanager
def serving(impostor: Impostor) -> Iterator[Login]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=impostor.serve, args=(listening,))
        server.start()
        yield Login("backupd", address="127.0.0.1", port=listening.getsockname()[1], password=PASSWORD)
        server.join(60)
    assert not server.is_alive()


REMEMBERED = b"\x01\x03"  # caching_sha2_password: "that is right"
FULL = b"\x01\x04"  # of the same: "I do not know you, send the password"
THE_KEY = b"\x01" + _PUBLIC


@pytest.mark.parametrize(
    "impostor",
    [
        Impostor("mysql_native_password", "mysql_clear_password"),
        Impostor("caching_sha2_password", "mysql_clear_password"),
        Impostor("mysql_native_password", "dialog", (b"\x04Password: ",)),
        Impostor("mysql_native_password", "mysql_old_password"),
        Impostor("sha256_password", None, (THE_KEY,)),
        Impostor("mysql_native_password", "sha256_password", (THE_KEY,)),
        Impostor("caching_sha2_password", None, (FULL, THE_KEY)),
        Impostor("mysql_native_password", "caching_sha2_password", (FULL, THE_KEY)),
    ],
    ids=lambda impostor: f"{impostor.first}-{impostor.switch}",
)
def test_whoever_has_taken_over_the_port_is_not_told_the_password(impostor: Impostor) -> None:
    with (
        serving(impostor) as login,
        pytest.raises(ServerError, match="asks for the password in clear text") as refused,
    ):
        Session.open(login)
    assert "tls_ca" in refused.value.hint
    assert not [each for each in impostor.told if PASSWORD.encode() in each]
    assert not [each for each in impostor.told if len(each) == _KEY.key_size // 8], "encrypted for the impostor's key"
    assert not [each for each in impostor.told[1:] if len(each) not in (20, 32)], "no answer to a challenge"


@pytest.mark.parametrize(
    "impostor",
    [
        Impostor("caching_sha2_password", None, (REMEMBERED,)),
        Impostor("mysql_native_password", "caching_sha2_password", (REMEMBERED,)),
    ],
    ids=lambda impostor: f"{impostor.first}-{impostor.switch}",
)
def test_a_server_that_remembers_the_account_is_content_with_the_answer_to_its_challenge(impostor: Impostor) -> None:
    """It is then asked for something, which this one does not answer."""
    with serving(impostor) as login, pytest.raises(ServerError, match="Lost connection"):
        Session.open(login)
    assert b"SET " in impostor.told[-1]
    assert len(impostor.told[-2]) in (32, len(impostor.told[0])), "the answer to the challenge came right before"
