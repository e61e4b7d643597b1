"""The code's judges: what is mutated is there, a survivor has a reason that still holds, and all is counted."""

import subprocess
import sys

import pytest

from tests.docs.places import ROOT
from tests.mutants import survivors
from tests.mutants.modules import MUTATED, Mutated
from tests.mutants.mutable import mutable
from tests.mutants.run import judged, main, row, table
from tests.mutants.survivors import Survivor, explained, unexplained
from tests.mutants.tool import Change, Mutant

MODULE = "backupd/policy/one.py"
ONE = Mutated("one", (MODULE,), ("tests/unit/test_one.py",))
KILLED, LATE = (Mutant(MODULE, "f", f"m{status}", status) for status in ("killed", "timeout"))
ALIVE = Mutant(MODULE, "f", "x_f__mutmut_3", "survived")
CHANGE = Change("return a < b", "return a <= b")
SURVIVOR = Survivor(MODULE, "f", CHANGE, "they are never the same")


@pytest.mark.parametrize("mutated", MUTATED, ids=lambda mutated: mutated.name)
def test_what_is_mutated_is_there_and_so_are_its_tests(mutated: Mutated) -> None:
    assert mutated.modules
    assert mutated.tests
    assert [name for name in mutated.all_files if not (ROOT / name).is_file()] == []
    for file, _, test in (left_out.partition("::") for left_out in mutated.left_out):
        assert file in mutated.tests
        assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_no_module_is_mutated_twice() -> None:
    modules = [module for mutated in MUTATED for module in mutated.modules]
    assert len(modules) == len(set(modules))


def test_every_survivor_is_of_a_module_that_is_mutated_and_of_code_that_is_there() -> None:
    """Whether it survives is for `make mutants` to say; what is plainly stale is seen at once."""
    mutated = {module for one in MUTATED for module in one.modules}
    for entry in explained(survivors.FILE.read_text()):
        assert entry.module in mutated
        code = " ".join(mutable((ROOT / entry.module).read_text()).split())
        assert " ".join(entry.change.was.split()) in code, entry
        assert entry.why


def test_a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_told() -> None:
    assert unexplained({ALIVE: CHANGE}, [SURVIVOR]) == ([], [])
    assert unexplained({ALIVE: CHANGE}, []) == ([ALIVE], [])
    assert unexplained({}, [SURVIVOR]) == ([], [SURVIVOR])
    assert unexplained({ALIVE: Change("return a < b", "return a > b")}, [SURVIVOR]) == ([ALIVE], [SURVIVOR])


def test_less_than_nine_in_ten_is_a_fault_with_a_reason_or_without() -> None:
    nine = [KILLED] * 8 + [LATE, ALIVE]
    assert judged(ONE, nine, {ALIVE: CHANGE}, [SURVIVOR]) == []
    (too_few,) = judged(ONE, nine[1:], {ALIVE: CHANGE}, [SURVIVOR])
    assert too_few == f"{MODULE}: less than 90% of its mutants were killed"
    (without,) = judged(ONE, nine, {ALIVE: CHANGE}, [])
    assert without == f"{MODULE}: f: survived (3):\n  - return a < b\n  + return a <= b"
    (stale,) = judged(ONE, [KILLED], {}, [SURVIVOR])
    assert stale == f"survivors.toml: no such survivor: {MODULE}: f: return a <= b"


def test_a_module_of_which_nothing_was_tried_is_a_fault() -> None:
    assert judged(ONE, [], {}, []) == [f"{MODULE}: less than 90% of its mutants were killed"]


def test_the_table_counts_what_was_killed_and_how() -> None:
    assert row(MODULE, [KILLED, KILLED, LATE, ALIVE]) == (MODULE, "4", "3", "1", "1", "75.0%")
    assert table([("a", "1", "1", "0", "0", "100.0%")])[-1] == "| a | 1 | 1 | 0 | 0 | 100.0% |"


def test_a_name_that_is_none_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nonsense"]) == 2
    assert all(mutated.name in capsys.readouterr().out for mutated in MUTATED[:1])


SOURCE = '''\
from functools import cache, cached_property, lru_cache


@lru_cache(maxsize=9)  # for its speed
def twice(a: int) -> int:
    return 2 * a


@cache
def thrice(a: int) -> int:
    return 3 * a


class Pair:
    @property
    def sum(self) -> int:
        """Of both."""
        return twice(1) + thrice(1)

    @cached_property
    def product(self) -> int:
        return twice(1) * thrice(1)

    @classmethod
    def made(cls) -> "Pair":
        return cls()


PAIR = Pair.made()
'''


def test_the_copy_that_is_mutated_does_the_same_without_those_decorators() -> None:
    text = mutable(SOURCE)
    assert [line for line in text.splitlines() if "@" in line] == ["    @classmethod"]
    shown = "print(twice(4), thrice(4), PAIR.sum, PAIR.product)"
    done = subprocess.run([sys.executable, "-c", text + shown], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "8 12 5 6\n"
