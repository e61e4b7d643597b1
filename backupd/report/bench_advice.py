"""Which layout to choose, as far as a bench's figures support it. Pure.

Knows: what a database's writers and its backups ask of a volume. Refuses to advise where the figures do not tell.
"""

from collections.abc import Sequence

from backupd.report.bench_contrast import Contrast, Judgement, Tendency, Topic, contrast, overall
from backupd.report.bench_tables import record_sizes, record_threads, writer_counts
from backupd.report.bench_words import base, count_words, families, layout_words
from backupd.report.words import many, ratio
from backupd.vocabulary.benches import LARGE_RECORD, SMALL_RECORD, Cell, LayoutBench, PublishedTable
from backupd.vocabulary.scratch_layouts import LayoutKind, Operation, ScratchLayout

_LARGE = ((Operation.WRITE, "written"), (Operation.READ, "read"))
_INNODB = (  # the server variables' defaults in MySQL's and MariaDB's manuals: 4 in both
    "InnoDB's pages are written by its page cleaners and innodb_write_io_threads (default: 4): they, not the number"
    " of connections, decide how many write at once"
)
_ONE_IS_ALL = "not measured: data on several disks is lost if any one of them fails"
_SETS = "not measured: a striped volume can only grow by another set of stripes, on as many disks with free space"


def advice(bench: LayoutBench) -> list[Judgement]:
    """What to build; for a bench of arrays, whether mdadm or LVM. Nothing where there was nothing to choose from."""
    first, others = base(bench), families(bench)
    if first is None or not others:
        return []
    if first.kind is not LayoutKind.LINEAR:
        return _of_arrays(bench, first, others[-1][-1])
    family = max(others, key=lambda family: _merit(bench, first, family[-1]))
    return [_of_stripes(bench, first, _enough(bench, family))]


def _of_stripes(bench: LayoutBench, first: ScratchLayout, layout: ScratchLayout) -> Judgement:
    large, small = _large(bench, first, layout), _small(bench, first, layout)
    compared = [one for _, one in large] + [one for _, one in small]
    name = layout_words(layout, bench.layouts)
    evidence = (*_small_evidence(small), _ONE_IS_ALL, _SETS)
    if not compared or all(one.finding is Tendency.UNCLEAR for one in compared):
        why = "the repeats differ too much: measure again, with longer windows (--seconds) or on a quieter host"
        text = f"no advice: {why if compared else 'nothing was measured on both linear and stripes'}"
        return Judgement(Topic.CONCLUSION, Tendency.UNCLEAR, text)
    ahead = [f"{word} {one.times:.1f}x as fast" for word, one in large if one.finding is Tendency.GAIN]
    behind = [f"{word} at {one.times:.1f}x" for word, one in large if one.finding is Tendency.LOSS]
    since, finding = _pays_from(small), overall(one.finding for one in compared)
    if since is not None:
        text = f"choose {name} where {_at_once(since, small)}{_below(since, small)}"
        text += f"; large requests are {' and '.join(ahead)}" if ahead else ""
    elif ahead:
        text = f"choose {name} if backups and restores must be fast: large requests are {' and '.join(ahead)}"
        text += _small_words(small)
    elif finding is Tendency.LOSS:
        text = f"choose linear: {name} gained nothing and lost under some loads"
    else:
        text = f"linear is as good: {name} gained nothing beyond the noise of the repeats"
    text += f"; but large requests are {' and '.join(behind)}" if behind else ""
    return Judgement(Topic.CONCLUSION, finding, text, evidence)


def _at_once(since: int, small: Sequence[tuple[int, Contrast]]) -> str:
    if since == small[0][0]:
        return f"the server writes: small random writes are faster with {many(since, 'writer')} or more"
    return f"{since} or more write at once: from there on small random writes are faster"


def _below(since: int, small: Sequence[tuple[int, Contrast]]) -> str:
    fewer = [(threads, one) for threads, one in small if threads < since]
    if not fewer:
        return ""
    lost = overall(one.finding for _, one in fewer)
    said = {Tendency.SAME: "gain nothing", Tendency.LOSS: "lose"}.get(lost, "were not clear")
    return f", and {said} with {count_words([threads for threads, _ in fewer], 'writer')}"


