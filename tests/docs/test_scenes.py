"""What the pages print of each scene is what it shows today, figures, dates, keys and what depends on them aside."""

import re
from pathlib import Path

import pytest

from tests.docs import examples, stage
from tests.docs.places import ROOT

_OF_THIS_TIME = re.compile(
    r"backupd-ed25519:\S+|SHA256:\S+|\w+ \(uid \d+\)|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?=\d)|[0-9a-f]{8,}"
    r"|\d[\d.,:TZ-]*(?: ?(?:ms|s|min|h|d|days?|[KMGT]?i?B)\b)*(?:/s|x\b)?"
)
_LONG = {"auditor", "cow_area", "moving", "service"}


def lasting(text: str) -> str:
    """What is the same whenever, and on whichever machine, it is shown."""
    return re.sub(r"N(?: N)+", "N", re.sub(r"[ -]+", " ", _OF_THIS_TIME.sub("N", text)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in _LONG else []) for name in stage.ON_FAKES]
)
def test_the_pages_print_what_a_scene_shows(name: str, path_in_memory: Path) -> None:
    printed = examples.parts(stage.played(name, path_in_memory))
    asked = [(path, one, text) for path, one, text in examples.wanted() if one.source == name]
    there = {(str(path.relative_to(ROOT)), one.command): lasting(text) for path, one, text in asked}
    now = {(str(path.relative_to(ROOT)), one.command): lasting(examples.shown(one, printed)) for path, one, _ in asked}
    assert there == now, f"run `make docs-examples ONLY={name}`"
    assert asked


def test_every_scene_is_played_somewhere() -> None:
    there = {path.stem for path in (ROOT / "tests/docs/scenes").glob("*.py")}
    assert there == set(stage.SCENES)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("vault: 958 B in 66 ms, read back", "vault: 1.9 KiB in 1.2 s, read back"),
        ("Sun 2026-11-29 03:30:00  4h", "Fri 2027-01-01 03:30:00  4h"),
        ("BY             TOOK", "BY              TOOK"),
        ("the copy takes 1 min 30 s", "the copy takes 29 s"),
    ],
)
def test_figures_and_dates_do_not_last(then: str, now: str) -> None:
    assert lasting(then) == lasting(now)


def test_words_last() -> None:
    assert lasting("no room on target vault") != lasting("no room on target old")
