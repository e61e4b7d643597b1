"""What tests/contract promises of the machine's own MariaDB, Debian 12's 10.11, holds on MariaDB 11 too.

Privileges, positions and blockers are asked of every server in test_account, each way to lose a lock in
test_lock_failures; here is the rest.
"""

import inspect
from types import ModuleType

import pytest

from tests.contract import test_account, test_locks

# indirect, so that these tests share the session's servers with the others instead of asking for more of them
pytestmark = pytest.mark.parametrize("kind", ["mariadb-11"], indirect=True, scope="session")

SERVERS = {"mysql_server", "account"}  # the fixtures by which a test has a server
ASKED_OF_EVERY_SERVER: set[object] = {
    test_account.test_the_documented_grants_are_enough_for_everything,
    test_account.test_each_missing_privilege_is_named_and_the_facts_are_told_all_the_same,
    test_account.test_an_applier_is_stopped_with_one_privilege_more,
    test_account.test_super_is_not_enough_to_lock,
    test_account.test_the_facts_are_what_the_server_runs_with,
    test_locks.test_it_is_not_granted_while_an_alter_waits_for_its_table,
    test_locks.test_auto_is_the_strategy_that_waits_for_less,
}


def promised(module: ModuleType) -> dict[str, object]:
    """The tests of a module that ask a server, and the fixtures, but for that server."""
    fixtures = {name: thing for name, thing in vars(module).items() if isinstance(thing, type(module.mysql_server))}
    tests = {name: thing for name, thing in vars(module).items() if name.startswith("test_")}
    asking = {name: test for name, test in tests.items() if SERVERS & set(inspect.signature(test).parameters)}
    asking = {name: test for name, test in asking.items() if test not in ASKED_OF_EVERY_SERVER}
    return asking | {name: thing for name, thing in fixtures.items() if name != "mysql_server"}


globals().update(promised(test_account) | promised(test_locks))