def _small_evidence(small: Sequence[tuple[int, Contrast]]) -> tuple[str, ...]:
    if not small:
        return ("small random writes were not measured: --table e4",)
    said = ", ".join(f"{many(threads, 'writer')} {ratio(one.times)}" for threads, one in small)
    return (f"small random writes with {said}", _INNODB)


def _small_words(small: Sequence[tuple[int, Contrast]]) -> str:
    if not small:
        return ""
    found = overall(one.finding for _, one in small)
    said = {Tendency.SAME: "gain nothing", Tendency.LOSS: "lose"}.get(found, "gave no clear result")
    return f"; small random writes {said} with up to {many(small[-1][0], 'writer')}"


def _of_arrays(bench: LayoutBench, first: ScratchLayout, other: ScratchLayout) -> list[Judgement]:
    if PublishedTable.E5.value not in bench.settings.tables:
        return []
    threads = record_threads(bench)
    cells = [
        Cell(operation, record, threads)
        for operation in (Operation.WRITE, Operation.READ, Operation.RANDOM_READ, Operation.RANDOM_WRITE)
        for record in record_sizes(bench)
    ]
    found = [one for cell in cells if (one := contrast(bench.find(other.name, cell), bench.find(first.name, cell)))]
    if not found:
        return []
    a, b, finding = (
        layout_words(first, bench.layouts),
        layout_words(other, bench.layouts),
        overall(x.finding for x in found),
    )
    counted = {one: sum(1 for each in found if each.finding is one) for one in Tendency}
    text = {
        Tendency.SAME: f"choose whichever of {a} and {b} you prefer to maintain: neither is ahead",
        Tendency.GAIN: f"{b} is ahead of {a} in some loads and behind in none",
        Tendency.LOSS: f"{b} is behind {a} in some loads and ahead in none",
        Tendency.MIXED: f"choose by the record size that matters: {b} is ahead of {a} in some loads, behind in others",
    }.get(
        finding,
        f"no advice: the repeats of {a} and {b} differ too much; measure again, with longer windows (--seconds)",
    )
    said = ", ".join(f"{count} {one}" for one, count in counted.items() if count)
    return [Judgement(Topic.CONCLUSION, finding, text, (f"of {many(len(found), 'load')}: {said}", _ONE_IS_ALL))]


def _pays_from(small: Sequence[tuple[int, Contrast]]) -> int | None:
    """The least number of writers that was measured from which on all gain; None if the most of them do not."""
    since = None
    for threads, one in reversed(small):
        if one.finding is not Tendency.GAIN:
            break
        since = threads
    return since


def _large(bench: LayoutBench, first: ScratchLayout, layout: ScratchLayout) -> list[tuple[str, Contrast]]:
    cells = [(word, Cell(operation, LARGE_RECORD)) for operation, word in _LARGE]
    found = [(word, contrast(bench.find(layout.name, cell), bench.find(first.name, cell))) for word, cell in cells]
    return [(word, one) for word, one in found if one]


def _small(bench: LayoutBench, first: ScratchLayout, layout: ScratchLayout) -> list[tuple[int, Contrast]]:
    cells = [Cell(Operation.RANDOM_WRITE, SMALL_RECORD, threads) for threads in writer_counts(bench)]
    found = [(cell.threads, contrast(bench.find(layout.name, cell), bench.find(first.name, cell))) for cell in cells]
    return [(threads, one) for threads, one in found if one]


def _enough(bench: LayoutBench, family: Sequence[ScratchLayout]) -> ScratchLayout:
    """The narrowest of these layouts that the widest does not beat: more disks are more that can fail."""
    widest = family[-1]
    for layout in family[:-1]:
        found = [one for _, one in (*_large(bench, layout, widest), *_small(bench, layout, widest))]
        if found and all(one.finding in (Tendency.SAME, Tendency.LOSS) for one in found):
            return layout
    return widest


def _merit(bench: LayoutBench, first: ScratchLayout, layout: ScratchLayout) -> tuple[int, float]:
    """Of several stripe sizes the one to advise: more gains than losses, then more of them."""
    found = [one for _, one in (*_large(bench, first, layout), *_small(bench, first, layout))]
    gains = sum(one.finding is Tendency.GAIN for one in found) - sum(one.finding is Tendency.LOSS for one in found)
    return gains, sum(one.times for one in found)
