"""A connection to somebody who may not answer, or only a byte at a time: it has an end, and its certificate is checked.

Knows: deadlines, certificates, and the words for what went wrong.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd.host.authorities import system_tls
from backupd.vocabulary.errors import ConfigurationError, NotificationError, PerhapsNotified


@contextmanager
def ended_after(seconds: float, socket_of: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Within the block nothing waits for the other side any longer than this: its socket is shut down then.

    A socket's own timeout starts again with every byte. `socket_of` is asked then: STARTTLS puts another in its place.
    """
    over = threading.Timer(seconds, lambda: _shut_down(socket_of()))
    over.daemon = True
    over.start()
    try:
        yield
    finally:
        over.cancel()


def _shut_down(connection: socket.socket | None) -> None:
    if connection is not None:
        with contextlib.suppress(OSError):  # it has ended by itself
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TLS too: its own would wait for the other side


def tls(ca: Path | None) -> ssl.SSLContext:
    """Certificates and names are checked, against the system's authorities and those in the file.

    Raises:
        ConfigurationError: the file cannot be read, or holds no certificate.
    """
    context = system_tls()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{ca} cannot be used: {error.strerror or error}", hint="`ca` names a file of certificates in PEM"
            ) from error
    return context


def undelivered(where: str, error: Exception, *, took: float, deadline: float, sent: bool) -> NotificationError:
    """In words: who it was, and why. What the other side has said is no part of it: it may repeat a secret.

    Once all was `sent` that it needs, it may have taken it, whatever became of its answer.
    """
    kind = PerhapsNotified if sent else NotificationError
    if isinstance(error, ssl.SSLCertVerificationError):
        fact = f"{where} has a certificate that is not trusted: {error.verify_message}"
        return NotificationError(fact, hint="set ca to the authority that signed it: ca = FILE")
    if took >= deadline or isinstance(error, TimeoutError):
        return kind(f"{where} did not answer within {deadline:g} s", hint="is it up and reachable?")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return kind(f"{where} cannot be reached: {reason}", hint="is it up, and is the port right?")
