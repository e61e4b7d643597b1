"""What is true of every answer, before any page is asked: who may ask, what may be asked, what a browser is told.

Knows: HTTP's methods, hosts and credentials. It stands around the whole application, so that its headers are on
answers to what went wrong too.

Host names are compared where no token is asked for: a page from elsewhere, whose name its owner lets point to this
machine (DNS rebinding), would otherwise read ours through a person's browser. With a token it gets 401.
"""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz"})  # it says nothing of anybody
FIGURES = frozenset({"/metrics"})  # told to every user of this machine where there is no token, as node_exporter's are
LONGEST_QUERY = 4096  # bytes
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Refuse = Callable[[Scope, int, str, str], Response]  # a status, what is wrong, and what to do about it


@dataclass(frozen=True, slots=True)
class WebGuard:
    """The rules for one daemon."""

    token: str | None  # None: nobody is shown a page, and who reaches the port may read the figures
    hosts: frozenset[str]  # names and addresses that a browser may have asked for
    refuse: Refuse
    table: str = "service"  # of the configuration, with address and token_file

    async def __call__(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what may not be asked; let the application answer the rest."""
        if scope["type"] == "lifespan":
            await application(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._objection(scope) or application
            if scope["method"] == "HEAD":
                await answer({**scope, "method": "GET"}, receive, _without_body(_with_headers(send)))
            else:
                await answer(scope, receive, _with_headers(send))
        # a websocket is not answered, and the server closes it

    def _objection(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self.token is None and host_in(headers.get("host", "")) not in self.hosts:
            hint = f"use localhost, or the address in the configuration's [{self.table}]"
            return self.refuse(scope, 421, "this machine does not serve pages under that name", hint)
        if self.token is None and scope["path"] not in OPEN_PATHS | FIGURES:
            hint = f"set {self.table}.token_file in the configuration, and restart the daemon"
            return self.refuse(scope, 403, "the pages need a token, and none is configured", hint)
        if scope["path"] not in OPEN_PATHS and not self._is_known(headers.get("authorization", "")):
            hint = "enter the token of the configuration's token_file as the password, with any user name"
            answer = self.refuse(scope, 401, "these pages need a token", hint)
            answer.headers["WWW-Authenticate"] = 'Basic realm="backupd", charset="UTF-8"'
            return answer
        if scope["method"] not in ("GET", "HEAD"):
            answer = self.refuse(scope, 405, "these pages are read-only", "use the command line")
            answer.headers["Allow"] = "GET, HEAD"
            return answer
        if len(scope["query_string"]) > LONGEST_QUERY:
            return self.refuse(scope, 414, f"the query is longer than {LONGEST_QUERY} bytes", "remove a filter")
        return None

    def _is_known(self, authorization: str) -> bool:
        if self.token is None:
            return True
        return hmac.compare_digest(shown_token(authorization), self.token.encode())


def allowed_hosts(address: str) -> frozenset[str]:
    """What a browser on this machine may call the daemon that is bound to this address."""
    return _LOOPBACK | {address.lower()}


def host_in(header: str) -> str:
    """The name or the address in a Host header, without its port and without the brackets of IPv6; RFC 9110, 7.2."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().removesuffix(".")


def shown_token(authorization: str) -> bytes:
    """The token of a Bearer's or the password of a Basic header; empty where there is neither. RFC 6750, RFC 7617."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip().encode("latin-1")  # as HTTP's headers came; a token in UTF-8 is the same bytes
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _without_body(send: Callable[[Message], Awaitable[None]]) -> Send:
    """For HEAD: the headers of the answer to GET, and nothing after them."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return sending
