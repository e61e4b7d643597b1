"""What the pages show of a catalogue, without a browser: text, links, and nothing that a host smuggled in."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from backupd.catalogue.store import Catalogue
from backupd.config import DirectoryConfig
from backupd.service.site import Site
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.storage import Backup
from tests.web.conftest import configured, served, shown

PAGES = ("/", "/history", "/schedule", "/targets", "/api")


class _Seen(HTMLParser):
    """Text and links of a page, and whatever its policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.labelled: list[str] = []
        self.forbidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [found.get("href") or ""] if tag == "a" else []
        self.ids += [found["id"] or ""] if "id" in found else []
        self.labelled += [found.get("for") or ""] if tag == "label" else []
        inline = [name for name in found if name == "style" or name.startswith("on")]
        if inline or tag == "style" or (tag == "script" and "src" not in found):
            self.forbidden.append(f"{tag} {inline}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


def seen(browser: httpx.Client, path: str, *, status: int = 200) -> _Seen:
    answer = browser.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    parser = _Seen()
    parser.feed(answer.text)
    return parser


def test_the_overview_says_how_each_job_stands(browser: httpx.Client) -> None:
    words = seen(browser, "/").words

    assert "3 jobs, 2 with an alarm , 1 running" in words
    assert "2.0 GiB on disk" in words
    assert "25%: 25.0 MiB of at most 100.0 MiB, 512.0 KiB/s" in words
    assert "512.0 KiB/s, about 2 min 25 s left" in words
    assert "there is no good backup" in words
    assert "the machine was off" in words
    assert "paused: the <b>disks</b> are changed" in words


def test_the_overview_does_not_show_a_copy_that_is_gone_or_broken_as_stored(tmp_path: Path) -> None:
    copies = tuple(Backup(name, "/v", 5 << 30, 2 << 30, 12, "ab" * 32) for name in ("disk", "s3", "tape"))
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        with catalogue.open_run("nightly", "db1", run_id="r1") as run:
            run.complete(copies)
        catalogue.vanished(("r1",), "s3", because="no longer on the target", told_with=None)
        catalogue.found_broken("r1", "tape", "a digest differs")
        with (
            served(shown(Site(configured(tmp_path), catalogue))) as url,
            httpx.Client(base_url=url, timeout=20) as client,
        ):
            words = seen(client, "/").words
    assert "Stored 2.0 GiB on disk, gone from s3, BROKEN on tape" in words.replace(" ,", ",")


def test_what_came_from_a_host_is_shown_as_text(browser: httpx.Client) -> None:
    for path in ("/", "/history", "/history?job=%3Cscript%3Ealert(1)%3C/script%3E"):
        page = browser.get(path).text
        assert "<script>alert" not in page
        assert "\x1b" not in page
    assert "&lt;script&gt;alert" in browser.get("/").text


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/history?from=x"])
def test_every_page_keeps_its_own_policy_and_its_skip_link(browser: httpx.Client, path: str) -> None:
    parser = _Seen()
    parser.feed(browser.get(path).text)

    assert parser.forbidden == []
    assert parser.links[0] == "#content"
    assert "content" in parser.ids
    assert len(parser.ids) == len(set(parser.ids))
    assert set(parser.labelled) <= set(parser.ids)


@pytest.mark.parametrize("path", PAGES)
def test_every_link_on_a_page_leads_somewhere(browser: httpx.Client, path: str) -> None:
    inside = {link for link in seen(browser, path).links if link.startswith("/") and not link.startswith("/runs/")}

    assert {link: browser.get(link).status_code for link in inside} == dict.fromkeys(inside, 200)


def test_the_history_shows_what_runs_cost(browser: httpx.Client) -> None:
    words = seen(browser, "/history?job=nightly&outcome=good").words

    for figure in ("31 ms", "4.00x", "1.25x", "1 min 02 s", "51.2 MiB/s", "2.0 GiB"):
        assert figure in words, words
    assert "going" not in words
    assert "Stalled" in words


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {"good", "bad", "going"}),
        ("job=shop", {"bad"}),
        ("job=gone", set()),
        ("outcome=failed", {"bad"}),
        ("outcome=running", {"going"}),
        ("outcome=other", set()),
        ("from=2020-01-01&to=9999-12-31", {"good", "bad", "going"}),
        ("to=2020-01-01", set()),
        ("from=9999-12-31", set()),
        ("job=&from=&to=&outcome=&before=", {"good", "bad", "going"}),  # a form without a choice
        ("before=bad", {"good"}),
    ],
)
def test_the_history_is_filtered(browser: httpx.Client, query: str, shown: set[str]) -> None:
    links = seen(browser, f"/history?{query}").links

    assert {link.removeprefix("/runs/") for link in links if link.startswith("/runs/")} == shown


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("from=x", 400, '"from" is not a date'),
        ("to=2026-02-30", 400, '"to" is not a date'),
        ("from=0000-01-01", 400, '"from" is not a date'),
        ("outcome=splendid", 400, '"outcome" is not a known outcome'),
        ("before=nothing", 404, "o run nothing to continue after"),
        ("job=%00", 200, "No matching run"),
        ("job=%ff%fe", 200, "No matching run"),
        ("job=a&job=b", 200, "No matching run"),
    ],
)
def test_a_filter_that_makes_no_sense_gets_a_sentence(
    browser: httpx.Client, query: str, status: int, said: str
) -> None:
    assert said in seen(browser, f"/history?{query}", status=status).words


