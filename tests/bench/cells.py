"""The matrix's cells: which machines there are, and which of them meet every pair of values.

Knows: the four factors. Refuses to know what is done in a cell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from backupd.lab.options import Filesystem, LabLayout, ServerKind

Pair = tuple[tuple[str, object], tuple[str, object]]


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One machine of the matrix."""

    server: ServerKind
    layout: LabLayout
    filesystem: Filesystem
    thin: bool

    @property
    def name(self) -> str:
        """As a file is called."""
        return f"{self.server}-{self.layout}-{self.filesystem}-{self.volume}"

    @property
    def volume(self) -> str:
        """Whether the volume is one of a thin pool, in a word."""
        return "thin" if self.thin else "thick"

    def machine(self) -> list[str]:
        """What `backupd lab run` is told for it."""
        thin = ["--thin"] if self.thin else []
        return [
            *("--server", self.server, "--layout", self.layout, "--filesystem", self.filesystem),
            *thin,
        ]

    def pairs(self) -> Iterator[Pair]:
        """Every two values that meet here, each with its factor's name."""
        values = [
            ("server", self.server),
            ("layout", self.layout),
            ("filesystem", self.filesystem),
            ("thin", self.thin),
        ]
        return combinations(values, 2)


def all_cells() -> list[MatrixCell]:
    """The full grid."""
    return [MatrixCell(*values) for values in product(ServerKind, LabLayout, Filesystem, (False, True))]


def pairwise(cells: Sequence[MatrixCell]) -> list[MatrixCell]:
    """Some of the cells in which every pair of values that meets in any of them meets.

    The same ones each time: always the first of those that bring most pairs that are still missing.
    """
    missing = {pair for cell in cells for pair in cell.pairs()}
    chosen = []
    while missing:
        best = max(cells, key=lambda cell: len(missing.intersection(cell.pairs())))
        chosen.append(best)
        missing.difference_update(best.pairs())
    return chosen
