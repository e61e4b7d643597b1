"""What tells the server that was changed from another one, and what becomes of it where another one answers."""

from typing import cast
from unittest.mock import Mock

import pytest

from backupd.mysql.same_server import identity, is_same, on_another
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError

DAY = 86_400
CHANGED_AT = 1_000_000_000
MARIADB = {"datadir": "/var/lib/mysql/", "server_id": "1", "hostname": "a", "port": "3306"}
MYSQL = {"datadir": "/var/lib/mysql/", "server_uuid": "A"}


def known(variables: dict[str, str], *, uptime: int, after: int = 0) -> dict[str, str]:
    """What is known of a server, so many seconds after the change."""
    return {**variables, "uptime": str(uptime), "at": str(CHANGED_AT + after)}


def told(saved: dict[str, str], now: dict[str, str]) -> str:
    return on_another(saved, now, changed="its applier was stopped", remedy="START it there")


CHANGED = known(MYSQL, uptime=100 * DAY)
OTHER = {**MYSQL, "server_uuid": "B"}


@pytest.mark.parametrize(
    ("uptime", "after"),
    [
        (30 * DAY, 3600),  # younger than the one that was changed, and up long before it was
        (3600, 3600),
        (3597, 3600),  # it may have been: what is told in whole seconds, one after the other
        (0, 0),
    ],
)
def test_another_server_that_was_up_already_is_no_reason_to_forget_the_one_that_was_changed(
    uptime: int, after: int
) -> None:
    with pytest.raises(
        ServerError, match="another server answers: its server_uuid is B, and its applier was stopped on"
    ):
        told(CHANGED, known(OTHER, uptime=uptime, after=after))


@pytest.mark.parametrize("uptime", [50, 3570])  # a container that was made anew half a minute later
def test_where_another_server_was_started_since_the_one_that_was_changed_may_be_gone(uptime: int) -> None:
    words = told(CHANGED, known(OTHER, uptime=uptime, after=3600))
    assert words.endswith("if that server is still running: START it there")


def test_a_server_that_has_not_answered_for_a_week_is_given_up() -> None:
    """A failover to an older server, for good."""
    with pytest.raises(ServerError, match="another server answers"):
        told(CHANGED, known(OTHER, uptime=300 * DAY, after=7 * DAY))
    words = told(CHANGED, known(OTHER, uptime=300 * DAY, after=7 * DAY + 1))
    assert words.endswith("if that server is still running: START it there")


def test_a_change_of_a_time_to_come_is_given_up() -> None:
    """By a clock that was ahead: a week after that time would be never."""
    with pytest.raises(ServerError, match="another server answers"):
        told(CHANGED, known(OTHER, uptime=300 * DAY, after=-DAY))
    assert told(CHANGED, known(OTHER, uptime=300 * DAY, after=-DAY - 1))


@pytest.mark.parametrize("other", [{"datadir": "/srv/"}, {"hostname": "b"}, {"port": "3307"}, {"server_id": "2"}])
def test_a_mariadb_is_known_by_all_that_it_has(other: dict[str, str]) -> None:
    """Each of them may be shared: by default it is 1, and so it is on the nodes of a Galera cluster."""
    ours = known(MARIADB, uptime=9000)
    assert is_same(ours, known(MARIADB, uptime=50, after=3600))
    ((name, value),) = other.items()
    with pytest.raises(ServerError, match=f"another server answers: its {name} is {value}"):
        told(ours, known({**MARIADB, **other}, uptime=90_000, after=3600))


def test_a_mariadb_whose_id_was_changed_as_it_ran_is_the_same() -> None:
    ours, changed = known(MARIADB, uptime=1000), {**MARIADB, "server_id": "2"}
    assert is_same(ours, known(changed, uptime=4655, after=3600))
    assert not is_same(ours, known(changed, uptime=4665, after=3600))
    assert not is_same(ours, known(changed, uptime=50, after=3600))


def test_a_mysql_is_known_by_its_uuid_alone() -> None:
    assert is_same(CHANGED, known({**MYSQL, "datadir": "/srv/", "hostname": "b"}, uptime=50, after=3600))
    assert not is_same(CHANGED, known(MARIADB, uptime=50, after=3600))


@pytest.mark.parametrize("lacking", [("hostname", "port"), ("hostname", "port", "server_id")])
def test_a_row_of_an_older_version_is_compared_by_what_it_has(lacking: tuple[str, ...]) -> None:
    ours = known({name: value for name, value in MARIADB.items() if name not in lacking}, uptime=1000)
    assert is_same(ours, known({**MARIADB, "hostname": "b"}, uptime=9000))
    assert not is_same(ours, known({**MARIADB, "datadir": "/srv/"}, uptime=9000))
    assert is_same(ours, known({**MARIADB, "server_id": "2"}, uptime=1000)) == ("server_id" in lacking)


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        (MARIADB, {"datadir", "server_id", "hostname", "port"}),
        ({**MARIADB, **MYSQL}, {"datadir", "server_uuid", "hostname", "port"}),
    ],
)
def test_what_is_written_down_is_what_is_compared(variables: dict[str, str], names: set[str]) -> None:
    session = Mock(Session)
    session.status.return_value = "77"
    written = identity(cast(Session, session), {**variables, "max_connections": "151"})
    assert set(written) == {*names, "uptime", "at"}
    assert (written["uptime"], is_same(written, written)) == ("77", True)
