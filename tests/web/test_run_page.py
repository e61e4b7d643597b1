"""The page of a run and what its script asks for, without a browser."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest

from backupd.host.run_log import RunLogs
from tests.web.conftest import HOSTILE


@pytest.fixture
def log(folder: Path) -> Iterator[Path]:
    """Of the run that goes on."""
    path = RunLogs(folder / "log").path("going")
    path.parent.mkdir(exist_ok=True)
    path.write_text("first\n" + f"{HOSTILE}\n" * 300 + "last\n")
    yield path
    path.unlink()


@pytest.mark.parametrize("run_id", ["nothing", "latest", "goo", "..%2f..%2fetc%2fpasswd", "%00", "x" * 3000])
def test_what_is_no_run_s_whole_id_is_not_found(browser: httpx.Client, run_id: str) -> None:
    assert browser.get(f"/runs/{run_id}").status_code in (404, 414)
    assert browser.get(f"/api/runs/{run_id}/live").status_code in (404, 414, 422)


def test_a_live_run_tells_how_it_gets_on(browser: httpx.Client) -> None:
    told = browser.get("/api/runs/going/live").json()
    assert (told["run_id"], told["status"], told["alive"]) == ("going", "running", True)
    assert (told["phase"], told["words"], told["share"]) == ("copy", "copying", 0.25)
    assert told["detail"].startswith("25%: 25.0 MiB of at most 100.0 MiB, 512.0 KiB/s, about ")


def test_an_ended_run_tells_that_nothing_more_comes(browser: httpx.Client) -> None:
    told = browser.get("/api/runs/good/live").json()
    assert (told["status"], told["alive"], told["phase"], told["share"]) == ("success", False, None, None)


def test_the_page_has_everything_of_a_good_run(browser: httpx.Client) -> None:
    text = unescape(browser.get("/runs/good").text)
    for words in ("/backups/nightly/good", "held 31 ms", "opened after", "Proven", "4.00x at first", "<svg"):
        assert words in text
    assert "data-live" not in text


def test_each_change_of_the_copy_s_speed_is_on_the_page_with_its_reason(browser: httpx.Client) -> None:
    text = unescape(browser.get("/runs/good").text)
    told = re.findall(r"<(?:dt|th)[^>]*>(Speed after [^<]+)</(?:dt|th)>\s*<(?:dd|td)[^>]*>([^<]+)<", text)
    assert told == [
        ("Speed after 1 min 05 s", "50% (20.0 MiB/s): any faster, the copy would exceed its budget"),
        ("Speed after 2 min 10 s", "100% (40.0 MiB/s): the server is not writing"),
    ]
    assert "Speed after" not in browser.get("/runs/bad").text


def test_what_a_host_said_is_text_in_the_error_and_in_the_log(browser: httpx.Client, log: Path) -> None:
    for run_id in ("bad", "going"):
        page = browser.get(f"/runs/{run_id}").text
        assert "alert(" in page
        assert "<script>alert" not in page
        assert "\x1b" not in page


def test_the_log_s_last_two_hundred_lines_are_shown(browser: httpx.Client, log: Path) -> None:
    shown = unescape(browser.get("/runs/going").text.partition('<pre class="log"')[2].partition("</pre>")[0])
    lines = shown.partition(">")[2].splitlines()
    assert len(lines) == 200
    assert lines[-1] == "last"
    assert "first" not in lines


@pytest.mark.parametrize(
    ("name", "said"), [("uPlot.iife.min.js", "uPlot (v1.6.32)"), ("uPlot.min.css", ".uplot"), ("LICENSE", "MIT")]
)
def test_the_plotting_library_is_served_from_here_with_its_licence(browser: httpx.Client, name: str, said: str) -> None:
    answer = browser.get(f"/static/vendor/uplot/{name}")
    assert answer.status_code == 200
    assert said in answer.text
