"""The picture of the layers and the tables of what lies in them, from the contracts in pyproject.toml and the imports.

Knows: how they are drawn. Which module is in which layer is the contract's, which `make check` holds; who imports whom
is what grimp reads in the code.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import grimp

from tests.docs.places import ROOT

PACKAGE = "backupd"
_CHAR = 6.7  # the width of a letter of the picture's font, at its size
_WIDTH, _BOXES = 1080, 800
_BOX_HEIGHT, _GAP, _PADDING = 20, 6, 8
_INK = ("#4263eb", "#0b7285", "#2b8a3e", "#e67700", "#a61e4d", "#5f3dc4")
# So coarse that one import more or less changes no picture: at least so often, how thick, in words.
_OFTEN = ((100, 3.5, "hundreds of times"), (10, 2.0, "tens of times"), (1, 0.8, "a few times"))


@dataclass(frozen=True, slots=True)
class Part:
    """A module or a folder of the layers' package."""

    name: str
    modules: int  # of a folder, all that are in it
    says: str  # the first sentence of its docstring

    @property
    def label(self) -> str:
        """As it is drawn."""
        return f"{self.name}/ {self.modules}" if self.modules > 1 else self.name


@dataclass(frozen=True, slots=True)
class House:
    """The layers from top to bottom, and how many imports lead from which to which."""

    layers: Sequence[Sequence[Part]]
    imports: Mapping[tuple[int, int], int]


def house(contract_id: str = "layers") -> House:
    """As the code is now. What is in no layer is left out: the contract says that nothing is."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(one for one in contracts if one["id"] == contract_id)
    (package,) = contract["containers"]
    named = [[name for name in re.findall(r"\w+", layer) if name != "__main__"] for layer in contract["layers"]]
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    inside = [module for module in graph.modules if module.startswith(f"{package}.")]
    there = Counter(_top(module, package) for module in inside)
    layers = [[_part(package, name, there[name]) for name in layer if name in there] for layer in named]
    layers = [layer for layer in layers if layer]
    depth = {part.name: at for at, layer in enumerate(layers) for part in layer}
    found: Counter[tuple[int, int]] = Counter()
    for module in inside:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = depth.get(_top(module, package)), depth.get(_top(imported, package))
            if pair[0] is not None and pair[1] is not None and pair[0] != pair[1]:
                found[pair[0], pair[1]] += 1
    return House(layers, found)


def table(drawn: House) -> str:
    """A row for each module or folder, layer by layer."""
    lines = ["| layer | modules | what it knows |", "|---|---|---|"]
    for at, layer in enumerate(drawn.layers, 1):
        for part in layer:
            name = f"`{part.name}/`" if part.modules > 1 else f"`{part.name}`"
            lines.append(f"| {at} | {name} | {part.says.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def picture(drawn: House) -> str:
    """An SVG: a band for each layer with its modules, and at the right an arc from each layer to those it imports."""
    bands, top = [], 34
    for layer in drawn.layers:
        rows = list(_rows(layer))
        height = len(rows) * (_BOX_HEIGHT + _GAP) - _GAP + 2 * _PADDING
        bands.append((top, height, rows))
        top += height + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" font-family="monospace" font-size="11">',
        "<title>The layers of backupd, from the imports of its code</title>",
        f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>',
        '<text x="12" y="20" fill="#495057">imports lead down only; a number is how many modules a folder has</text>',
        f'<text x="{_WIDTH - 12}" y="20" text-anchor="end" fill="#495057">the thicker, the more imports</text>',
    ]
    for (upper, lower), count in sorted(drawn.imports.items()):
        lines.append(_arc(bands, upper, lower, count))
    for at, (band_top, height, rows) in enumerate(bands):
        lines += _band(at, band_top, height, rows)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _band(at: int, top: int, height: int, rows: Sequence[Sequence[Part]]) -> Iterator[str]:
    yield f'<rect x="8" y="{top}" width="{_BOXES}" height="{height}" rx="6" fill="#f1f3f5" stroke="#ced4da"/>'
    yield f'<text x="18" y="{top + height / 2 + 4:.0f}" fill="#868e96">{at + 1}</text>'
    for number, row in enumerate(rows):
        x, y = 42.0, top + _PADDING + number * (_BOX_HEIGHT + _GAP)
        for part in row:
            width = _width(part)
            weight = ' font-weight="bold"' if part.modules > 1 else ""
            yield (
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_BOX_HEIGHT}" rx="4" fill="#ffffff"'
                f' stroke="{_INK[at % len(_INK)]}"><title>{escape(part.says)}</title></rect>'
            )
            yield f'<text x="{x + 6:.0f}" y="{y + 14}" fill="#212529"{weight}>{escape(part.label)}</text>'
            x += width + _GAP


def _arc(bands: Sequence[tuple[int, int, object]], upper: int, lower: int, count: int) -> str:
    start, end = (bands[at][0] + bands[at][1] / 2 for at in (upper, lower))
    reach = _BOXES + 8 + 30 + abs(lower - upper) * 240 / max(1, len(bands) - 1)
    thickness, words = next((width, words) for least, width, words in _OFTEN if count >= least)
    ink = _INK[upper % len(_INK)] if lower > upper else "#ff0000"
    return (
        f'<path d="M {_BOXES + 8} {start:.0f} C {reach:.0f} {start:.0f} {reach:.0f} {end:.0f} {_BOXES + 8} {end:.0f}"'
        f' fill="none" stroke="{ink}" stroke-opacity="0.55" stroke-width="{thickness}">'
        f"<title>layer {upper + 1} imports layer {lower + 1} {words}</title></path>"
    )


def _rows(layer: Sequence[Part]) -> Iterator[list[Part]]:
    row: list[Part] = []
    used = 42.0
    for part in layer:
        if row and used + _width(part) > _BOXES:
            yield row
            row, used = [], 42.0
        row.append(part)
        used += _width(part) + _GAP
    yield row


def _width(part: Part) -> float:
    return len(part.label) * _CHAR + 12


def _top(module: str, package: str) -> str:
    """Which part of the package it is, or lies in; of what is elsewhere nothing."""
    within = module.removeprefix(f"{package}.")
    return within.split(".")[0] if within != module else ""


def _part(package: str, name: str, modules: int) -> Part:
    folder = ROOT.joinpath(*package.split("."), name)
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return Part(name, modules, " ".join(said.split("\n\n")[0].split()))
