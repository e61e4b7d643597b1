"""The canary rows of a restored server are those of its moment: none is missing, and none is too many."""

import pytest

from backupd.policy.canary_minutes import KEPT_SECONDS, LoggedMinutes, minutes_check

T = 1_795_000_000  # 2026-11-18 11:06:40 UTC
BACKUP = {T - 90: 1, T - 30: 1}  # what the backup has, which the log does not tell


def logged(*written: int, later: tuple[int, ...] = ()) -> LoggedMinutes:
    made = LoggedMinutes(since=T)
    for at in written:
        made.wrote(at, 1)
    for at in later:
        made.wrote_later(at, 1)
    return made


def rows(*written: int) -> dict[int, int]:
    return {**BACKUP, **dict.fromkeys(written, 1)}


def test_the_rows_of_the_log_and_those_of_the_backup_are_as_they_should_be() -> None:
    check = minutes_check(logged(T + 30, T + 90, later=(T + 150,)), rows(T + 30, T + 90))
    assert check.ok
    assert check.expected == check.found == "2 rows since the backup, the last of 2026-11-18 11:08:10 UTC"


def test_minutes_in_which_nobody_wrote_are_missing_in_both() -> None:
    assert minutes_check(logged(T + 30, T + 9030), rows(T + 30, T + 9030)).ok
    assert minutes_check(logged(), rows()).expected == "no row since the backup"
    assert minutes_check(logged(), rows()).ok


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (rows(T + 30), "without the row of 2026-11-18 11:08:10 UTC"),
        (rows(), "without the row of 2026-11-18 11:07:10 UTC, 2026-11-18 11:08:10 UTC"),
        (rows(T + 30, T + 90, T + 150), "with the row of 2026-11-18 11:09:10 UTC"),
        ({**rows(T + 30, T + 90), T + 90: 2}, "with the row of 2026-11-18 11:08:10 UTC"),
        ({**rows(T + 30, T + 90), T + 60: 1}, "with the row of 2026-11-18 11:07:40 UTC"),
        (rows(T + 30, T + 150), "without the row of 2026-11-18 11:08:10 UTC; with the row of 2026-11-18 11:09:10 UTC"),
        (rows(T + 30, T + 90, 10**30), f"with the row of second {10**30}"),
    ],
)
def test_a_row_that_is_missing_or_too_many_is_named(found: dict[int, int], said: str) -> None:
    check = minutes_check(logged(T + 30, T + 90, later=(T + 150,)), found)
    assert (check.ok, check.found) == (False, said)


def test_a_row_of_later_is_too_many_whatever_the_clock_said() -> None:
    """The server's clock was put back after the backup."""
    check = minutes_check(logged(T - 600, later=(T - 540,)), rows(T - 600, T - 540))
    assert check.found.startswith("with the row of")


def test_what_the_server_does_not_keep_so_long_is_not_compared() -> None:
    made = logged(T + 30)
    made.wrote(T + KEPT_SECONDS, 1)
    made.purged(T + KEPT_SECONDS + 60)
    assert minutes_check(made, {T + KEPT_SECONDS: 1}).ok
    assert not minutes_check(made, {}).ok


def test_of_a_table_that_was_emptied_all_is_known() -> None:
    made = logged(T + 30)
    made.emptied()
    made.wrote(T + 90, 1)
    assert minutes_check(made, {T + 90: 1}).ok
    assert not minutes_check(made, rows(T + 90)).ok


def test_of_a_table_that_somebody_else_has_changed_only_what_followed_is_compared() -> None:
    made = logged(T + 30)
    made.changed(T + 40)
    made.wrote(T + 90, 1)
    assert minutes_check(made, {T + 7: 1, T + 90: 1}).ok
    assert not minutes_check(made, {T + 7: 1}).ok
