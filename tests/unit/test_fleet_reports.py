"""What became of a fleet's nights, in figures, as text and as a page that can be mailed."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from backupd.policy.fleet_slots import slot_uses
from backupd.report.fleet_calendar import CalendarLinks, calendar_table, nights_to
from backupd.report.fleet_night import month_report, night_report
from backupd.report.fleet_night_html import month_page, night_page
from backupd.report.fleet_night_text import history_csv, month_text, night_text
from backupd.report.fleet_slots_svg import slots_svg
from backupd.vocabulary.fleet import FleetBackup, FleetState
from tests.fleet.many_nights import MadeFleet
from tests.hostile_words import HOSTILE, MARKUP, faults
from tests.unit.test_cluster_status import NOW, owed
from tests.unit.test_fleet_slots import backup

NIGHT = date(2026, 11, 25)
LINKS = CalendarLinks(lambda one: f"/b/{one}", lambda one: f"/c/{one}", lambda one: f"/n/{one}")


def good(name: str, *spans: tuple[int, int | None]) -> FleetBackup:
    return replace(backup(name, *spans), stored_bytes=1 << 30, lost_transactions=5)


def bad(name: str, state: FleetState, night: date = NIGHT, said: str = "no room") -> FleetBackup:
    return FleetBackup(owed(name, night), state, said=said)


def hostile() -> FleetBackup:
    return replace(
        good("x", (0, 10)), owed=replace(owed(HOSTILE), job=HOSTILE, targets=(HOSTILE,)), said=HOSTILE, phase=HOSTILE
    )


def test_a_night_is_summed_from_its_first_beginning_to_its_last_end() -> None:
    backups = [good("a", (0, 10), (20, 50)), good("b", (5, 40)), bad("c", FleetState.MISSED)]
    found = night_report(NIGHT, backups, {"nas1": 2}, now=NOW)
    assert found.seconds == 50 * 60
    assert (found.stored_bytes, found.lost_transactions, found.tried_again) == (2 << 30, 10, 1)
    assert [one.owed.cluster for one in found.amiss] == ["c"]
    (target,) = found.targets
    assert (target.slots, target.most, target.busy_seconds, target.stored_bytes) == (2, 2, 75 * 60, 2 << 30)


def test_a_night_that_goes_on_has_no_end() -> None:
    going = replace(backup("a", (0, None)), state=FleetState.RUNNING)
    assert night_report(NIGHT, [going, good("b", (0, 5))], {}, now=NOW).seconds is None


def test_a_month_names_the_cluster_with_the_longest_gap_first() -> None:
    first, last = date(2026, 11, 1), date(2026, 11, 10)
    days = [first + timedelta(days=ago) for ago in range(10)]
    backups = [replace(good("well", (0, 10)), owed=owed("well", day)) for day in days]
    backups += [replace(good("gap", (0, 10)), owed=owed("gap", day)) for day in days if day.day not in (4, 5, 6)]
    backups += [bad("gap", FleetState.FAILED, days[3])]
    found = month_report(first, last, backups, passed=last)
    assert [(one.cluster, one.longest_gap_nights) for one in found.clusters] == [("gap", 3), ("well", 0)]
    assert found.clusters[0].counts == {FleetState.DONE: 7, FleetState.FAILED: 1}
    assert found.clusters[0].median_seconds == 600
    assert found.clusters[0].good_share == 7 / 8


def test_a_night_that_goes_on_is_no_gap_of_its_month() -> None:
    first, tonight = date(2026, 11, 1), date(2026, 11, 3)
    nights = [first, first + timedelta(days=1)]
    backups = [replace(good("well", (0, 10)), owed=owed("well", night)) for night in nights]
    backups += [replace(good("early", (0, 10)), owed=owed("early", night)) for night in (*nights, tonight)]
    backups.append(bad("well", FleetState.WAITING, tonight))
    found = month_report(first, tonight, backups, passed=nights[-1])
    assert {one.cluster: one.longest_gap_nights for one in found.clusters} == {"well": 0, "early": 0}


def test_a_calendar_has_a_mark_for_each_backup_that_opens_it_and_none_where_none_was_owed() -> None:
    nights = nights_to(NIGHT, 3)
    assert nights == [date(2026, 11, 23), date(2026, 11, 24), NIGHT]
    outcomes = [(NIGHT, "a", "a1", FleetState.DONE), (NIGHT, "a", "a2", FleetState.FAILED)]
    drawn = calendar_table(outcomes, nights, ["a", "b"], links=LINKS)
    assert re.findall(r'<a class="night (\w+)" href="([^"]+)"', drawn) == [("done", "/b/a1"), ("failed", "/b/a2")]
    assert drawn.count("<td></td>") == 5
    alone = calendar_table(outcomes, nights, ["a", "b"])
    assert "<a" not in alone, "a file leads nowhere"
    assert alone.count('class="night failed"') == 1, "a day is known by the worst of it"


def test_slots_are_drawn_for_targets_that_nothing_was_stored_on_and_not_for_a_night_without_a_try() -> None:
    assert slots_svg({}, {"nas1": 2}, zone="UTC") == ""
    drawn = slots_svg(slot_uses([good("a", (0, 90))], now=NOW), {"nas1": 1, "tape": 2}, zone="Europe/Berlin")
    assert "tape" in drawn
    assert "23:00" in drawn, "22:00 UTC in Berlin, where the first try begins"


def test_slots_are_drawn_in_a_night_whose_clocks_are_put_back() -> None:
    night = datetime(2026, 10, 24, 22, tzinfo=UTC) - datetime(2026, 11, 25, 22, tzinfo=UTC)
    long = good("a", (0, 300))
    tries = tuple(
        replace(one, began_at=one.began_at + night, ended_at=(one.ended_at or NOW) + night) for one in long.tries
    )
    drawn = slots_svg(slot_uses([replace(long, tries=tries)], now=NOW), {}, zone="Europe/Berlin")
    assert drawn.count(">02:00<") == 2


def test_what_strangers_call_things_acts_in_no_report() -> None:
    backups = [hostile(), replace(hostile(), state=FleetState.FAILED)]
    night = night_report(NIGHT, backups, {HOSTILE: 2}, now=NOW)
    month = month_report(NIGHT, NIGHT, backups, passed=NIGHT)
    for text in (night_text(night), month_text(month), history_csv(backups)):
        assert faults(text) == []
        assert "{{7*7}}" in text
    for page in (night_page(night, {HOSTILE: 2}, zone="UTC", now=NOW), month_page(month, now=NOW)):
        assert [fault for fault in faults(page) if fault.startswith("'")] == []
        assert MARKUP not in page
        assert "{{7*7}}" in page
        assert 'href="http' not in page.replace("http://www.w3.org", "")
    drawn = calendar_table([(NIGHT, HOSTILE, HOSTILE, FleetState.DONE)], [NIGHT], [HOSTILE], links=LINKS)
    assert MARKUP not in drawn


def test_a_whole_fleets_night_is_one_page() -> None:
    made = MadeFleet(hosts=60, nights=1)
    backups = list(made.night(NIGHT))
    page = night_page(
        night_report(NIGHT, backups, made.shape.slots, now=made.now), made.shape.slots, zone="UTC", now=NOW
    )
    assert all(one.owed.cluster in page for one in backups)
