"""mutmut, run on a copy of the code: every mutant of a few modules, and what became of each.

Knows: its settings, its words for what became of a mutant, and how it shows one. Each run begins anew, because mutmut
keeps what it found as long as the code is the same, however the tests have changed; `survivors` alone are tried again.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.places import ROOT
from tests.mutants.modules import Mutated
from tests.mutants.mutable import mutable
from tests.share import VARIABLE, Share

_SCRATCH = ROOT / ".cache" / "mutants"
_MUTMUT = Path(sys.executable).with_name("mutmut")
_COPIED = ("backupd", "tests", "pyproject.toml", "migrations", "configs", "docs", "README.md")
_MOST_MEMORY = 4 << 30  # bytes of a process: a loop that does not end any more may collect what it makes

_DEAD = ("killed", "timeout", "segfault")
_FAILED = 1  # pytest's status
_ALIVE = ("survived", "no tests")

_PYTEST = (
    "-p",
    "no:xdist",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
    "--disable-warnings",
    "-m",
    "not exhaustive",
)
_SETTINGS = """\
[mutmut]
source_paths =
    backupd
only_mutate =
    {modules}
also_copy =
    {copied}
pytest_add_cli_args =
    {words}
pytest_add_cli_args_test_selection =
    {tests}
timeout_multiplier = 5
timeout_constant = 2
"""


_SHOWN = """\
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({key: get_diff_for_mutant(key, path=path) for key, path in json.loads(sys.argv[1]).items()}))
"""


class MutmutFailed(Exception):
    """It did not come to its end: the tests do not pass even without a mutation, or mutmut itself failed."""


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change to one function, and what the tests made of it."""

    module: str  # its file
    function: str  # with its class
    key: str  # mutmut's own name for it
    status: str

    @property
    def is_dead(self) -> bool:
        """A test failed, or did not end in time."""
        return self.status in _DEAD


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """What a mutant changed: the lines that it took and the ones that it put there, as far as they differ."""

    was: str
    now: str


def mutants_of(mutated: Mutated, *, side_by_side: int, survivors: bool = False) -> list[Mutant]:
    """Try every mutant; with `survivors` those alone that are left of a run before, with the tests as they are now.

    Raises:
        MutmutFailed: not every mutant was tried.
    """
    folder = _SCRATCH / mutated.name
    if survivors and folder.exists():
        _forget_survivors(folder, mutated)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    _copy(mutated, folder)
    _mutmut(folder, "run", "--max-children", str(side_by_side))
    found = _results(mutated)
    unknown = [one for one in found if one.status not in (*_DEAD, *_ALIVE)]
    if unknown or not found:
        raise MutmutFailed("\n".join(f"{one.key}: {one.status}" for one in unknown) or "there was nothing to mutate")
    return found


def changes_of(mutated: Mutated, mutants: Sequence[Mutant]) -> dict[Mutant, Change]:
    """What each of these changed. `mutmut show` tells it of one, and takes a second for each."""
    asked = json.dumps({one.key: one.module for one in mutants})
    told = json.loads(_run(_SCRATCH / mutated.name, [sys.executable, "-c", _SHOWN, asked]))
    return {one: _change(told[one.key].splitlines()) for one in mutants}


def _change(diff: Sequence[str]) -> Change:
    lines = [line for line in diff if not line.startswith(("---", "+++"))]
    return Change(*(" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"))


def _forget_survivors(folder: Path, mutated: Mutated) -> None:
    """mutmut tries what it has no result of: those of changed functions, and now these."""
    shutil.rmtree(folder / "tests")
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)  # which test calls which function
    for module in mutated.modules:
        results = folder / "mutants" / f"{module}.meta"
        known = json.loads(results.read_text())
        codes = known["exit_code_by_key"]
        known["exit_code_by_key"] = {key: code if code == _FAILED else None for key, code in codes.items()}
        results.write_text(json.dumps(known))


def _copy(mutated: Mutated, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    left_out = shutil.ignore_patterns("__pycache__")
    for name in _COPIED:
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, folder / name)
        elif not (folder / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for module in mutated.modules:
        text = mutable((ROOT / module).read_text())
        if text != (folder / module).read_text():
            (folder / module).write_text(text)
    several = {
        "modules": mutated.modules,
        "tests": mutated.tests,
        "copied": _COPIED[1:],
        "words": [*_PYTEST, *(word for test in mutated.left_out for word in ("--deselect", test))],
    }
    (folder / "setup.cfg").write_text(
        _SETTINGS.format(**{name: "\n    ".join(words) for name, words in several.items()})
    )


def _results(mutated: Mutated) -> list[Mutant]:
    lines = _mutmut(_SCRATCH / mutated.name, "results", "--all", "True").splitlines()
    pairs = [line.strip().rsplit(": ", 1) for line in lines if "__mutmut_" in line]
    return sorted(_mutant(key, status) for key, status in pairs)


def _mutant(key: str, status: str) -> Mutant:
    """`backupd.policy.trend.x_peak__mutmut_3`, or `….xǁ_SeenǁwordsǁX__mutmut_3` of a method."""
    module, _, name = key.rpartition(".")
    function = name.partition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return Mutant(f"{module.replace('.', '/')}.py", function, key, status)


def _mutmut(folder: Path, *words: str) -> str:
    return _run(folder, [str(_MUTMUT), *words])


def _run(folder: Path, argv: Sequence[str]) -> str:
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, VARIABLE: Share.QUICK, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY)),
    )
    if done.returncode:
        said = done.stdout.rpartition("\r")[2]  # before it there is how far it came, again and again
        raise MutmutFailed(f"{' '.join(argv[:2])} ended with status {done.returncode} in {folder}:\n{said}")
    return done.stdout
