"""Where the pages listen, and what their process is handed; that one comes back is asked of real ones elsewhere."""

import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from backupd.config import Configuration, ServiceConfig
from backupd.config.effective import as_toml
from backupd.config.reading import understood
from backupd.service import pages_process
from backupd.service.listening import WebProcess, shown_of
from backupd.service.web_port import listen
from backupd.vocabulary.errors import ConfigurationError, Refused


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the monotonic clock shows to whoever keeps pages up."""
    shown = [time.monotonic()]
    monkeypatch.setattr(pages_process, "time", SimpleNamespace(monotonic=lambda: shown[0]))
    return shown


def test_a_port_that_is_taken_is_ours_within_a_minute_of_its_being_free_however_long_that_takes(
    clock: list[float],
) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        pages = WebProcess(Configuration(service=ServiceConfig(port=port)), say=said.append)
        with pytest.raises(Refused, match=f"address 127.0.0.1:{port} is taken"):
            pages.open()
        for _ in range(1030):  # powers of two come to an end at 1024
            pages.keep_up()
            assert isinstance(pages.lacking, Refused)
            clock[0] += 60.0
    pages.keep_up()
    pages.stop()
    assert (pages.lacking, said[0]) == (None, f"pages and metrics: http://127.0.0.1:{port}/")


def test_a_name_server_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr("backupd.service.web_port._NAME_SECONDS", 0.01)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: asked.wait(60))
    try:
        with pytest.raises(ConfigurationError, match="db1:9476 cannot be used for listening: no answer for"):
            listen(ServiceConfig(address="db1"), table="service")
    finally:
        asked.set()


def test_what_is_handed_on_reads_as_it_was_without_hooks_and_without_who_is_told(tmp_path: Path) -> None:
    """The address of a webhook lets whoever knows it write there."""
    hook = {"when": ["before-lock"], "command": ["/usr/bin/notify", "--password=s3cr3t"]}
    whole = TypeAdapter(Configuration).validate_python(
        {
            "hosts": {"db1": {"socket": "/run/s", "user": "backup"}},
            "targets": {"vault": {"type": "directory", "path": str(tmp_path)}},
            "jobs": {"nightly": {"host": "db1", "targets": ["vault"], "hooks": {"tell": hook}}},
            "notifications": {"chat": {"type": "webhook", "url": "https://chat/s3cr3t", "on": ["failed"]}},
        }
    )
    handed = as_toml(shown_of(whole))
    assert "s3cr3t" not in handed
    read = understood(handed, tmp_path)
    assert (read.hosts, read.targets, read.service) == (whole.hosts, whole.targets, whole.service)
    assert read.jobs["nightly"].schedules == whole.jobs["nightly"].schedules


@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent"])
def test_one_that_cannot_live_is_tried_again_later_and_keeps_nobody_waiting(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    pages = WebProcess(Configuration(service=ServiceConfig(port=0)), say=lambda _: None)

    def keep_up_until(said: str) -> None:
        deadline = time.monotonic() + 60
        while said not in caplog.text:
            assert time.monotonic() < deadline
            pages.keep_up()
            time.sleep(0.01)

    keep_up_until("restarting it in 1 s")
    for _ in range(10):
        pages.keep_up()  # its clock stands still: who waited for that second would do so for ever
    assert pages.pid is None
    clock[0] += 1.0
    keep_up_until("restarting it in 2 s")
    pages.stop()
