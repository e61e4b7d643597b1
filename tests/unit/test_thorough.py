"""What `make check` leaves out is named by what there is, and tried by another target."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import share, thorough
from tests.lab.test_job import CONTRACTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (folder, name)
        for named in (thorough.QUICK, thorough.LONG, thorough.ON_SERVERS)
        for folder in named
        for name in named[folder]
    ],
)
def test_every_module_that_is_named_is_there(folder: str, name: str) -> None:
    assert (ROOT / "tests" / folder / f"{name}.py").is_file()


def test_what_is_begun_first_is_there() -> None:
    assert [name for name in thorough.BEGUN_FIRST if len([*(ROOT / "tests").glob(f"*/{name}.py")]) != 1] == []


def test_the_test_that_is_quick_on_every_store_is_there() -> None:
    assert f"\ndef {thorough.ON_STORES}(" in (ROOT / "tests" / "contract" / "test_targets.py").read_text()


def test_of_what_one_target_leaves_out_another_one_tries_all() -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = re.findall(
        r"^([a-z-]+):[^\n]*\n\t[^\n]*\$\(SIDE_BY_SIDE\) ([^\n]+) -m (\"[^\"]+\"|\w+)$", makefile, re.MULTILINE
    )
    assert {target: (folders, chosen) for target, folders, chosen in found} == {
        "tests": ("$(QUICK)", '"not thorough and not exhaustive and not matrix"'),
        "thorough-tests": (
            "-n 4 --durations=60 $(or $(OF),$(THOROUGH))",
            '"(thorough or exhaustive or hypothesis) and not figures and not matrix"',
        ),
        "thorough-matrix": ("$(THOROUGH)", "matrix"),
        "docker-tests": ("-n 6 tests/docker --timeout=900 --durations=10", '"not matrix"'),
        "docker-matrix": ("tests/docker --timeout=900 --durations=10", "matrix"),
    }
    folders = dict(re.findall(r"^(\w+) := \$\(addprefix tests/,([a-z ]+)\)(?: \$\(QUICK\))?$", makefile, re.MULTILINE))
    assert set(thorough.FOLDERS) <= set(folders["QUICK"].split())
    assert sorted(folders["THOROUGH"].split()) == sorted(thorough.WHOLE)
    (needed,) = re.findall(r"^test: ([a-z -]+)", makefile, re.MULTILINE)
    (needed_in_the_end,) = re.findall(r"^test-all: (test [a-z -]+)", makefile, re.MULTILINE)
    assert {"check", "thorough-tests", "docker-tests"} <= set(needed.split())
    assert {"thorough-matrix", "docker-matrix"} <= set(needed_in_the_end.split())


@pytest.mark.parametrize(
    ("part", "tried", "of_a_seed"),
    [
        (share.Share.QUICK, (5, 10, 4), 200),
        (share.Share.USUAL, (50, 100, 4), 200),
        (share.Share.FULL, (50, 100, 4), 1000),
    ],
)
def test_a_share_is_a_number_of_examples_and_never_none(
    monkeypatch: pytest.MonkeyPatch, part: share.Share, tried: tuple[int, ...], of_a_seed: int
) -> None:
    monkeypatch.setattr(share, "SHARE", part)
    assert tuple(map(share.examples, (50, 100, 4))) == tried
    assert share.seeded(1000, usual=200) == of_a_seed


def test_what_is_tried_in_turn_is_one_in_so_many_and_all_together() -> None:
    cases, things = {"verify", "restore", "drill"}, [f"attack {number}" for number in range(20)]
    tried = {thing: share.in_turn(cases, thing, one_in=2) for thing in things}
    assert {len(found) for found in tried.values()} == {1, 2}
    assert {case for found in tried.values() for case in found} == cases
    assert tried == {thing: share.in_turn(cases, thing, one_in=2) for thing in things}
    assert share.in_turn({"verify"}, "attack 1", one_in=2) == ["verify"]
    assert share.in_turn(set[str](), "attack 1", one_in=2) == []


def test_in_full_nothing_is_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "SHARE", share.Share.FULL)
    assert share.in_turn({"verify", "restore"}, "attack 1", one_in=2) == ["restore", "verify"]


def test_what_the_lab_s_tests_leave_out_other_targets_try_before_a_release() -> None:
    makefile = (ROOT / "Makefile").read_text()
    asked = dict(
        re.findall(r"^([a-z-]+):[^\n]*\n\t[^\n]* tests/lab [^\n]* -m (\"[^\"]+\"|\w+)$", makefile, re.MULTILINE)
    )
    assert asked == {"lab-tests": '"not figures and not matrix"', "figure-tests": "figures", "lab-matrix": "matrix"}
    (needed,) = re.findall(r"^test-all: (test [a-z -]+)", makefile, re.MULTILINE)
    assert asked.keys() - {"lab-tests"} <= set(needed.split())


def collected(*words: str, **environment: str) -> set[str]:
    """The tests that pytest would run there."""
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--quiet", *words]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env={**os.environ, **environment}
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.thorough
def test_what_the_lab_leaves_out_of_the_contracts_is_tried_outside() -> None:
    files = [word for word in CONTRACTS if word.endswith(".py")]
    lab = {"BACKUPD_LAB": "1", "BACKUPD_LAB_SPARE_DISKS": "/dev/one /dev/two"}
    left_out = collected(*files, **lab) - collected(*CONTRACTS, **lab)
    assert left_out
    assert left_out - collected(*files) == set()
