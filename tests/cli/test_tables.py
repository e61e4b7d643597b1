"""How runs look to a person."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backupd.catalogue.costs import RunCost
from backupd.cli import run_text
from backupd.report.bill_words import bill_words
from backupd.report.history_columns import history_table
from backupd.report.run_facts import run_facts
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, Reason, Sample, Verdict
from backupd.vocabulary.records import Check, Drill, Phase, Pin, RunDetails, RunError, RunStatus, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position, Preflush, PreflushEnd, ReplicaPosition
from backupd.vocabulary.storage import Backup
from backupd.vocabulary.volumes import Layout
from tests.fakes.target import MACHINE

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DRILL = Drill("r1", ok=True, checks=(Check("tables", ok=True, expected="0", found="0"),), seconds=12.0, at=NOON)
BILL = Bill(100.0, 12.0, 21 << 20, 3, 61.0, 2.0)
LOSSES = Losses(Counted.LOGGED, 100.0, 93.0, 91.0, 8060, 60.0)
GOOD = RunDetails(
    "r1",
    "nightly",
    "db1",
    MACHINE,
    RunStatus.SUCCESS,
    NOON,
    phases={Phase.LOCK_HOLD: 0.0214, Phase.SNAPSHOT: 0.02, Phase.SETTLE: 95.0, Phase.COPY: 10.0},
    verdict=Verdict(GateOutcome.START, Reason.SETTLED, "penalty 1.10 (threshold 1.25)", 95.0),
    position=Position(
        "bin.000007", 4096, "0-1-7", (ReplicaPosition("", "far.000042", 815), ReplicaPosition("west", "", 0, "a:1-5"))
    ),
    lock=LockReceipt("backup-stage", 1, 0.003, 0.0264, "metadata-locks", None, 0.001, 0.0031, 0.0015, 0.0008, 4),
    snapshot=SnapshotFacts("backupd-r1", "labvg/data", Layout.STRIPED, 3, 65536, 65536, 1 << 30, 1 << 20, None, "why"),
    samples=(Sample(0.0, "baseline", iops=1000.0), Sample(1.0, "settle", iops=500.0, ratio=2.0)),
    backups=(Backup("vault", "/srv/backups/nightly/r1", 100 << 20, 10 << 20, 42, "a" * 64, verified_at=NOON),),
    drills=(DRILL,),
)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (PreflushEnd.FEW, ""),
        (PreflushEnd.STEADY, ": the number stopped falling"),
        (PreflushEnd.LIMIT, ": lock.preflush_wait ran out"),
    ],
)
def test_the_pages_that_were_written_before_the_lock_are_told(end: PreflushEnd, why: str) -> None:
    told = dict(bill_words(replace(GOOD, preflush=Preflush(41_234, 90, 8.04, end))))
    assert told["pre-flush"] == f"41,234 dirty pages before the lock, 90 after 8.0 s{why}"
    assert "pre-flush" not in dict(bill_words(GOOD))


def test_a_good_run_tells_what_it_cost_and_what_is_there_now() -> None:
    facts = dict(run_facts(GOOD))
    assert facts["lock"] == "backup-stage: waited 3 ms, held 26 ms (snapshot 20 ms); confirmed by metadata-locks"
    assert facts["position"] == "bin.000007:4096, GTID 0-1-7"
    assert (facts["replica"], facts["replica west"]) == ("far.000042:815 of its source", "GTID a:1-5")
    assert facts["volume"] == "labvg/data, striped, 3 stripes of 64.0 KiB"
    assert facts["chunks"] == "64.0 KiB: why"
    assert facts["COW area"] == "1.0 GiB, at most 1.0 MiB used"
    assert facts["write penalty"] == "2.00x at first, 2.00x when the copy started (baseline 1000 IOPS)"
    penalty = dict(run_facts(replace(GOOD, phases={Phase.SETTLE: 95.0})))["write penalty"]
    assert penalty == "2.00x at first, 2.00x when last measured (baseline 1000 IOPS)"
    assert facts["gate"] == "opened after 1 min 35 s (settled): penalty 1.10 (threshold 1.25)"
    assert facts["copy"] == "100.0 MiB in 10.0 s at 10.0 MiB/s, 42 files"
    assert facts["backup"] == "/srv/backups/nightly/r1 (10.0 MiB, read back and equal)"
    assert facts["proof"] == "restored and started: 1 of 1 checks in 12.0 s, 2026-03-01 12:00 UTC"


def test_the_bill_tells_what_was_lost_and_to_what() -> None:
    bill = dict(bill_words(replace(GOOD, bill=BILL, losses=LOSSES)))
    assert bill == {
        "transactions lost": "about 1,240 of 9,300 (13%), ± 60, by the server's own counters;"
        " 93 a second before, 81 meanwhile, 91 after",
        "lock held for": "reading the position 1 ms, engine logs 3 ms, snapshot 20 ms, confirmation 2 ms, unlock 1 ms",
        "statements stalled": "4 when the lock ended",
        "writes delayed by": "12.0 s of 1 min 40 s",
        "copied on write": "21.0 MiB",
        "disk time": "3 disks busy for 1 min 01 s, reads took 2.0 s, 20.0 ms per MiB copied",
    }
    assert run_text.bill_table(replace(GOOD, lock=None)) == ""


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (
            {"done": 9250},
            "none beyond the noise (± 60 of 9,300), by the server's own counters;"
            " 93 a second before, 92 meanwhile, 91 after",
        ),
        (
            {"rate_before": 0.2, "done": 0},
            "none: the server did 0.2 transactions a second, by the server's own counters",
        ),
        (
            {"rate_after": None},
            "about 1,240 of 9,300 (13%), ± 60, by the server's own counters; 93 a second before, 81 meanwhile",
        ),
    ],
)
def test_what_was_lost_is_never_more_certain_than_the_counters(losses: dict[str, Any], words: str) -> None:
    found = dict(bill_words(replace(GOOD, losses=replace(LOSSES, **losses))))
    assert found["transactions lost"] == words


def test_without_a_binlog_the_bill_says_what_was_counted() -> None:
    statements = replace(LOSSES, counted=Counted.STATEMENTS)
    assert "writing statements lost" in dict(bill_words(replace(GOOD, losses=statements)))


def test_each_copy_is_told_with_what_became_of_it() -> None:
    (good,) = GOOD.backups
    copies = (
        good,
        replace(good, target="offsite", location="s3:x", broken="data-1.tar.zst: expected more"),
        replace(good, target="old", location="sftp:y", removed_at=NOON, removed_because="expired: beyond the last 7"),
        replace(good, target="found", location="/mnt", verified_at=None),
    )
    facts = run_facts(replace(GOOD, backups=copies))
    assert [text for name, text in facts if name == "backup"] == [
        "on vault: /srv/backups/nightly/r1 (10.0 MiB, read back and equal)",
        "on offsite: s3:x (BROKEN: data-1.tar.zst: expected more)",
        "on old: sftp:y (removed 2026-03-01 12:00 UTC: expired: beyond the last 7)",
        "on found: /mnt (10.0 MiB, not read back)",
    ]


def test_a_thin_volumes_run_tells_of_its_pool_and_of_no_cow_area() -> None:
    assert GOOD.snapshot is not None
    facts = dict(run_facts(replace(GOOD, snapshot=replace(GOOD.snapshot, pool="labvg/pool"))))
    assert facts["thin pool"] == "labvg/pool, 1.0 GiB, at most 1.0 MiB used"
    assert "COW area" not in facts


def test_a_failed_run_tells_its_error_and_what_to_do() -> None:
    failed = RunDetails(
        "r1", "nightly", "db1", MACHINE, RunStatus.FAILED, NOON, error=RunError("busy", "it is busy", "wait", 4)
    )
    assert run_facts(failed)[-2:] == [("error", "it is busy"), ("hint", "wait")]
    assert "lock" not in dict(run_facts(failed))


def test_a_linear_volume_has_no_stripes_to_tell() -> None:
    assert GOOD.snapshot is not None
    linear = replace(GOOD.snapshot, layout=Layout.LINEAR, stripes=1, stripe_size=None)
    assert dict(run_facts(replace(GOOD, snapshot=linear)))["volume"] == "labvg/data, linear"


def test_every_attention_is_shown() -> None:
    wanting = replace(GOOD, status=RunStatus.ATTENTION, attention=("first", "second"))
    assert [text for name, text in run_facts(wanting) if name == "attention"] == ["first", "second"]


COST = RunCost("r1", "nightly", "db1", MACHINE, RunStatus.SUCCESS, NOON, bytes_stored=10 << 20, copies=1)


def cells(*runs: RunCost) -> list[dict[str, str]]:
    """What `history` shows, by column."""
    head, *rows = (re.split(r" {2,}", line) for line in history_table(runs, own=MACHINE).splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_history_says_how_far_a_backup_can_be_rolled_forward_where_one_can() -> None:
    other = replace(COST, run_id="r2")
    head, *rows = history_table([COST, other], own=MACHINE, rolled={"r1": NOON}).splitlines()
    assert [line.split("  ")[-1].strip() for line in (head, *rows)] == ["ROLLS TO (UTC)", f"{NOON:%Y-%m-%d %H:%M}", "-"]
    assert "ROLLS" not in history_table([other], own=MACHINE, rolled={"r1": NOON})


@pytest.mark.parametrize(("stalled", "words"), [(None, "-"), (0, "0"), (1204, "1,204")])
def test_history_says_how_many_statements_waited_behind_the_lock(stalled: int | None, words: str) -> None:
    assert cells(replace(COST, stalled=stalled))[0]["STALLED"] == words


@pytest.mark.parametrize(
    ("drills", "ok", "proven"), [(0, None, "not yet"), (1, True, "yes"), (2, False, "FAILED"), (1, None, "undecided")]
)
def test_history_says_whether_a_backup_was_proven(drills: int, ok: bool | None, proven: str) -> None:
    (shown,) = cells(replace(COST, drills=drills, drill_ok=ok))
    assert (shown["PROVEN"], shown["STORED"]) == (proven, "10.0 MiB")


@pytest.mark.parametrize(
    ("figures", "stored", "verified"),
    [
        ({"bytes_stored": None, "copies": 0}, "-", "-"),
        ({}, "10.0 MiB", "-"),
        ({"copies": 2, "verified_at": NOON}, "10.0 MiB x 2", "2026-03-01"),
        ({"copies": 0}, "removed", "-"),
        ({"copies": 0, "copies_broken": 1}, "BROKEN", "-"),
        ({"copies_broken": 1}, "10.0 MiB", "-"),
    ],
)
def test_history_says_what_is_there_and_when_it_was_last_read_back(
    figures: dict[str, Any], stored: str, verified: str
) -> None:
    (shown,) = cells(replace(COST, **figures))
    assert (shown["STORED"], shown["VERIFIED"]) == (stored, verified)


def test_history_has_a_column_for_pins_where_there_is_one() -> None:
    assert "PINNED" not in cells(COST)[0]
    noted, silent, unpinned = cells(replace(COST, pinned="before the merger"), replace(COST, pinned=""), COST)
    assert (noted["PINNED"], silent["PINNED"], unpinned["PINNED"]) == ("before the merger", "yes", "-")
    pinned = replace(GOOD, pin=Pin("before the merger", NOON))
    assert dict(run_facts(pinned))["pinned"] == "before the merger, since 2026-03-01 12:00 UTC"


def test_a_failed_check_says_what_was_expected() -> None:
    table = run_text.drill_table((Check("position", ok=False, expected="7:1", found="7:2"), *DRILL.checks))
    assert table == "FAILED  position  expected 7:1, found 7:2\nok      tables    0"


def test_one_of_the_job_s_own_checks_always_says_what_was_expected() -> None:
    asked = "SELECT COUNT(*) FROM shop.orders"
    good = Check("checks.orders", ok=True, expected="at least 9", found="11", asked=asked)
    bad = Check("checks.schema", ok=False, expected="42", found="\x1b[2J\nok  checks.schema  42", asked=asked)
    same = Check("checks.other", ok=True, expected="42", found="42", asked=asked)
    assert run_text.drill_table((good, bad, same)).splitlines() == [
        "ok      checks.orders  11, expected at least 9",
        "FAILED  checks.schema  expected 42, found \\x1b[2J\\nok  checks.schema  42",
        "ok      checks.other   42",
    ]


@pytest.mark.parametrize(
    ("position", "derived", "words"),
    [
        (Position("bin.000007"), False, "in bin.000007; a drill finds the offset"),
        (Position("bin.000007", 4096, "0-1-7"), True, "bin.000007:4096, GTID 0-1-7 (found by the drill)"),
    ],
)
def test_of_a_run_without_a_lock_it_is_said_who_found_the_position(
    position: Position, derived: bool, words: str
) -> None:
    run = replace(GOOD, position=position, derived=derived, lock=LockReceipt("none", 0, 0.0, 0.0, "none"))
    facts = dict(run_facts(run))
    assert facts["position"] == words
    assert facts["lock"].startswith("none (snapshot ")
    assert facts["lock"].endswith("): the backup is what a power cut would have left")
