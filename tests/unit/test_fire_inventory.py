"""What the campaign's inventory tells of a server: every variable that a run could leave changed."""

from typing import Any

import pytest

from backupd.mysql.flushing import MAX_DIRTY
from tests.fire.inventory import Server


class Told(Server):
    """A server whose variables are told here."""

    def __init__(self, **variables: int) -> None:
        super().__init__(lambda: None)
        self.told = variables

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        assert statement == "SHOW GLOBAL VARIABLES"
        return list(self.told.items())


def test_only_what_the_server_changes_by_itself_is_passed_over() -> None:
    server = Told(innodb_io_capacity=200, gtid_binlog_pos=1)
    before = frozenset(server.variables())
    server.told["gtid_binlog_pos"] = 2
    server.pass_over_what_changes(before)
    assert list(server.variables()) == ["innodb_io_capacity=200"]


def test_a_variable_that_a_run_sets_is_never_passed_over() -> None:
    server = Told(**{MAX_DIRTY: 90})
    before = frozenset(server.variables())
    server.told[MAX_DIRTY] = 0
    with pytest.raises(RuntimeError, match=f"have not put back {MAX_DIRTY}"):
        server.pass_over_what_changes(before)