def test_the_schedule_tells_both_clocks_and_what_became_of_slots(browser: httpx.Client) -> None:
    words = seen(browser, "/schedule").words

    assert "0 4 * * * Europe/Berlin" in words
    assert re.search(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) 04:00", words)
    assert "missed the machine was off" in words
    assert "failed verification" in words


def test_the_schedule_says_why_its_run_has_failed(tmp_path: Path) -> None:
    at = datetime.now(UTC) - timedelta(minutes=1)
    slot = Slot("nightly", Activity.BACKUP, at, SlotState.STARTED, at, run_id="r1")
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        with pytest.raises(ServerError), catalogue.open_run("nightly", "db1", run_id="r1"):
            raise ServerError("<b>the server</b> has gone away")
        catalogue.take_slot(slot)
        catalogue.slot_ended(slot, exit_status=6)
        with (
            served(shown(Site(configured(tmp_path), catalogue))) as url,
            httpx.Client(base_url=url, timeout=20) as client,
        ):
            words = seen(client, "/schedule").words
            (line,) = [one for one in client.get("/api/schedule").json()["lines"] if one["error"]]
    assert "failed server or lock: <b>the server</b> has gone away" in words
    assert (line["job"], line["error"]) == ("nightly", "<b>the server</b> has gone away")


def test_what_a_clock_that_was_ahead_has_left_is_not_among_what_was_due(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        for due_at, why in ((now - timedelta(minutes=1), "a blackout"), (now + timedelta(days=300), "a clock ahead")):
            catalogue.take_slot(Slot("nightly", Activity.DRILL, due_at, SlotState.MISSED, now, reason=why))
        with (
            served(shown(Site(configured(tmp_path), catalogue))) as url,
            httpx.Client(base_url=url, timeout=20) as client,
        ):
            words = seen(client, "/schedule").words
    assert "missed a blackout" in words
    assert "a clock ahead" not in words


def test_a_folder_is_looked_at_once_for_the_metrics_and_for_the_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []

    def room(path: Path) -> tuple[int, int, bool]:
        looked.append(path)
        return 4096, 8192, False

    monkeypatch.setattr("backupd.service.target_rooms.room", room)
    with served(shown(site)) as url, httpx.Client(base_url=url, timeout=20) as client:
        for path in ("/metrics", "/targets", "/metrics"):
            assert client.get(path).status_code == 200
    assert looked == [
        target.path for target in site.configuration.targets.values() if isinstance(target, DirectoryConfig)
    ]


def test_targets_are_told_without_secrets(browser: httpx.Client) -> None:
    page = seen(browser, "/targets")

    assert "1 Stored 2.0 GiB Free" in page.words
    assert "safe/" in page.words
    assert "secret" not in page.words


def test_the_catalogue_answers_for_the_daemons_health_and_metrics(browser: httpx.Client) -> None:
    assert browser.get("/healthz").text == "ok\n"
    metrics = browser.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert "backupd_catalogue_up 1.0" in metrics.text
