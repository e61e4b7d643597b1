"""The judgement of the campaigns: a sound outcome breaks nothing, and each kind of broken promise is told."""

from dataclasses import replace

import pytest

from tests.fire.judging import Ended, Kind, Observed, Row, violations

GOOD = Row("r1", "nightly", "success", frozenset({"store"}))
OLD = Row("r0", "nightly", "success", frozenset({"store"}))
THINGS = {"volumes": frozenset({"vg/data"}), "mounts": frozenset({"/"})}
FOREIGN = {"volume vg/backupd-x": "uuid tag", "file /store/notes.txt": "abc 644 1"}
SOUND = Observed(
    command="run",
    ended=Ended(0, "", 1.0),
    recovered=Ended(0, "", 0.5),
    before=THINGS,
    by_itself=THINGS,
    after=THINGS,
    foreign_before=FOREIGN,
    foreign_after=FOREIGN,
    lock_seconds=2.05,
    budget_seconds=2.0,
    run_id="r1",
    rows={"r0": OLD, "r1": GOOD},
    acknowledged=frozenset({("r0", "store")}),
    whole={("r0", "store"): True, ("r1", "store"): True},
)
FAILED = replace(
    SOUND,
    ended=Ended(8, "12:00:00 INFO    x\nerror: no space left\nhint: free some\n", 1.0),
    rows={"r0": OLD, "r1": Row("r1", "nightly", "failed", hint="free some")},
)
DIED = replace(FAILED, ended=Ended(None, "", 1.0), by_itself=None)


def kinds(seen: Observed) -> list[Kind]:
    return [one.kind for one in violations(seen)]


@pytest.mark.parametrize("sound", [SOUND, FAILED, DIED])
def test_sound_outcome_breaks_no_promise(sound: Observed) -> None:
    assert violations(sound) == ()


def test_lock_is_judged_by_what_is_no_noise() -> None:
    assert kinds(replace(SOUND, lock_seconds=2.25, noise_seconds=0.2)) == []
    assert kinds(replace(SOUND, lock_seconds=2.35, noise_seconds=0.2)) == [Kind.LOCK]


def test_attention_is_as_good_as_success() -> None:
    rows = {"r0": OLD, "r1": replace(GOOD, status="attention")}
    assert kinds(replace(SOUND, ended=Ended(3, "attention: look at it\n", 1.0), rows=rows)) == []


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (Kind.LOCK, replace(SOUND, lock_seconds=2.11)),
        (Kind.LOST, replace(SOUND, archive="a gap: purged")),
        (Kind.STALL, replace(SOUND, stall_seconds=4.11, most_stall_seconds=4.0)),
        (Kind.LEFT, replace(SOUND, after={**THINGS, "volumes": frozenset({"vg/data", "vg/backupd-r1"})})),
        (Kind.LEFT, replace(FAILED, by_itself={**THINGS, "mounts": frozenset({"/", "/run/backupd/mnt/r1"})})),
        (Kind.LEFT, replace(SOUND, after={**THINGS, "suspended devices": frozenset({"vg-data suspended"})})),
        (Kind.LEFT, replace(DIED, recovered=Ended(10, "error: it is left\nhint: again\n", 1.0))),
        (Kind.FOREIGN, replace(SOUND, foreign_after={"volume vg/backupd-x": "uuid tag"})),
        (Kind.FOREIGN, replace(SOUND, foreign_after={**FOREIGN, "file /store/notes.txt": "abd 644 2"})),
        (Kind.FALSE, replace(SOUND, whole={("r0", "store"): True, ("r1", "store"): False})),
        (Kind.FALSE, replace(SOUND, rows={"r0": OLD})),
        (Kind.FALSE, replace(SOUND, rows={"r0": OLD, "r1": replace(GOOD, status="failed", hint="x")})),
        (Kind.FALSE, replace(SOUND, rows={"r0": OLD, "r1": replace(GOOD, copies=frozenset())})),
        (Kind.FALSE, replace(SOUND, rows={"r0": OLD, "r1": replace(GOOD, status="attention")})),
        (Kind.FALSE, replace(FAILED, rows=SOUND.rows)),
        (Kind.LOST, replace(DIED, rows={"r1": DIED.rows["r1"]})),
        (Kind.LOST, replace(DIED, rows={**DIED.rows, "r0": replace(OLD, copies=frozenset())})),
        (Kind.LOST, replace(DIED, lacking={("r0", "store"): "its manifest is gone"})),
        (Kind.SENTENCE, replace(FAILED, ended=Ended(1, "Traceback (most recent call last):\n  KeyError: 1\n", 1.0))),
        (Kind.SENTENCE, replace(FAILED, ended=Ended(8, "error: no space left\n", 1.0))),
        (Kind.SENTENCE, replace(FAILED, ended=Ended(8, "hint: free some\n", 1.0))),
        (Kind.SENTENCE, replace(FAILED, ended=Ended(70, "error: x\nhint: y\n", 1.0))),
        (Kind.SENTENCE, replace(FAILED, rows={"r0": OLD, "r1": Row("r1", "nightly", "failed", hint="")})),
        (Kind.KILLED, replace(DIED, killed=(("lvm",),))),
        (Kind.KILLED, replace(DIED, killed=(("sh", "-c", "sleep 1", "hung", "/sbin/lvremove", "-y", "vg/x"),))),
        (Kind.ENDLESS, replace(DIED, ended=Ended(None, "", 60.0, in_time=False))),
        (Kind.ENDLESS, replace(SOUND, recovered=Ended(None, "", 60.0, in_time=False))),
    ],
)
def test_broken_promise_is_told(kind: Kind, seen: Observed) -> None:
    assert kind in kinds(seen)


def test_acknowledged_backup_that_is_damaged_is_both_lost_and_a_false_success() -> None:
    damaged = replace(DIED, whole={("r0", "store"): False})
    assert kinds(damaged) == [Kind.FALSE, Kind.LOST]


@pytest.mark.parametrize("words", [("tar", "--create"), ("lvs", "--options", "lv_name"), ("lvm", "version")])
def test_program_that_changes_no_volume_may_be_killed(words: tuple[str, ...]) -> None:
    assert kinds(replace(DIED, killed=(words,))) == []
