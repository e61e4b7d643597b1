"""`make bench-peers`: which limits its rounds kept."""

from dataclasses import replace

from tests.bench.peers.contenders import BACKUPD, FAST_PV, MARIADB_BACKUP, MYLVMBACKUP, NOTHING
from tests.bench.peers.figures import Reading
from tests.bench.peers.limits import judged, limits_table
from tests.unit.test_bench_peers import reading


def round_of(name: str, wall: float, lost: float, stall: float, p99: float = 100.0, before: float = 25.0) -> Reading:
    one = reading(0, wall, name)
    assert one.impact is not None
    felt = replace(one.impact, lost=lost, stall_ms=stall, p99_ms=p99, p99_before_ms=before)
    return replace(one, impact=felt)


CLOSED = (
    round_of(NOTHING, 17, 14, 297),
    round_of(MYLVMBACKUP, 13, 2467, 857),
    round_of(MARIADB_BACKUP, 10, 1000, 813),
    round_of(BACKUPD, 11, 600, 264),
    round_of(FAST_PV, 17, 600, 600),
)


def verdicts(disks: str, kind: str, readings: tuple[Reading, ...], who: str) -> dict[str, str]:
    return {one.limit: one.verdict for one in judged(disks, kind, readings) if one.who == who}


def test_each_limit_is_told_with_its_figure_and_whether_it_was_kept() -> None:
    assert verdicts("hdd", "closed", CLOSED, BACKUPD) == {
        f"lost at most 0.7 of {MARIADB_BACKUP}'s": "kept",
        f"lost at most 0.25 of {MYLVMBACKUP}'s": "kept",
        "stall ms at most 500": "kept",
        f"stall ms at most 0.6 of {MARIADB_BACKUP}'s": "kept",
        f"wall s at most 1.2 of {MARIADB_BACKUP}'s": "kept",
    }
    on_fast_pv = verdicts("hdd", "closed", CLOSED, FAST_PV)
    assert on_fast_pv[f"lost at most 0.5 of {MARIADB_BACKUP}'s"] == "MISSED"
    assert on_fast_pv["stall ms at most 500"] == "MISSED"
    assert f"| {BACKUPD} | lost at most 0.7 of {MARIADB_BACKUP}'s | 0.60 | kept |" in limits_table(
        judged("hdd", "closed", CLOSED)
    )


def test_a_limit_beside_a_rival_that_did_not_run_is_not_judged() -> None:
    assert set(verdicts("hdd", "closed", (CLOSED[0], CLOSED[3]), BACKUPD)) == {"stall ms at most 500"}
    assert judged("hdd", "closed", CLOSED[:3]) == []
    assert limits_table([]) == ""


def test_at_a_rate_the_loss_is_held_against_the_noise_and_p99_against_before() -> None:
    readings = (
        *(round_of(NOTHING, 17, lost, 30) for lost in (-2.0, 81.0, 192.0)),
        round_of(MARIADB_BACKUP, 6, -5, 949, p99=404),
        round_of(BACKUPD, 16, 191, 273, p99=90, before=24),
    )
    found = verdicts("ssd", "rate", readings, BACKUPD)
    assert found == {
        "lost no more than without a backup once": "kept",
        f"p99 ms at most 0.8 of {MARIADB_BACKUP}'s": "kept",
        "p99 ms at most 2 of before": "MISSED",
        "stall ms at most 400": "kept",
    }


def test_a_rival_that_lost_nothing_is_no_measure() -> None:
    readings = (round_of(MARIADB_BACKUP, 8, -3, 700), round_of(BACKUPD, 9, 100, 200))
    assert verdicts("ssd", "closed", readings, BACKUPD) == {
        f"lost at most 1 of {MARIADB_BACKUP}'s": "-",
        f"wall s at most 1.5 of {MARIADB_BACKUP}'s": "kept",
    }
