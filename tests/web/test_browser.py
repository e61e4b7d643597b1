"""Every page in a real browser: it complains of nothing, everybody can read and reach everything, scripts or not.

Set BACKUPD_PICTURES to a folder to have pictures of all pages there.
"""

import os
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backupd.host.live_progress import LiveRuns, Progress
from backupd.service.site import Site
from backupd.service.web.guard import HEADERS
from backupd.vocabulary.records import Phase
from tests.web.browsing import PATIENCE_MS, Look, Looked, look_at, opened
from tests.web.conftest import served, shown
from tests.web.sample import ATTENTION, FAILED, GOOD, LIVE, NOW, end, sample_site

expect.set_options(timeout=PATIENCE_MS)

PAGES = {
    "overview": "/",
    "history": "/history",
    "history-of-a-job": "/history?job=sample-shop",
    "run-live": f"/runs/{LIVE}",
    "run": f"/runs/{GOOD}",
    "run-failed": f"/runs/{FAILED}",
    "run-attention": f"/runs/{ATTENTION}",
    "schedule": "/schedule",
    "targets": "/targets",
    "archive": "/binlog/sample-shop",
    "not-found": "/runs/nothing",
}
_SAID = {  # what a page is for, which must be there without scripts
    "overview": ("sample-shop", "sample-archive", "copying", "43%: 22.6 GiB of at most 52.5 GiB", "left"),
    "history": ("sample-shop-failed", "sample-shop-good"),
    "history-of-a-job": ("sample-shop-failed",),
    "run-live": ("copying", "43%", "preflight: begun", "opened after"),
    "run": ("binlog.001199", "vault", "offsite", "verification", "backup-stage"),
    "run-failed": ("above limits.max_penalty", "Hint:", "aborted the backup"),
    "run-attention": ("target offsite dropped out of this run",),
    "schedule": ("30 3 * * *", "sample-archive"),
    "targets": ("vault", "offsite"),
    "archive": (
        "running, asked the server 19 s ago",
        "18.0 KiB when the server was asked",
        "no longer has binlog.001196",
    ),
    "not-found": ("no run",),
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a daemon's pages of some weeks."""
    with sample_site(tmp_path_factory.mktemp("pages")) as site, served(shown(site)) as address:
        yield address


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Site, str]]:
    """Pages of one live run, for a test that changes it."""
    with sample_site(tmp_path, nights=2) as site, served(shown(site)) as address:
        yield site, address


@cache
def _looked(chrome: Browser, address: str, page: str, look: Look) -> Looked:
    """Each page is opened once, however much is asked of it."""
    folder = os.environ.get("BACKUPD_PICTURES")
    picture = Path(folder) / f"{page}-{look}.png" if folder else None
    return look_at(chrome, address + PAGES[page], look, picture=picture)


LOOKS = [
    *(Look.DESKTOP, Look.PHONE),
    *(pytest.param(dark, marks=pytest.mark.matrix) for dark in (Look.DARK, Look.PHONE_DARK)),
]


@pytest.fixture(scope="module", params=LOOKS)  # of a module: what is asked of one page comes one after the other
def look(request: pytest.FixtureRequest) -> Look:
    """Wide and narrow, light and dark."""
    chosen: Look = request.param
    return chosen


