"""Whether one figure of a bench is really above another: what their repeats allow to say.

Knows: ratio and spreads, and what a judgement consists of.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from backupd.report.bench_words import times
from backupd.report.words import ratio, share
from backupd.vocabulary.benches import CellResult

LEAST = 1.15  # a difference that is smaller is none to anybody, however well it is measured
NOISY = 0.25  # of repeats that lie farther apart the median says little


class Tendency(StrEnum):
    """What comes of comparing."""

    GAIN = "gain"
    LOSS = "loss"
    SAME = "same"  # no difference that the repeats bear out, or a small one
    MIXED = "mixed"  # gains here, losses there
    UNCLEAR = "unclear"  # too noisy
    FACT = "fact"  # nothing was compared, or nothing that has a spread


class Topic(StrEnum):
    """Which question of somebody who builds a host a judgement answers."""

    CONCLUSION = "conclusion"  # which layout to choose
    ONE_THREAD = "one thread"
    WRITERS = "writers"  # how many it takes
    RECORDS = "record sizes"
    PROCESSORS = "processors"
    BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A sentence, and the figures that it rests on."""

    topic: Topic
    finding: Tendency
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contrast:
    """One figure beside another of the same load."""

    times: float  # how many times as much
    spread: float  # the larger of the two
    once: bool  # one of them was measured once: its spread is not known
    within: bool  # some repeat of the one may have been as good as some of the other
    finding: Tendency

    def words(self) -> str:
        """Its evidence: `1.02x, spread 4%`."""
        return f"{ratio(self.times)}, {'measured once' if self.once else f'spread {share(self.spread)}'}"


def contrast(b: CellResult | None, a: CellResult | None) -> Contrast | None:
    """How `b` stands beside `a`; None where one of them was not measured, or has no throughput to divide by.

    A gain is one of more than `LEAST` times in which every repeat of b, whichever they were, was above every one of a:
    b's lowest lies at most its spread below its median, a's highest at most its spread above. Where repeats lie further
    apart than `NOISY`, even the one must be `LEAST` times the other.
    """
    factor = times(b, a)
    if factor is None or a is None or b is None:
        return None
    above, below = factor * (1 - b.spread) > 1 + a.spread, factor * (1 + b.spread) < 1 - a.spread
    if factor * (1 - b.spread) > LEAST * (1 + a.spread):
        finding = Tendency.GAIN
    elif factor * (1 + b.spread) * LEAST < 1 - a.spread:
        finding = Tendency.LOSS
    elif not (a.spread <= NOISY and b.spread <= NOISY):  # also what is no number
        finding = Tendency.UNCLEAR
    elif factor > LEAST and above:
        finding = Tendency.GAIN
    elif factor * LEAST < 1 and below:
        finding = Tendency.LOSS
    else:
        finding = Tendency.SAME
    once = min(a.repeats, b.repeats) == 1
    return Contrast(factor, max(a.spread, b.spread), once, not above and not below, finding)


def runs(found: Iterable[tuple[int, Contrast]]) -> list[tuple[Tendency, list[tuple[int, Contrast]]]]:
    """Neighbours of the same finding together, in the order given: by threads, by bytes of a record."""
    return [(finding, list(group)) for finding, group in groupby(found, key=lambda pair: pair[1].finding)]


def overall(findings: Iterable[Tendency]) -> Tendency:
    """What several come to: gains (or losses) among equals count as such, both together are mixed."""
    distinct = set(findings)
    if len(distinct) == 1:
        return distinct.pop()
    telling = distinct - {Tendency.SAME, Tendency.UNCLEAR}
    if not telling:
        return Tendency.UNCLEAR
    return telling.pop() if len(telling) == 1 else Tendency.MIXED


def equal(contrasts: Iterable[Contrast]) -> str:
    """How near those are that count as the same."""
    if all(one.within and not one.once for one in contrasts):
        return "equal within the spread"
    return f"less than {LEAST}x apart"


def span(contrasts: Iterable[Contrast]) -> str:
    """Their ratios, the smallest and the largest: `1.2x`, `2.0x to 2.9x`."""
    said = list(dict.fromkeys(f"{one:.1f}x" for one in sorted(contrast.times for contrast in contrasts)))
    return said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}"


def worst(contrasts: Iterable[Contrast]) -> str:
    """How far their repeats lie apart: `spread 4%`, `spread up to 9%`, `measured once`."""
    contrasts = list(contrasts)
    if all(one.once for one in contrasts):
        return "measured once"
    several = "up to " if len({share(one.spread) for one in contrasts}) > 1 else ""
    return f"spread {several}{share(max(one.spread for one in contrasts))}"
