"""Visitors who hold connections and ask nothing, slowly, or for ever: whoever asks something is answered."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from backupd.service.site import Site
from backupd.service.web import connections
from backupd.service.web.connections import origin_of
from tests.contract.mariadb import wait_until
from tests.web.conftest import address_of, served, server_of, shown

_IDLE, _SLOW = 2000, 100
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """This process may have as many open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(address: str) -> socket.socket:
    """To the server at that address."""
    url = urlsplit(address)
    return socket.create_connection((url.hostname or "", url.port or 0), timeout=20)


def is_open(visitor: socket.socket) -> bool:
    """The server has not hung up."""
    visitor.settimeout(0)
    try:
        return visitor.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def ended_within(visitor: socket.socket, seconds: float) -> float:
    """After how many seconds the server hung up.

    Raises:
        TimeoutError: it did not within so many.
    """
    began = time.monotonic()
    visitor.settimeout(seconds)
    try:
        while visitor.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began


@pytest.fixture
def hasty(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that waits for a head for half a second, and for a whole request for one."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
    with served(shown(site)) as url:
        yield url


def test_two_thousand_that_ask_nothing_and_a_hundred_that_ask_slowly_keep_nobody_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 600.0)  # so that nobody is let in because others were given up
    with descriptors(8192), ExitStack() as held:
        idle = [held.enter_context(connected(address)) for _ in range(_IDLE)]
        slow = [held.enter_context(connected(address)) for _ in range(_SLOW)]
        for visitor in slow[-20:]:
            visitor.sendall(HEAD)
        assert httpx.get(f"{address}/healthz", timeout=60).text == "ok\n"
        assert sum(map(is_open, [*idle, *slow])) <= connections.OF_ONE_ADDRESS


def test_a_connection_that_asks_nothing_is_ended(hasty: str) -> None:
    with connected(hasty) as visitor:
        ended_within(visitor, 60)


def test_a_head_that_comes_letter_by_letter_is_ended(hasty: str) -> None:
    with connected(hasty) as visitor, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(200):
            visitor.sendall(b"G")
            time.sleep(0.05)


def test_a_second_request_has_a_deadline_for_its_head_too(hasty: str) -> None:
    with connected(hasty) as visitor:
        visitor.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in visitor.recv(4096)
        visitor.sendall(HEAD)
        ended_within(visitor, 60)


def test_a_body_that_never_ends_is_ended(hasty: str) -> None:
    with connected(hasty) as visitor:
        visitor.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        ended_within(visitor, 60)


def test_an_answer_that_nobody_takes_is_given_up(hasty: str) -> None:
    with connected(hasty) as visitor:
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deadline = time.monotonic() + 30
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < deadline:
                visitor.sendall(b"GET /static/vendor/uplot/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
                time.sleep(0.05)


def ending(server: uvicorn.Server) -> None:
    """It lets nobody in any more; those whom it has let in are still there."""
    server.config.timeout_graceful_shutdown = 60  # it is not what ends anybody here
    wait_until(lambda: bool(server.server_state.connections))
    server.should_exit = True
    wait_until(lambda: not server.servers[0].is_serving())


def test_whoever_was_let_in_as_the_server_began_to_end_is_answered_and_nothing_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the pages are handed from one process to the next: that one never sees the connection."""
    monkeypatch.setattr(connections, "LAST_HEAD_SECONDS", 60.0)  # a busy machine's moment
    with server_of(shown(site)) as server, connected(address_of(server)) as visitor:
        ending(server)
        visitor.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = b"".join(iter(lambda: visitor.recv(4096), b""))
        assert told.startswith(b"HTTP/1.1 200 ")
        assert told.endswith(b"ok\n")


def test_whoever_asks_nothing_does_not_keep_a_server_from_ending(site: Site) -> None:
    with server_of(shown(site)) as server, connected(address_of(server)) as visitor:
        ending(server)
        assert ended_within(visitor, 20) < connections.HEAD_SECONDS


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_visitor(address: str, origin: str) -> None:
    assert origin_of(address) == origin
