"""What is found after a power cut is judged: nothing is said of a whole machine, and each planted fault is told."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.power.campaign import CUTS_A_RECORDING, Part, parts, totals
from tests.power.chosen import cuts, phases, promised
from tests.power.cuts import Mode
from tests.power.judge import violations

WHOLE: dict[str, Any] = {
    "promised": {
        "phase": "prune",
        "orders": 120,
        "runs": ["r1", "r2"],
        "may_go": ["r1"],
        "tree": "ab12",
        "whole_tree": "ab12",
        "archive": True,
    },
    "boot": {"activate": {"status": 0, "error": ""}, "mount /srv/mysql": {"status": 0, "error": ""}},
    "server": {"answers": True, "orders": 121, "log": "ready"},
    "commands": [
        {"words": ["recover"], "status": 0, "error": ""},
        {"words": ["verify", "r2"], "status": 0, "error": ""},
    ],
    "runs": {"r1": "success", "r2": "attention", "r3": "failed"},
    "catalogue": ["ok"],
    "left_at_first": ["on the target /backups/m/nightly/r3", "a row of partial-objects store:nightly/r3"],
    "left": [],
    "unfinished": [".0000000006.json.8a8a.partial"],
    "manifests": {"r2": 0},
    "restored": {"there": True, "again": None, "tree": "ab12"},
    "archive": {"goes_on": True, "gaps": [], "verify": 0},
}

Plant = Callable[[dict[str, Any]], object]

PLANTED: dict[str, tuple[Plant, str]] = {
    "the group": (lambda facts: facts["boot"]["activate"].update(status=5, error="no PV"), "boot: activate"),
    "the origin": (lambda facts: facts["boot"]["mount /srv/mysql"].update(status=32), "boot: mount /srv/mysql"),
    "the server": (lambda facts: facts["server"].update(answers=False), "server: it does not recover"),
    "its rows": (lambda facts: facts["server"].update(orders=119), "server: 120 orders"),
    "recover": (lambda facts: facts["commands"][0].update(status=10), "recover: `recover` ended with 10"),
    "a bug": (lambda facts: facts["commands"][1].update(error="Traceback (most"), "words: `verify r2` printed"),
    "a hint": (lambda facts: facts["commands"][1].update(error="error: no room\n"), "words: `verify r2` told"),
    "the catalogue": (lambda facts: facts.update(runs=None), "catalogue: it does not open"),
    "its pages": (lambda facts: facts.update(catalogue=["row 3 missing"]), "catalogue: its integrity"),
    "a leftover": (lambda facts: facts["left_at_first"].append("volume labvg/b"), "recover: it left volume labvg/b"),
    "a remainder": (lambda facts: facts["left"].append("on the target x"), "recover: it left for longer than two"),
    "a run's row": (lambda facts: facts["runs"].pop("r2"), "runs: r2 was acknowledged, and the catalogue says nothing"),
    "a run's status": (lambda facts: facts["runs"].update(r2="failed"), "runs: r2 was acknowledged, and the cat"),
    "a run's copy": (lambda facts: facts["manifests"].clear(), "runs: r2 was acknowledged, and the target"),
    "a manifest": (lambda facts: facts["manifests"].update(r3=9), "manifest: r3 is published"),
    "a restore": (lambda facts: facts["restored"].update(tree="cd34"), "restore: it was acknowledged"),
    "an archive": (lambda facts: facts["archive"].update(goes_on=False), "archive: it does not go on"),
    "a gap": (lambda facts: facts["archive"]["gaps"].append("reset"), "archive: a gap: reset"),
    "unfinished things": (lambda facts: facts.update(unfinished=["a", "b", "c"]), "recover: more is unfinished"),
    "a segment": (lambda facts: facts["archive"].update(verify=9), "archive: `binlog verify` ends with 9"),
}


def test_nothing_is_said_of_a_machine_that_is_as_it_was_promised() -> None:
    assert violations(WHOLE) == []


@pytest.mark.parametrize(("plant", "said"), PLANTED.values(), ids=PLANTED)
def test_each_promise_that_is_broken_is_told(plant: Plant, said: str) -> None:
    facts = copy.deepcopy(WHOLE)
    plant(facts)
    found = violations(facts)
    assert found
    assert found[0].startswith(said)


def test_a_run_that_was_to_be_pruned_may_be_gone_from_the_target_and_not_before() -> None:
    facts = copy.deepcopy(WHOLE)
    facts["promised"]["may_go"] = []
    assert violations(facts) == ["runs: r1 was acknowledged, and the target has no manifest of it"]


@pytest.mark.parametrize(
    ("again", "tree", "said"),
    [(0, "ab12", 0), (2, "ab12", 0), (0, "cd34", 1), (8, "", 1)],
    ids=["finished", "was whole and is refused", "another", "failed"],
)
def test_a_restore_of_which_nobody_was_told_is_whole_or_is_finished_by_the_same_command(
    again: int, tree: str, said: int
) -> None:
    facts = copy.deepcopy(WHOLE)
    facts["promised"]["tree"] = ""
    facts["restored"] = {"there": True, "again": again, "tree": tree}
    assert len(violations(facts)) == said


MARKS = [
    {"what": "phase", "phase": "backup", "instant": 100, "orders": 3},
    {"what": "run", "run": "r1", "instant": 200, "orders": 9},
    {"what": "phase", "phase": "archiving", "instant": 210, "orders": 9},
    {"what": "restored", "tree": "ab12", "instant": 300, "orders": 12},
    {"what": "may-go", "run": "r1", "instant": 310, "orders": 13},
    {"what": "phase", "phase": "", "instant": 400, "orders": 20},
    {"what": "phase", "phase": "upgrade", "instant": 450, "orders": 20},
    {"what": "phase", "phase": "", "instant": 460, "orders": 20},
]


OURS = [120, 150, 290, 455]


def test_three_of_four_cuts_are_at_what_backupd_asked_of_a_disk() -> None:
    found = cuts(MARKS, OURS, "7-0", range(200))
    assert 0.6 < sum(cut.instant in OURS for cut in found) / 200 < 0.9


def test_each_phase_has_its_turn_and_what_lies_between_them_has_none() -> None:
    assert phases(MARKS) == {"backup": (100, 210), "archiving": (210, 400), "upgrade": (450, 460)}
    found = cuts(MARKS, OURS, "7-0", range(30))
    assert [cut.instant for cut in found] == sorted(cut.instant for cut in found)
    assert {cut.phase: cut.index % 3 for cut in found} == {"backup": 0, "archiving": 1, "upgrade": 2}
    assert {cut.mode for cut in found} == set(Mode)


def test_a_cut_is_that_of_its_seed_and_index_alone() -> None:
    every = {cut.index: cut for cut in cuts(MARKS, OURS, "7-0", range(30))}
    assert cuts(MARKS, OURS, "7-0", [17]) == [every[17]]
    assert cuts(MARKS, OURS, "8-0", [17]) != [every[17]]


def test_only_what_had_been_told_by_the_instant_of_the_cut_was_promised() -> None:
    early, late = (
        next(cut for cut in cuts(MARKS, OURS, "7-0", range(99)) if rule(cut.instant)) for rule in (_early, _late)
    )
    assert promised(MARKS, early)["runs"] == []
    assert not promised(MARKS, early)["archive"]
    told = promised(MARKS, late)
    assert (told["runs"], told["may_go"], told["tree"], told["orders"]) == (["r1"], ["r1"], "ab12", 20)
    assert told["archive"]


def _early(instant: int) -> bool:
    return instant < 200


def _late(instant: int) -> bool:
    return instant > 450


def test_a_campaign_goes_on_with_the_cuts_that_nobody_has_looked_at(tmp_path: Any) -> None:
    first, second = parts(tmp_path, 7, CUTS_A_RECORDING + 2, ["uml"])
    assert isinstance(first, Part)
    assert len(first.indexes) == CUTS_A_RECORDING
    assert second.missing() == [CUTS_A_RECORDING, CUTS_A_RECORDING + 1]
    second.folder.mkdir(parents=True)
    (second.folder / "results.jsonl").write_text(f'{{"index": {CUTS_A_RECORDING}, "violations": []}}\n')
    assert second.missing() == [CUTS_A_RECORDING + 1]
    assert [part.indexes for part in parts(tmp_path, 7, 99, ["uml", "uml-installed"], only=5)] == [(5,), (5,)]


def test_totals_count_cuts_and_what_was_broken() -> None:
    result = {
        "phase": "backup",
        "mode": "nothing",
        "lost_bytes": 1 << 20,
        "late": [],
        "unfinished": [],
        "seconds": 12.0,
        "violations": [],
    }
    broken = {
        **result,
        "phase": "prune",
        "late": ["on the target x"],
        "violations": ["runs: r1 …", "runs: r2 …", "boot: …"],
    }
    assert totals([result, broken]).splitlines() == [
        "2 power cuts, 12.0 s each; 2.0 MiB of writes forgotten",
        "in backup 1, prune 1",
        "caches got out nothing 2",
        "in 1 of them `recover` had to be typed again two minutes later, for what was on the target",
        "in 0 of them an unfinished segment or owner record waits for later ones",
        "violations: boot 1, runs 2",
    ]
    assert totals([result]).splitlines()[-1] == "violations: none"
