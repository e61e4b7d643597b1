"""A zone is known by what it does; a name counts where the clock agrees with it."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from backupd.policy.time_zones import INSTANTS, is_zone_name, is_zone_now, require_rules, zone_by_offsets
from backupd.vocabulary.errors import UsageError

NOW = datetime(2026, 11, 26, tzinfo=UTC)
HOUR = 3600


def offsets(zone: str) -> tuple[int, ...]:
    """As a server tells them whose clock goes by the zone."""
    ahead = (datetime.fromtimestamp(instant, ZoneInfo(zone)).utcoffset() for instant in INSTANTS)
    return tuple(int(each.total_seconds()) for each in ahead if each is not None)


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]
)
def test_a_zone_is_known_by_its_offsets_alone(zone: str) -> None:
    found = zone_by_offsets(offsets(zone), now=NOW)
    assert offsets(found) == offsets(zone)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu", "UTC"])
def test_it_is_called_as_people_know_it(zone: str) -> None:
    assert zone_by_offsets(offsets(zone), now=NOW) == zone


def test_of_zones_that_do_the_same_the_name_that_the_server_gives_is_taken() -> None:
    assert zone_by_offsets(offsets("Europe/Stockholm"), hints=["", "Europe/Oslo"], now=NOW) == "Europe/Oslo"


def test_a_name_counts_for_nothing_where_the_clock_goes_by_another_zone() -> None:
    assert zone_by_offsets(offsets("America/New_York"), hints=["UTC", "Europe/Oslo"], now=NOW) == "America/New_York"


def test_a_name_is_believed_where_only_rules_of_long_ago_differ() -> None:
    older = (offsets("Europe/Berlin")[0] + HOUR, *offsets("Europe/Berlin")[1:])
    assert zone_by_offsets(older, now=NOW) == ""
    assert zone_by_offsets(older, hints=["America/New_York", "Europe/Berlin"], now=NOW) == "Europe/Berlin"


def test_a_clock_that_no_zone_goes_by_has_no_name() -> None:
    assert zone_by_offsets([HOUR + 17] * len(INSTANTS), hints=["Europe/Berlin"], now=NOW) == ""
    assert zone_by_offsets([], hints=["UTC"], now=NOW) == ""


def test_whether_a_server_took_the_zone_is_told_by_its_clock() -> None:
    assert is_zone_now("Europe/Berlin", offsets("Europe/Oslo"), now=NOW)
    assert not is_zone_now("Europe/Berlin", offsets("UTC"), now=NOW)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../../etc/passwd",
        "Europe/../../x",
        ":Europe/Berlin",
        "EST5EDT4,M3.2.0",
        "Europe/Berlin\n",
        "A" * 65,
    ],
)
def test_what_is_no_zones_name_reaches_no_file(name: str, tmp_path: Path) -> None:
    assert not is_zone_name(name)
    with pytest.raises(UsageError, match="which servers on this host do not know"):
        require_rules(name, rules=tmp_path)


def test_a_zone_without_rules_on_this_host_is_refused_and_utc_needs_none(tmp_path: Path) -> None:
    require_rules("UTC", rules=tmp_path)
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe/Berlin").touch()
    require_rules("Europe/Berlin", rules=tmp_path)
    for name in ("Europe/Oslo", "Europe"):
        with pytest.raises(UsageError) as refused:
            require_rules(name, rules=tmp_path)
        assert "install tzdata" in (refused.value.hint or "")
