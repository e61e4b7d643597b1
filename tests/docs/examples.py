"""`make docs-examples`: types the documentation's examples anew, and puts their output into the pages.

A page marks an example as `<!-- example: SOURCE: COMMAND -->` … `<!-- /example -->`. A command that ends with ` …` is
the first that begins so; `: from WORDS` leaves out what comes before the first line that begins with them, `: N lines`
all behind so many. Knows: which command prints a source. Lines of progress are left out; no word is changed.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs import stage
from tests.docs.places import ROOT, blocks, documents, fenced, replaced

_HDD = (".venv/bin/backupd", "lab", "run", "--disks", "hdd", "--deadline", "3600")
_TYPED_THERE = ("--", "python", "-m", "tests.docs.typed_there")
LAB: Mapping[str, Sequence[str]] = {
    "demo": (".venv/bin/backupd", "demo"),
    "targets": ("make", "--silent", "demo-targets"),
    "probe": (
        *(*_HDD, "--load", "60", *_TYPED_THERE),
        "backupd probe --volume labvg/data --chunk-sizes 4k,64k,512k",
    ),
    "bench": (*_HDD, "--load", "none", *_TYPED_THERE, "backupd bench layouts --vg labvg --yes"),
}
SCENES = {name: (".venv/bin/python", "-m", "tests.docs.stage", name) for name in stage.SCENES}
SOURCES = {**LAB, **SCENES}
_HEADINGS = {
    "what the backup with the earlier defaults cost": "earlier price",
    "what this backup cost, and what it is worth": "price",
    "the accident: orders come in beside the load, and somebody drops sbtest.orders": "accident",
}
_NAME = re.compile(
    r"(?P<source>\w+): (?P<command>.+?)(?:: from (?P<start>.+?))?(?:: (?P<lines>\d+) lines?)?", re.DOTALL
)
_PROGRESS = re.compile(
    r"(?:(?:copied|reading \S+ on \S+|restoring .*|restored|copying \S+ to .+:) \d+ % \(.*)|applied \d+ %: .*"
)
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Example:
    """What a mark asks for."""

    source: str
    command: str
    start: str
    lines: int | None


def example(name: str) -> Example:
    """From the words of its mark.

    Raises:
        ValueError: no example can be called so.
    """
    found = _NAME.fullmatch(name)
    if found is None or found["source"] not in SOURCES:
        raise ValueError(f"no example: {name}")
    lines = int(found["lines"]) if found["lines"] else None
    return Example(found["source"], found["command"], found["start"] or "", lines)


def wanted() -> Iterator[tuple[Path, Example, str]]:
    """Every example of every page, with what the page has."""
    for path in documents():
        yield from ((path, example(name), text) for name, text in blocks(path.read_text(), "example"))


def parts(printed: str) -> Mapping[str, str]:
    """What was shown, by the command as it was typed, with that line, or by its heading, without it.

    Of what was typed twice, the first.
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in printed.splitlines():
        heading = line.removeprefix(stage.HEADING) if line.startswith(stage.HEADING) else _HEADINGS.get(line)
        if line.startswith("$ ") or heading is not None:
            current = [line] if heading is None else []
            found.setdefault(heading or line.removeprefix("$ "), current)
        elif not _PROGRESS.fullmatch(line):
            current.append(line.rstrip())
    return {typed: "\n".join(lines).strip("\n") for typed, lines in found.items()}


def shown(one: Example, printed: Mapping[str, str]) -> str:
    """The example as it stands in a page.

    Raises:
        LookupError: the source has not shown it.
    """
    name = one.command.removesuffix(_CUT)
    is_whole = name == one.command
    whole = next(
        (printed[typed] for typed in printed if typed == name or (not is_whole and typed.startswith(name))), None
    )
    if whole is None:
        raise LookupError(f"{one.source} has not shown {one.command!r}")
    lines = whole.splitlines()
    head = [lines.pop(0)] if lines[0].startswith("$ ") else []
    first = next((at for at, line in enumerate(lines) if line.startswith(one.start)), None)
    if first is None:
        raise LookupError(f"no line of {one.command!r} begins with {one.start!r}")
    end = len(lines) if one.lines is None else first + one.lines
    before, after = [_CUT][: first > 0], [_CUT][: end < len(lines)]
    return fenced("\n".join([*head, *before, *lines[first:end], *after]))


def main() -> int:
    """Run each source, and write into the pages what it shows. The status of the first command that fails, else 0."""
    asked = argparse.ArgumentParser(description="Type the examples of the documentation anew.")
    asked.add_argument("source", nargs="?", choices=sorted(SOURCES), help="only those of this source")
    asked.add_argument("--log", type=Path, help="a file with what that source printed, instead of running it")
    options = asked.parse_args()
    if options.log is not None and options.source is None:
        asked.error("--log needs the source that printed it")
    for source in [options.source] if options.source else SOURCES:
        if options.log is not None:
            _write(source, parts(options.log.read_text()))
            continue
        done = subprocess.run(SOURCES[source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout.decode())
            return done.returncode
        _write(source, parts(done.stdout.decode()))
    return 0


def _write(source: str, printed: Mapping[str, str]) -> None:
    for path in documents():
        before = path.read_text()
        kept = dict(blocks(before, "example"))

        def text_of(name: str, kept: Mapping[str, str] = kept) -> str:
            one = example(name)
            return shown(one, printed) if one.source == source else kept[name]

        after = replaced(before, "example", text_of)
        if after != before:
            path.write_text(after)
            print(f"wrote {path.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
