"""The web pages' thread: it comes back when it has ended, and never keeps the daemon from ending."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, HostConfig, ServiceConfig
from backupd.errors import Refused
from backupd.service.listening import WebThread, listen, url_of
from backupd.service.site import Site

ANY_PORT = ServiceConfig(port=0)


@pytest.fixture
def site(path_in_memory: Path) -> Iterator[Site]:
    """One without jobs."""
    with Catalogue.open(path_in_memory / "catalogue.sqlite") as catalogue:
        yield Site(Configuration(), catalogue)


@pytest.fixture
def listener() -> socket.socket:
    """Closed by whoever serves on it."""
    return listen(ANY_PORT)


class HostsPage(FastAPI):
    """An application that shows which hosts its site has, and one page that never comes."""

    def show(self, site: Site) -> None:
        """As the real one does."""
        self.state.site = site


def hosts_page(site: Site) -> HostsPage:
    """Over this site."""
    application = HostsPage()
    application.show(site)

    @application.get("/")
    def hosts() -> list[str]:
        return list(application.state.site.configuration.hosts)

    @application.get("/never")
    def never() -> None:
        threading.Event().wait(5)

    return application


def asked(listener: socket.socket, path: str = "/", *, seconds: float = 10.0) -> str:
    """What it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_whoever_comes_before_the_application_is_there_is_answered_and_a_new_site_is_shown(
    site: Site, listener: socket.socket
) -> None:
    pages = WebThread(listener, site, hosts_page)
    pages.keep_up()
    assert asked(listener) == "[]"
    pages.show(Site(Configuration(hosts={"db1": HostConfig(name="db1")}), site.catalogue))
    assert asked(listener) == '["db1"]'
    pages.stop()
    with pytest.raises(OSError):
        asked(listener)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_pages_that_have_ended_by_themselves_come_back(site: Site, listener: socket.socket) -> None:
    tries: list[int] = []

    def broken_at_first(site: Site) -> HostsPage:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("the templates are missing")
        return hosts_page(site)

    pages = WebThread(listener, site, broken_at_first)
    while len(tries) < 2:
        pages.keep_up()
    assert asked(listener) == "[]"
    pages.stop()


def test_a_page_that_never_comes_does_not_keep_the_daemon_from_ending(site: Site, listener: socket.socket) -> None:
    pages = WebThread(listener, site, hosts_page)
    pages.keep_up()
    assert asked(listener) == "[]"
    visitor = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1])
    visitor.request("GET", "/never")
    began = time.monotonic()
    pages.stop()
    assert time.monotonic() - began < 2.0
    visitor.close()


def test_a_port_is_listened_on_once(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert url_of(listener) == f"http://127.0.0.1:{port}/"
    with pytest.raises(Refused, match=f"address 127.0.0.1:{port} is taken"):
        listen(ServiceConfig(port=port))
    listener.close()
