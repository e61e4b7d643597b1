"""Which of a server's settings are put back, and until when the dirty pages are waited for."""

import pytest

from backupd.config import Configuration
from backupd.mysql.flushing import LOW_WATER_MARK, MAX_DIRTY, preflush_end, restoration
from backupd.mysql.same_server import AT, DATADIR, SERVER_ID, SERVER_UUID, UPTIME
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.servers import PreflushEnd
from backupd.wiring import host_tools
from tests.fakes.target import MACHINE

SAVED = {MAX_DIRTY: "90.000000", LOW_WATER_MARK: "10.000000", DATADIR: "/srv/mysql/", UPTIME: "100", AT: "1000"}
FLUSHING = {**SAVED, MAX_DIRTY: "0.000000", LOW_WATER_MARK: "0.000000", UPTIME: "160", AT: "1060"}


@pytest.mark.parametrize(
    ("now", "values"),
    [
        (FLUSHING, ((MAX_DIRTY, 90.0), (LOW_WATER_MARK, 10.0))),
        ({**SAVED, UPTIME: "160"}, ()),  # it died before it had touched anything
        ({**FLUSHING, MAX_DIRTY: "90.000000"}, ((LOW_WATER_MARK, 10.0),)),  # it died between the two
        ({**FLUSHING, UPTIME: "50"}, ((MAX_DIRTY, 90.0), (LOW_WATER_MARK, 10.0))),  # the clock was set back
        ({**SAVED, LOW_WATER_MARK: "0.000000", UPTIME: "50"}, ()),  # restarted: what it has is its option file's
        ({**SAVED, MAX_DIRTY: "75.000000", UPTIME: "50"}, ()),
        ({**SAVED, LOW_WATER_MARK: "0.000000", UPTIME: "7200", AT: "90000"}, ()),  # the same, hours ago
        ({**FLUSHING, UPTIME: "3700", AT: "4600"}, ((MAX_DIRTY, 90.0), (LOW_WATER_MARK, 10.0))),  # an hour later
        ({**FLUSHING, MAX_DIRTY: "90.000000", UPTIME: "3690", AT: "4600"}, ((LOW_WATER_MARK, 10.0),)),
    ],
)
def test_what_is_as_we_left_it_is_put_back_and_what_is_there_already_is_let_be(
    now: dict[str, str], values: tuple[tuple[str, float], ...]
) -> None:
    found = restoration(SAVED, now)
    assert (found.values, found.left) == (values, ())


def test_what_somebody_has_changed_meanwhile_is_left_and_told() -> None:
    found = restoration(SAVED, {**FLUSHING, MAX_DIRTY: "75.000000"})
    assert found.values == ((LOW_WATER_MARK, 10.0),)
    assert found.left == (
        "innodb_max_dirty_pages_pct was changed to 75 by somebody else and is left as it is; before the lock it was 90",
    )


def test_the_second_setting_is_not_put_above_the_first_that_somebody_has_lowered() -> None:
    found = restoration(SAVED, {**FLUSHING, MAX_DIRTY: "5.000000"})
    assert found.values == ((LOW_WATER_MARK, 5.0),)


@pytest.mark.parametrize("now", [SAVED, FLUSHING])
def test_a_younger_server_with_another_datadir_is_left_alone_and_told(now: dict[str, str]) -> None:
    found = restoration(SAVED, {**now, DATADIR: "/srv/restored/", UPTIME: "50", AT: "1200"})
    assert found.values == ()
    assert "its datadir is /srv/restored/" in found.left[0]
    assert "if that server is still running: SET GLOBAL innodb_max_dirty_pages_pct = 90 there" in found.left[0]


@pytest.mark.parametrize("own_id", [SERVER_UUID, SERVER_ID])
def test_another_host_s_server_with_the_same_datadir_is_told_by_its_id(own_id: str) -> None:
    with pytest.raises(ServerError, match=f"another server answers: its {own_id} is 2, and {MAX_DIRTY} was changed"):
        restoration({**SAVED, own_id: "1"}, {**SAVED, own_id: "2", UPTIME: "9000"})
    assert restoration(SAVED, {**FLUSHING, own_id: "2"}).values  # an older version wrote down no id


def test_a_server_that_writes_everything_anyway_keeps_its_settings() -> None:
    settings = {**SAVED, MAX_DIRTY: "0.000000", LOW_WATER_MARK: "0.000000"}
    assert restoration(settings, FLUSHING).values == ()


def test_another_server_on_the_same_socket_is_left_alone_and_the_one_that_was_changed_is_named() -> None:
    with pytest.raises(ServerError, match=r"its datadir is /srv/other/, and .* of /srv/mysql/") as refused:
        restoration(SAVED, {**FLUSHING, DATADIR: "/srv/other/"})
    assert "SET GLOBAL innodb_max_dirty_pages_pct = 90 there" in refused.value.hint


@pytest.mark.parametrize(
    ("pages", "seconds", "end"),
    [
        ([100], 0.0, PreflushEnd.FEW),
        ([0], 0.0, PreflushEnd.FEW),
        ([50_000, 20_000, 501], 2.0, None),
        ([50_000, 20_000, 500], 2.0, PreflushEnd.FEW),
        ([5000], 60.0, PreflushEnd.LIMIT),
        ([5000, 4000, 3000, 2000, 1000, 900, 850], 6.0, None),
        ([5000, 4800, 4790, 4795, 4800, 4790, 4785], 6.0, PreflushEnd.STEADY),
        ([1_000_000 - 1500 * look for look in range(60)], 60.0 - 1, None),  # a large pool takes its time
        ([5000, 5200, 5400, 5500, 5600, 5700], 5.0, PreflushEnd.STEADY),
        ([5000, 5200, 5400, 5500, 5600], 4.0, None),  # it has hardly begun
        ([738, 527, 527, 437, 437, 404, 337, 270, 203], 8.0, None),  # MariaDB 10.11.19, innodb_io_capacity = 200
    ],
)
def test_it_is_waited_until_few_are_left_or_they_fall_no_further_or_the_limit(
    pages: list[int], seconds: float, end: PreflushEnd | None
) -> None:
    assert preflush_end(pages, seconds=seconds, limit_seconds=60.0) is end


def test_the_settings_of_a_host_that_the_configuration_has_no_more_are_a_sentence_and_no_crash() -> None:
    release = host_tools(Configuration(), MACHINE).releases[HoldingKind.FLUSH_SETTINGS]
    with pytest.raises(UsageError, match="no host 'db1'"):
        release(Holding(HoldingKind.FLUSH_SETTINGS, "db1", {"host": "db1", **SAVED}))
