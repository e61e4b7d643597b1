"""Who may ask, what may be asked, and what every answer carries, over a real socket."""

import base64
import http.client
import platform
import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from backupd import __version__
from backupd.service.machine_view import own_eyes
from backupd.service.site import Site
from backupd.service.web.application import application
from backupd.service.web.connections import LONGEST_HEAD
from tests.web.conftest import TOKEN, served

PROMISED = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
}


@pytest.fixture(scope="module")
def locked(site: Site) -> Iterator[httpx.Client]:
    """The same pages, for those who know the token."""
    with (
        served(application(site, own_eyes(site.configuration), token=TOKEN)) as url,
        httpx.Client(base_url=url, timeout=20) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def tokenless(site: Site) -> Iterator[str]:
    """Where nobody has set a token."""
    with served(application(site, own_eyes(site.configuration))) as url:
        yield url


def raw(address: str, target: str, *, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    """As it is written: a client of HTTP would tidy the path up."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        connection.putrequest(method, target, skip_host=host is not None)
        if host:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path", ["/", "/history", "/api/jobs", "/static/style.css", "/nothing", "/metrics", "/healthz"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_nothing_but_looking_is_possible(browser: httpx.Client, path: str, method: str) -> None:
    answer = browser.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert "read-only" in answer.text


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/static/style.css", "/nothing"])
def test_head_is_get_without_the_body(browser: httpx.Client, path: str) -> None:
    whole, head = browser.get(path), browser.head(path)

    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize(
    "path", ["/", "/history?from=x", "/api/jobs", "/api/runs?limit=x", "/static/style.css", "/nothing", "/healthz"]
)
def test_every_answer_carries_the_policy(browser: httpx.Client, path: str) -> None:
    headers = browser.get(path).headers

    assert {name: headers.get(name) for name in PROMISED} == PROMISED


def test_refusals_carry_the_policy_too(browser: httpx.Client, locked: httpx.Client, tokenless: str) -> None:
    strange = httpx.get(tokenless, headers={"Host": "evil.example"})
    for answer in (browser.post("/"), locked.get("/"), httpx.get(tokenless), strange):
        assert {name: answer.headers.get(name) for name in PROMISED} == PROMISED


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9476", "127.0.0.1.evil.example", "", "[::2]", "0.0.0.0"]
)
def test_a_name_that_is_not_ours_is_refused_without_a_token(tokenless: str, host: str) -> None:
    status, body = raw(tokenless, "/metrics", host=host or " ")

    assert status == 421 or (host == "" and status == 400)  # the server itself may refuse no host at all
    assert b"nightly" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9476", "[::1]:9476", "[::1]", "localhost."])
def test_this_machines_own_names_are_ours(tokenless: str, host: str) -> None:
    assert raw(tokenless, "/healthz", host=host) == (200, b"ok\n")


def test_with_a_token_any_name_will_do(locked: httpx.Client) -> None:
    answer = locked.get("/", headers={b"Host": b"db1.example.com", b"Authorization": f"Bearer {TOKEN}".encode()})

    assert answer.status_code == 200


# --- the token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/metrics", "/static/style.css", "/openapi.json", "/nothing"])
def test_without_the_token_nothing_is_told(locked: httpx.Client, path: str) -> None:
    answer = locked.get(path)

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="backupd", charset="UTF-8"')
    assert "nightly" not in answer.text


def test_nobody_learns_the_machines_name_or_our_version_by_being_refused(
    browser: httpx.Client, locked: httpx.Client, tokenless: str
) -> None:
    """A page from elsewhere could read it too: of its own name it may (DNS rebinding)."""
    told = [f" on {platform.node()}<", f"on {platform.node()}</title>", __version__]
    for answer in (locked.get("/"), httpx.get(tokenless, headers={"Host": "evil.example"})):
        assert [words for words in told if words in answer.text] == []
    known = browser.get("/").text
    assert [words for words in told if words not in known] == []


def basic(credentials: bytes) -> bytes:
    return b"Basic " + base64.b64encode(credentials)


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}".encode(), 200),
        (f"bearer  {TOKEN}".encode(), 200),
        (basic(f"anybody:{TOKEN}".encode()), 200),
        (basic(f":{TOKEN}".encode()), 200),
        (b"Bearer wrong", 401),
        (b"Bearer", 401),
        (b"Basic", 401),
        (b"Basic ====", 401),
        (b"Basic not base64", 401),
        (basic(TOKEN.encode()), 401),  # as the name, without a password
        (basic(f"{TOKEN}:".encode()), 401),
        (basic(f"anybody:{TOKEN}x".encode()), 401),
        (TOKEN.encode(), 401),
        (b"Digest username=x", 401),
        (b"Bearer \xff\xfe", 401),
    ],
)
def test_the_token_is_a_bearers_or_a_password(locked: httpx.Client, authorization: bytes, status: int) -> None:
    assert locked.get("/api/jobs", headers={b"Authorization": authorization}).status_code == status


@pytest.mark.parametrize(
    "path", ["/", "/history", "/runs/good", "/api/jobs", "/api/runs/good/live", "/openapi.json", "/static/style.css"]
)
def test_where_there_is_no_token_no_local_user_is_shown_a_page(tokenless: str, path: str) -> None:
    status, body = raw(tokenless, path)

    assert status == 403
    assert b"service.token_file" in body
    assert b"nightly" not in body
    assert platform.node().encode() not in body


def test_where_there_is_no_token_the_figures_are_told(tokenless: str) -> None:
    status, body = raw(tokenless, "/metrics")

    assert status == 200
    assert b'backupd_running{backup_job="nightly"}' in body


def test_health_is_told_to_everybody(locked: httpx.Client) -> None:
    assert locked.get("/healthz").text == "ok\n"


def test_a_token_that_is_empty_lets_nobody_in(site: Site) -> None:
    with pytest.raises(ValueError, match="empty"):
        application(site, own_eyes(site.configuration), token="")


# --- what is too much, and what leads elsewhere ----------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/history?job={}", "/api/runs?job={}", "/?{}", "/nothing?{}", "/{}"])
def test_an_address_of_many_pages_is_refused_with_a_sentence(address: str, target: str) -> None:
    status, body = raw(address, target.format("x" * 60_000))

    assert status == (404 if target == "/{}" else 414)
    assert re.search(rb"longer than 4096 bytes|no such page", body)


def test_a_megabyte_of_address_is_not_read(address: str) -> None:
    try:
        status, _ = raw(address, f"/{'x' * (1 << 20)}")
    except (ConnectionError, http.client.HTTPException):
        status = 400

    assert status == 400


def test_an_address_that_never_ends_is_refused_as_soon_as_it_is_too_long(address: str) -> None:
    url, begun = urlsplit(address), b"GET /"
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=60) as visitor:
        visitor.sendall(begun + b"x" * (LONGEST_HEAD + 1 - len(begun)))
        assert visitor.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_a_long_query_gets_a_sentence(browser: httpx.Client) -> None:
    answer = browser.get("/history?job=" + "x" * 5000)

    assert answer.status_code == 414
    assert "The query is longer than 4096 bytes." in answer.text


@pytest.mark.parametrize(
    "target",
    [
        "/static/../application.py",
        "/static/%2e%2e/application.py",
        "/static/..%2fapplication.py",
        "/static/..%5capplication.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/static//etc/passwd",
        "/static/%00",
        "/static/style.css%00.png",
        "/static/",
        "/static",
        "/static/../../../../../../../../etc/passwd",
        "/static/" + "a/" * 1000,
        "/static/" + "a" * 1000,
        "//etc/passwd",
        "/../etc/passwd",
        "/runs/..%2f..%2fetc%2fpasswd",
        "/api/runs/..%2f..%2fetc%2fpasswd",
    ],
)
def test_a_path_that_leads_elsewhere_leads_nowhere(address: str, target: str) -> None:
    status, body = raw(address, target)

    assert status in (404, 422), body
    assert b"root:" not in body
    assert b"import" not in body
