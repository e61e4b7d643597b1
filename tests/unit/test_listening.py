"""Where the pages listen, and what their process is handed; that one comes back is asked of real ones elsewhere."""

import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from backupd.config import Configuration, ServiceConfig
from backupd.config.effective import as_toml
from backupd.config.reading import understood
from backupd.service import pages_process
from backupd.service.listening import WebProcess, listen, shown_of, url_of
from backupd.vocabulary.errors import Refused

ANY_PORT = ServiceConfig(port=0)


@pytest.fixture
def listener() -> socket.socket:
    """Closed by whoever serves on it."""
    return listen(ANY_PORT)


def test_a_port_is_listened_on_once(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert url_of(listener) == f"http://127.0.0.1:{port}/"
    with pytest.raises(Refused, match=f"address 127.0.0.1:{port} is taken"):
        listen(ServiceConfig(port=port))
    listener.close()


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
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    clock = [time.monotonic()]
    monkeypatch.setattr(pages_process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    pages = WebProcess(listener, Configuration(), token=None)

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
