"""The process of a fleet's pages: whatever becomes of it, the control host goes on; it has nothing to be taken."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from backupd.fleet.records import Records
from backupd.policy.cluster_status import FleetShape
from backupd.service.fleet.listening import FleetPages, ShownFleet
from backupd.service.web_port import listen, require_guarded, url_of
from backupd.vocabulary.errors import ConfigurationError, Refused
from tests.fleet.many_nights import MadeFleet
from tests.service.conftest import TOKEN
from tests.service.prometheus import eventually


@dataclass(frozen=True)
class Place:
    """Any port of this machine's own."""

    address: str = "127.0.0.1"
    port: int = 0
    token_file: Path | None = None


def opened(made: MadeFleet, database: str, token: Path) -> FleetPages:
    shown = ShownFleet(made.shape, database, "127.0.0.1", own_control=("control1", 4711))
    pages = FleetPages(Place(token_file=token), shown, lambda _: None)
    pages.keep_up()
    return pages


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/fleet.db"
    records = Records.open(url)
    MadeFleet(hosts=6, nights=3).fill(records)
    records.engine.dispose()
    return url


@pytest.fixture
def pages(database: str, token: Path) -> Iterator[FleetPages]:
    pages = opened(MadeFleet(hosts=6, nights=3), database, token)
    yield pages
    pages.stop()


def asked(pages: FleetPages, path: str) -> httpx.Response:
    assert pages.listener is not None
    return httpx.get(url_of(pages.listener) + path, auth=("anybody", TOKEN), timeout=60)


def test_the_pages_are_there_again_when_their_process_was_killed(pages: FleetPages) -> None:
    assert asked(pages, "api/fleet").json()["clusters"]
    first = pages.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def another() -> bool:
        pages.keep_up()
        return pages.pid not in (None, first)

    eventually(another)
    assert asked(pages, "healthz").status_code == 200


def test_neither_its_command_line_nor_its_environment_has_the_token_or_the_database(pages: FleetPages) -> None:
    asked(pages, "healthz")
    for name in ("cmdline", "environ"):
        text = Path(f"/proc/{pages.pid}/{name}").read_bytes()
        assert TOKEN.encode() not in text
        assert b"fleet.db" not in text


def test_a_fleet_that_changes_is_shown_by_another_process_and_one_that_does_not_by_the_same(pages: FleetPages) -> None:
    made = MadeFleet(hosts=6, nights=3).shape
    asked(pages, "healthz")
    first = pages.pid
    pages.show(made)
    assert pages.pid == first
    pages.show(replace(made, clusters=made.clusters[:1]))
    assert pages.pid != first
    eventually(lambda: len(asked(pages, "api/fleet").json()["clusters"]), accept=lambda count: count == 1)


def test_a_large_fleet_is_handed_over_whole(database: str, token: Path) -> None:
    """More than a socket holds, to a process that is slow to begin."""
    made = MadeFleet(hosts=10_000, nights=0)
    pages = opened(made, database, token)
    try:
        assert len(asked(pages, "api/fleet").json()["clusters"]) == len(made.members)
    finally:
        pages.stop()


def test_a_port_that_is_taken_and_an_address_without_a_token_are_refused_by_their_names_in_the_file(
    pages: FleetPages,
) -> None:
    assert pages.listener is not None
    taken = pages.listener.getsockname()[1]
    with pytest.raises(Refused, match=f"127.0.0.1:{taken}") as refused:
        listen(Place(port=taken), table="control")
    assert "control.port" in refused.value.hint
    with pytest.raises(ConfigurationError, match=r"control\.address") as unguarded:
        require_guarded(Place("0.0.0.0"), table="control")
    assert "control.token_file" in unguarded.value.hint


def test_a_shape_is_the_same_when_it_was_handed_over() -> None:
    from pydantic import TypeAdapter

    made = MadeFleet(hosts=20, nights=0).shape
    adapter = TypeAdapter(FleetShape)
    assert adapter.validate_python(adapter.dump_python(made, mode="json")) == made
