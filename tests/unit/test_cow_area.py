"""Which of the measured cells is recommended: near the best, and never by the noise; and whether that still holds."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.policy.cow_area import LEAST_GAIN, cell_of, change_since, choose, layout_of, recommended, relative
from backupd.report.tuning_text import tuning_text
from backupd.vocabulary.gauges import TunedCell, Tuning, place_words
from tests.fakes.lvm_host import LvmHost, pv_uuid, striped_volume

KIB = 1 << 10
CHUNKS = tuple(size * KIB for size in (16, 64, 256, 512))
PLACES: tuple[tuple[str, ...], ...] = ((), ("/dev/sdb", "/dev/sdc", "/dev/sdd"), ("/dev/sde",), ("/dev/sdf",))
WHERE = [(chunk, place) for place in PLACES for chunk in CHUNKS]

truths = st.lists(st.floats(1.0, 1e5), min_size=2, max_size=len(WHERE))
drifts = st.lists(st.floats(0.2, 5.0), min_size=3, max_size=9)


def cells(speeds: Sequence[Sequence[float]]) -> list[TunedCell]:
    return [TunedCell(*where, tuple(told)) for where, told in zip(WHERE, speeds, strict=False)]


@given(truths, drifts)
def test_the_choice_is_within_5_percent_of_the_best_cell_however_the_load_drifts(
    truth: list[float], drift: list[float]
) -> None:
    measured = cells([[speed * part for part in drift] for speed in truth])
    choice = choose(measured, measured[0])
    assert truth[measured.index(choice.cell)] >= (1 - LEAST_GAIN) * max(truth) * 0.999


@given(truths, st.integers(0, 1 << 30), st.floats(0.0, 0.01))
def test_a_little_noise_leaves_it_within_5_percent_and_as_much_as_the_noise(
    truth: list[float], seed: int, noise: float
) -> None:
    rng = random.Random(seed)
    measured = cells([[speed * rng.uniform(1 - noise, 1 + noise) for _ in range(3)] for speed in truth])
    choice = choose(measured, measured[0])
    slack = (1 + noise) ** 2 / (1 - noise) ** 2
    worth = truth[measured.index(choice.cell)] / max(truth)
    assert worth >= 1 / ((1 + max(LEAST_GAIN, choice.noise)) * slack) * 0.999


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", [3, 5, 9, 100])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_alone_does_not_flip_it(rounds: int, noise: float) -> None:
    """Sixteen cells that are equally fast: the luckiest one is hardly ever taken for a better one."""
    rng = random.Random(rounds)
    flips = 0
    for _ in range(200):
        measured = cells([[100 * max(0.05, rng.gauss(1, noise)) for _ in range(rounds)] for _ in WHERE])
        flips += not choose(measured, measured[0]).stays
    assert flips <= 4


@pytest.mark.parametrize("rounds", [3, 5, 9])
def test_a_clear_winner_is_found_through_noise(rounds: int) -> None:
    rng = random.Random(rounds)
    found = 0
    for _ in range(200):
        speeds = [[100 * (2.4 if cell == 7 else 1.0) * rng.gauss(1, 0.08) for _ in range(rounds)] for cell in range(16)]
        measured = cells(speeds)
        found += choose(measured, measured[0]).cell == measured[7]
    assert found >= 196


def test_of_cells_alike_the_one_without_another_disk_is_taken() -> None:
    measured = cells([[100.0] * 3, [196.0] * 3, *([[50.0] * 3] * 6), [200.0] * 3])
    choice = choose(measured, measured[0])
    assert (choice.cell.chunk_size, choice.cell.cow_pvs) == (64 * KIB, ())
    assert choice.gain == pytest.approx(0.96)
    faster = cells([[100.0] * 3, [180.0] * 3, *([[50.0] * 3] * 6), [200.0] * 3])
    assert choose(faster, faster[0]).cell.cow_pvs == ("/dev/sde",)


@pytest.mark.parametrize("nothing", [0.0, -5.0, nan, inf])
def test_rounds_that_told_nothing_do_not_count_and_two_are_not_enough(nothing: float) -> None:
    measured = cells([[100.0] * 4, [500.0, 500.0, nothing, nothing]])
    assert choose(measured, measured[0]).stays
    assert relative(measured[1], measured[0]) is None
    enough = cells([[100.0] * 4, [500.0, nothing, 500.0, 500.0]])
    assert choose(enough, enough[0]).cell == enough[1]
    without_default = cells([[nothing] * 4, [500.0] * 4])
    assert choose(without_default, without_default[0]).stays


def test_one_round_in_which_the_counters_jumped_does_not_decide() -> None:
    measured = cells([[100.0] * 3, [100.0, 101.0, 90000.0], [99.0, 100.0, 101.0]])
    assert choose(measured, measured[0]).stays


def test_a_tuning_is_of_one_layout() -> None:
    host = LvmHost()
    tuning = Tuning(datetime.now(UTC), layout_of(host.volume, host.group()), tuple(cells([[1.0] * 3])))

    def change() -> str:
        return change_since(tuning, layout_of(host.volume, host.group()))

    assert change() == ""
    host.free_by_pv["/dev/sdb"] = 3  # how much is free is no part of it
    assert change() == ""
    host.replace_disk("/dev/sde")
    assert change() == "/dev/sde is missing or was replaced"
    host.pv_uuids = {"/dev/sdb": pv_uuid("/dev/sde"), "/dev/sde": pv_uuid("/dev/sdb")}
    assert change() == "the volume's layout on its PVs has changed"  # its disk has another path, the volume none
    host.pv_uuids.clear()
    del host.free_by_pv["/dev/sde"]
    assert change() == "/dev/sde is missing or was replaced"
    host.free_by_pv |= {"/dev/sde": 255, "/dev/sdf": 10}
    assert change() == "/dev/sdf was added to the group"
    del host.free_by_pv["/dev/sdf"]
    segment = replace(host.volume.segments[0], stripes=2, devices=("/dev/sdb", "/dev/sdc"))
    host.volume = replace(striped_volume(), segments=(segment,))
    assert change() == "the volume's layout on its PVs has changed"
    host.volume = replace(striped_volume(), uuid="other")
    assert change() == "the volume was replaced"
    host.volume = replace(striped_volume(), group_uuid="other")
    assert change() == "the volume was replaced"


def test_the_best_in_one_place_is_told_too() -> None:
    host = LvmHost()
    measured = cells([[100.0] * 3, [150.0] * 3, *([[50.0] * 3] * 6), [300.0] * 3])
    tuning = Tuning(datetime.now(UTC), layout_of(host.volume, host.group()), tuple(measured))
    assert recommended(tuning).cell.cow_pvs == ("/dev/sde",)
    assert recommended(tuning, place=((), 1)).cell == measured[1]


@pytest.mark.parametrize(
    ("pvs", "stripes", "words"),
    [
        ((), 1, "on any PV"),
        (("/dev/a", "/dev/b"), 1, "on /dev/a, /dev/b"),
        (("/dev/a", "/dev/b"), 2, "striped over /dev/a, /dev/b"),
        ((), 2, "in 2 stripes on any PV"),
        (("/dev/a", "/dev/b", "/dev/c"), 2, "in 2 stripes on /dev/a, /dev/b, /dev/c"),
    ],
)
def test_a_place_is_told_with_its_stripes(pvs: tuple[str, ...], stripes: int, words: str) -> None:
    assert place_words(pvs, stripes) == words


def test_the_same_pvs_linear_and_striped_are_two_places() -> None:
    host, own = LvmHost(), ("/dev/sdb", "/dev/sdc")
    linear, striped = TunedCell(64 * KIB, own, (100.0,) * 3), TunedCell(64 * KIB, own, (200.0,) * 3, stripes=2)
    tuning = Tuning(datetime.now(UTC), layout_of(host.volume, host.group()), (linear, striped))
    assert cell_of(tuning.cells, 64 * KIB, (own, 2)) == striped
    assert cell_of(tuning.cells, 64 * KIB, (own, 3)) is None
    assert recommended(tuning).cell == striped
    assert recommended(tuning, place=(own, 1)).stays
    text = tuning_text(tuning)
    assert "striped over /dev/sdb, /dev/sdc  2.00x" in text
    assert "risk" not in text