@pytest.fixture(scope="module", params=list(PAGES))
def name(request: pytest.FixtureRequest) -> str:
    """A page's name."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def looked(chrome: Browser, pages: str, name: str, look: Look) -> Looked:
    """What is on it."""
    return _looked(chrome, pages, name, look)


_BAD_PAGE = """<!DOCTYPE html><html><body><h1 id="a">A page</h1><h3 id="a">of faults</h3>
<p class="faint">hardly seen</p><input name="nobody"><p aria-labelledby="nothing">wide</p>
<img src="https://localhost:1/elsewhere.png" width="3000" height="5"><script>console.log("ran")</script>
</body></html>"""


async def _bad_page(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" and scope["path"] == "/faint.css":
        await Response(".faint { color: #aaaaaa; }", media_type="text/css")(scope, receive, send)
    elif scope["type"] == "http":
        page = _BAD_PAGE.replace("<body>", '<head><link rel="stylesheet" href="/faint.css"></head><body>')
        await Response(page, media_type="text/html", headers=dict(HEADERS))(scope, receive, send)


def test_what_is_looked_for_is_found_where_it_is(chrome: Browser) -> None:
    with served(_bad_page) as address:
        found = look_at(chrome, address, Look.DESKTOP)
    assert any(text.startswith("script-src") for text in found.complaints)
    assert any(text.startswith("img-src") for text in found.complaints)
    assert found.facts["faint"] == ['2.32: p "hardly seen"']
    assert found.facts["unlabelled"] == ['input ""', 'img ""']
    assert (found.facts["dangling"], found.facts["twice"]) == (["nothing"], ["a"])
    assert found.facts["overflow"] > 0
    assert found.facts["headings"] == [1, 3]
    assert found.facts["inline"] == 1
    assert found.facts["elsewhere"] == ["https://localhost:1/elsewhere.png"]


def test_a_page_is_there(looked: Looked, name: str) -> None:
    assert looked.status == (404 if name == "not-found" else 200)
    assert looked.facts["texts"] > 5


def test_the_browser_has_nothing_to_complain_of_the_policy_included(looked: Looked) -> None:
    assert looked.complaints == []


def test_a_page_has_no_script_or_style_of_its_own_and_nothing_from_elsewhere(looked: Looked) -> None:
    assert (looked.facts["inline"], looked.facts["elsewhere"]) == (0, [])


def test_a_page_fits_its_window(looked: Looked) -> None:
    assert looked.facts["overflow"] <= 0, looked.facts["wide"]


def test_every_text_stands_out_from_what_is_behind_it(looked: Looked) -> None:
    assert looked.facts["faint"] == []


def test_everything_that_is_no_text_has_a_name(looked: Looked) -> None:
    assert (looked.facts["unlabelled"], looked.facts["dangling"], looked.facts["twice"]) == ([], [], [])


def test_a_page_says_what_it_is_and_its_headings_leave_no_level_out(looked: Looked) -> None:
    facts = looked.facts
    assert facts["language"] == "en"
    assert facts["title"]
    assert facts["landmarks"] == ["header", "nav", "main"]
    levels = facts["headings"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


_STOPS_OF_A_DAY = 3  # beside its first: a field for a day has day, month, year and a calendar
_NUMBER_THE_STOPS = """() =>
    [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
        .filter((one) => one.checkVisibility()).map((one, index) => one.dataset.stop = String(index))"""
_STOP = """() => {
    const { dataset, outerHTML } = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
    return [dataset.stop ?? null, outlineStyle !== "none" && parseFloat(outlineWidth) > 0, outerHTML.slice(0, 80)];
}"""


def test_the_tabulator_reaches_everything_in_its_order_and_shows_where_it_is(
    chrome: Browser, pages: str, name: str
) -> None:
    with opened(chrome, pages + PAGES[name]) as page:
        wanted = page.evaluate(_NUMBER_THE_STOPS)
        days = page.locator("input[type=date]").count()
        reached, unseen = [], []
        for _ in range(len(wanted) + _STOPS_OF_A_DAY * days):
            page.keyboard.press("Tab")
            number, seen, said = page.evaluate(_STOP)
            if number is not None and number not in reached:
                reached.append(number)
                unseen += [] if seen else [said]
        assert reached == wanted
        assert unseen == []


def test_a_page_says_all_that_it_is_for_without_scripts(chrome: Browser, pages: str, name: str) -> None:
    with opened(chrome, pages + PAGES[name], scripts=False) as page:
        said = " ".join(page.locator("main").inner_text().split())
        assert [words for words in _SAID[name] if words not in said] == []


def test_without_scripts_a_live_page_comes_anew_by_itself_and_an_ended_one_does_not(
    chrome: Browser, pages: str
) -> None:
    for name, count in (("run-live", 1), ("run", 0)):
        with opened(chrome, pages + PAGES[name], scripts=False) as page:
            assert page.locator("meta[http-equiv=refresh]").count() == count


# --- plots -----------------------------------------------------------------------------------------------------------

_PAINTED = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add(data.slice(i, i + 3).join());
    return [...found];
}"""


def _painted_with(colour: str) -> str:
    return f"""() => ({_PAINTED})(document.querySelector(".plot canvas")).includes("{colour}")"""


@pytest.mark.parametrize("address", [f"/runs/{GOOD}", "/history?job=sample-shop"])
@pytest.mark.parametrize("look", [Look.DESKTOP, Look.DARK, Look.PHONE])
def test_plots_are_drawn_in_the_colours_of_the_page(chrome: Browser, pages: str, address: str, look: Look) -> None:
    with opened(chrome, pages + address, look) as page:
        expect(page.locator(".plot canvas").first).to_be_visible()
        colour = page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--s0').trim()")
        wanted = ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
        for canvas in page.locator(".plot canvas").all():
            assert wanted in canvas.evaluate(_PAINTED)


def test_plots_follow_when_the_reader_changes_to_dark(chrome: Browser, pages: str) -> None:
    with opened(chrome, f"{pages}/runs/{GOOD}") as page:
        page.wait_for_function(_painted_with("31,95,208"))
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(_painted_with("127,176,255"))


def test_a_plot_becomes_as_wide_as_its_place(chrome: Browser, pages: str) -> None:
    with opened(chrome, f"{pages}/runs/{GOOD}") as page:
        page.set_viewport_size({"width": 360, "height": 700})
        page.wait_for_function("() => document.querySelector('.plot canvas').getBoundingClientRect().right <= 360")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_without_scripts_a_run_has_its_picture(chrome: Browser, pages: str) -> None:
    with opened(chrome, f"{pages}/runs/{GOOD}", scripts=False) as page:
        expect(page.locator("figure svg").first).to_be_visible()
    with opened(chrome, f"{pages}/runs/{GOOD}") as page:
        expect(page.locator("figure svg").first).to_be_hidden()


# --- a live run ------------------------------------------------------------------------------------------------------


def test_a_live_run_s_progress_goes_on_without_a_reload_and_its_end_is_seen(
    chrome: Browser, changing: tuple[Site, str]
) -> None:
    site, address = changing
    with opened(chrome, f"{address}/runs/{LIVE}") as page:
        page.evaluate("() => { window.same = true }")
        expect(page.locator("[data-part=detail]")).to_contain_text("43%")
        at = NOW.timestamp()
        LiveRuns(site.configuration.paths.run).tell(LIVE, Progress(Phase.COPY, at - 210, at, done=75, total=100))
        expect(page.locator("[data-part=detail]")).to_contain_text("75%")
        assert page.locator("progress").evaluate("(bar) => bar.value") == 0.75
        assert page.evaluate("() => window.same")
        end(site.catalogue, LIVE)
        expect(page.locator("main .status").first).to_have_text("failed")
        expect(page.locator("[data-live]")).to_have_count(0)
