"""`make docs-examples`: types the documentation's examples anew, in the lab, and puts their output into the pages.

A page marks an example as `<!-- example: SOURCE: COMMAND -->` … `<!-- /example -->`, with `: N lines` where only the
first are shown. Knows: which command prints a source. Lines of progress are left out; no word is changed.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.places import ROOT, blocks, documents, fenced, replaced

SOURCES: Mapping[str, Sequence[str]] = {
    "demo": (".venv/bin/backupd", "demo"),
    "targets": ("make", "--silent", "demo-targets"),
}
PRICE = "price"  # of `backupd demo`, under a heading rather than a command
_HEADINGS = {
    "what the backup with the earlier defaults cost": "earlier price",
    "what this backup cost, and what it is worth": PRICE,
    "the accident: orders come in beside the load, and somebody drops sbtest.orders": "accident",
}
_NAME = re.compile(r"(?P<source>\w+): (?P<command>.+?)(?:: (?P<lines>\d+) lines)?")
_PROGRESS = re.compile(r"(?:copied|reading \S+ on \S+|restoring .*|restored) \d+ % \(.*")


@dataclass(frozen=True, slots=True)
class Example:
    """What a mark asks for."""

    source: str
    command: str
    lines: int | None


def example(name: str) -> Example:
    """From the words of its mark.

    Raises:
        ValueError: no example can be called so.
    """
    found = _NAME.fullmatch(name)
    if found is None or found["source"] not in SOURCES:
        raise ValueError(f"no example: {name}")
    return Example(found["source"], found["command"], int(found["lines"]) if found["lines"] else None)


def wanted() -> Iterator[tuple[Path, Example]]:
    """Every example of every page."""
    for path in documents():
        yield from ((path, example(name)) for name, _ in blocks(path.read_text(), "example"))


def parts(printed: str) -> Mapping[str, str]:
    """What each command printed, by the command as it was typed; of one that was typed twice, the first."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in printed.splitlines():
        typed = line.removeprefix("$ ") if line.startswith("$ ") else _HEADINGS.get(line)
        if typed is not None:
            current = []
            found.setdefault(typed, current)
        elif not _PROGRESS.fullmatch(line):
            current.append(line.rstrip())
    return {typed: "\n".join(lines).strip("\n") for typed, lines in found.items()}


def shown(one: Example, printed: Mapping[str, str]) -> str:
    """The example as it stands in a page."""
    lines = printed[one.command].splitlines()
    head = [] if one.command == PRICE else [f"$ {one.command}"]
    short = lines if one.lines is None or len(lines) <= one.lines else [*lines[: one.lines], "…"]
    return fenced("\n".join([*head, *short]))


def main() -> int:
    """Run what the examples come from, then write the pages. The status of the first command that fails, else 0."""
    asked = argparse.ArgumentParser(description="Type the examples of the documentation anew, in the lab.")
    asked.add_argument("source", nargs="?", choices=sorted(SOURCES), help="only those of this command")
    asked.add_argument("--log", type=Path, help="a file with what it printed, instead of running it")
    options = asked.parse_args()
    chosen = [options.source] if options.source else list(SOURCES)
    printed: dict[str, Mapping[str, str]] = {}
    for source in chosen:
        if options.log is not None:
            printed[source] = parts(options.log.read_text())
            continue
        done = subprocess.run(SOURCES[source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode()
        if done.returncode:
            sys.stderr.write(text)
            return done.returncode
        printed[source] = parts(text)
    for path in documents():
        _write(path, printed)
    return 0


def _write(path: Path, printed: Mapping[str, Mapping[str, str]]) -> None:
    before = path.read_text()
    kept = dict(blocks(before, "example"))

    def text_of(name: str) -> str:
        one = example(name)
        return shown(one, printed[one.source]) if one.source in printed else kept[name]

    after = replaced(before, "example", text_of)
    if after != before:
        path.write_text(after)
        print(f"wrote {path.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
