"""A real browser on a real daemon's pages: what it complains of, and what it shows.

Knows: Debian's chromium through playwright, and the sizes at which pages are looked at. Refuses to know the pages.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, Playwright

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 120_000  # with a busy machine, where a page's own default is 30 s
_FACTS = Path(__file__).with_name("facts.js").read_text()
_VIOLATIONS = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.violations.push(`${event.violatedDirective}: ${event.blockedURI || event.sourceFile}`));
"""
_DRAWN = """() => {
    const places = [...document.querySelectorAll("[data-plot], [data-impact]")];
    return places.every((place) => place.querySelector("canvas"));
}"""


class Look(StrEnum):
    """How a person may have it."""

    DESKTOP = "desktop"
    DARK = "desktop-dark"
    PHONE = "phone"
    PHONE_DARK = "phone-dark"

    @property
    def size(self) -> tuple[int, int]:
        """CSS pixels; the phone is as narrow as they come."""
        return (360, 780) if self.name.startswith("PHONE") else (1280, 800)

    @property
    def scheme(self) -> Literal["light", "dark"]:
        """What the reader has chosen in their system."""
        return "dark" if self.name.endswith("DARK") else "light"


@dataclass
class Looked:
    """What was found on one page under one look."""

    status: int
    facts: dict[str, Any]
    complaints: list[str] = field(default_factory=list)


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Debian's, without a window; its sandbox refuses to be started by root."""
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=alone, timeout=PATIENCE_MS)
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, look: Look = Look.DESKTOP, *, scripts: bool = True) -> Iterator[Page]:
    """A page as it stands when all that it asks for has come."""
    width, height = look.size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=look.scheme, java_script_enabled=scripts
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        page.goto(address)
        if scripts:
            page.wait_for_function(_DRAWN)
        yield page
    finally:
        context.close()


def look_at(browser: Browser, address: str, look: Look, *, picture: Path | None = None) -> Looked:
    """Open the page, listen to what the browser complains of, and tell what is on it."""
    width, height = look.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look.scheme)
    context.set_default_timeout(PATIENCE_MS)
    try:
        context.add_init_script(_VIOLATIONS)
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        answer = page.goto(address)
        assert answer is not None
        page.wait_for_function(_DRAWN)
        facts = page.evaluate(_FACTS)
        complaints += page.evaluate("window.violations")
        if answer.status >= 400:  # that is told on the console too
            complaints = [text for text in complaints if f"status of {answer.status}" not in text]
        if picture is not None:
            page.screenshot(path=picture, full_page=True)
        return Looked(answer.status, facts, complaints)
    finally:
        context.close()
