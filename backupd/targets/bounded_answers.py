"""An answer of a cloud is no larger than any that backupd asks for, whatever the service, or an impostor, sends.

Both clouds' packages read an answer to its end, unpacked, into memory; Microsoft's makes room for as much as is
announced before the first byte is there (azure-storage-blob 12.31).
"""

from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

MOST_BYTES = 32 << 20  # a page of a listing has at most 5000 names; what is read at once is less


class TooLong(ValueError):
    """It goes on."""


class BoundedAnswers(HTTPAdapter):
    """For a session of requests. With `ca` it trusts these certificates only, whatever the environment says.

    requests (2.34) would prefer that.
    """

    def __init__(self, ca: str | None = None) -> None:
        super().__init__()
        self._ca = ca

    def send(self, request: Any, *args: Any, **how: Any) -> Any:
        return super().send(request, *args, **(how if self._ca is None else {**how, "verify": self._ca}))

    def build_response(self, req: Any, resp: Any) -> Any:
        if req.method != "HEAD" and int(resp.headers.get("Content-Length", 0)) > MOST_BYTES:
            resp.close()
            raise TooLong(f"the server announced a response of more than {MOST_BYTES} bytes")
        resp.stream = _Bounded(resp.stream)
        return super().build_response(req, resp)


def bounded(ca: str | None = None) -> requests.Session:
    """A session for whom nothing was configured but this."""
    session = requests.Session()
    bind(session, ca)
    return session


def bind(session: requests.Session, ca: str | None = None) -> None:
    """From now on its answers are bounded."""
    for scheme in ("https://", "http://"):
        session.mount(scheme, BoundedAnswers(ca))


class _Bounded:
    """`HTTPResponse.stream` of urllib3, which ends with an error after so many bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __call__(self, *how: Any, **named: Any) -> Iterator[bytes]:
        left = MOST_BYTES
        for piece in self._stream(*how, **named):
            left -= len(piece)
            if left < 0:
                raise TooLong(f"an answer has more than {MOST_BYTES} bytes")
            yield piece
