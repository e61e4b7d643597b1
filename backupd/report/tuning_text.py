"""What a tuning recommends, in words for a person and as plain values.

Knows: the order in which it is told, and that a COW area on other disks is never told without its risk.
"""

from collections.abc import Iterator
from typing import Any

from backupd.policy.cow_area import LEAST_GAIN, RISK, CowAreaChoice, is_at_home, recommended, relative
from backupd.report.words import columns, ratio, share, size
from backupd.vocabulary.gauges import TunedCell, Tuning, place_words


def tuning_text(tuning: Tuning) -> str:
    """Every cell beside the default, then what follows, in sentences."""
    default = tuning.cells[0]
    lines = [("CHUNK", "COW AREA", "SPEED", "SPREAD")]
    for cell in tuning.cells:
        found = relative(cell, default)
        speed, spread = ("-", "-") if found is None else (ratio(found[0]), share(found[1]))
        lines.append((size(cell.chunk_size), place_words(*cell.place).removeprefix("on "), speed, spread))
    return f"{columns(lines)}\n\n" + "\n".join(sentences(tuning))


def sentences(tuning: Tuning) -> Iterator[str]:
    """The recommendation, what it is worth, its risk, and how it comes into force."""
    default, best = tuning.cells[0], recommended(tuning)
    if best.stays:
        yield (
            f"recommended: the default, {_words(default)}; nothing was faster beyond the noise ({share(best.noise)})"
        )
    else:
        yield (
            f"recommended: {_words(best.cell)}, {share(best.gain)} faster than the default ({_words(default)});"
            f" noise {share(best.noise)}"
        )
        if not is_at_home(best.cell.cow_pvs, tuning.layout.devices):
            yield f"risk: {RISK}"
            here = recommended(tuning, place=default.place)
            if not here.stays:
                yield f"without another PV: {_words(here.cell)}, {share(here.gain)} faster"
        yield (
            'in force where the job says chunk_size = "auto", and, for the place, pvs = "auto" and stripes = "auto";'
            " --write enters it into the configuration"
        )
    for place in dict.fromkeys(cell.place for cell in tuning.cells if cell.place != default.place):
        speeds = [found[0] for cell in tuning.cells if cell.place == place and (found := relative(cell, default))]
        if speeds and max(speeds) < 1 - LEAST_GAIN:
            yield f"slower than the default with any chunk size: the COW area {place_words(*place)}"


def tuning_document(tuning: Tuning) -> dict[str, Any]:
    """What `probe --json` has under `tuning`."""
    default, best = tuning.cells[0], recommended(tuning)
    return {
        "made_at": tuning.made_at.isoformat(),
        "default": _cell(default),
        "recommended": _chosen(best),
        "in_the_same_place": _chosen(recommended(tuning, place=default.place)),
        "cells": [
            {
                **_cell(cell),
                "speeds": list(cell.speeds),
                "ratio": None if (found := relative(cell, default)) is None else found[0],
                "spread": None if found is None else found[1],
            }
            for cell in tuning.cells
        ],
    }


def _chosen(choice: CowAreaChoice) -> dict[str, Any]:
    return {**_cell(choice.cell), "gain": choice.gain, "noise": choice.noise, "is_default": choice.stays}


def _cell(cell: TunedCell) -> dict[str, Any]:
    return {"chunk_size": cell.chunk_size, "cow_pvs": list(cell.cow_pvs), "stripes": cell.stripes}


def _words(cell: TunedCell) -> str:
    return f"chunks of {size(cell.chunk_size)}, COW area {place_words(*cell.place)}"
